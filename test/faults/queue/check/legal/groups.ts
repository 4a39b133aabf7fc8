import type { Draw } from '../../../../support/random.ts';
import type { KindName } from '../../declaration.ts';
import type { Job, QueueHistory } from '../../history.ts';
import type { Fate } from '../../plan.ts';
import { Addition } from './addition.ts';

/** Bugs with jobs that belong together. */
export const GROUP_BUGS = [
  'a child begins before its parents have ended',
  'a job of a graph begins before all are over',
  'a batch calls twice',
  'a batch does not call',
  'a batch calls before its last member has ended',
  'a batch calls the wrong one',
  'a batch does not wait for the one in it',
  'a child runs though its parent failed',
  'a child does not run though it was to',
  'a dead letter is missing',
  'a dead letter is there twice',
  'a dead letter is of another kind',
] as const;

/** The history with added jobs that belong together. */
export function withGroups(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Groups(history, draw, bug);
  more.leaveLetters();
  more.addFlow();
  more.addGraph();
  more.addBatch();
  more.addFate();
  more.addNested();
  return more.history();
}

class Groups extends Addition {
  readonly #bug: string | undefined;

  constructor(before: QueueHistory, draw: Draw, bug: string | undefined) {
    super(before, draw, 1_000_000);
    this.#bug = bug;
  }

  leaveLetters(): void {
    const kinds = new Map<string, KindName>();
    for (const { id, kind, onError } of this.before.jobs) {
      if (onError === 'own' || kind === 'fragile') kinds.set(id, onError === 'own' ? 'own' : 'letter');
    }
    const isMixedUp = this.#bug === 'a dead letter is of another kind';
    for (const { job, to, committedAt } of this.before.moves) {
      const kind = kinds.get(job);
      if (to !== 'error' || kind === undefined || this.#bug === 'a dead letter is missing') continue;
      for (let n = this.#bug === 'a dead letter is there twice' ? 2 : 1; n > 0; n -= 1) {
        const letter = this.job(isMixedUp ? 'letter' : kind, committedAt);
        this.put({ ...letter, n: 0, letterOf: job });
        this.run(letter, committedAt + this.draw.int(0, 40));
      }
    }
  }

  addFlow(): void {
    const parents = this.#several(this.draw.int(1, 4));
    const child = this.add('plain', 1000);
    const begins = Math.max(...parents.map((parent) => this.run(parent, this.draw.int(1000, 2000))));
    this.run(
      child,
      begins + (this.#bug === 'a child begins before its parents have ended' ? -20 : this.draw.int(0, 40)),
    );
    this.ask([...parents, child], { as: 'flow' });
  }

  /** Jobs that come after others, each after different ones. */
  addGraph(): void {
    const parents = this.#several(3);
    const after = [[0], [0, 1], [1, 2]];
    const children = after.map(() => this.add('plain', 1000));
    const ends = parents.map((parent) => this.run(parent, this.draw.int(1000, 2000)));
    for (const [nth, child] of children.entries()) {
      const all = Math.max(...(after[nth] ?? []).map((at) => ends[at] ?? 0));
      this.run(child, all + (this.#bug === 'a job of a graph begins before all are over' ? -20 : this.draw.int(0, 40)));
    }
    this.ask([...parents, ...children], { as: 'flow', after });
  }

  addBatch(): void {
    const members = this.#several(this.draw.int(1, 4));
    const last = Math.max(...members.map((member) => this.run(member, this.draw.int(1000, 2000))));
    const isSealed = this.draw.chance(0.8);
    // The seal is before the end of the last member, after it, or missing.
    const called = last + (this.draw.chance(0.5) ? 0 : this.draw.int(0, 100));
    const early = this.#bug === 'a batch calls before its last member has ended' ? 10 : 0;
    const call = this.job('called', called - early);
    const isCalled = (isSealed || this.draw.chance(0.5)) && this.#bug !== 'a batch does not call';
    if (isCalled) {
      this.put(call);
      this.run(call, called);
    }
    if (this.#bug === 'a batch calls twice') this.put({ ...this.job('called', called), n: call.n, status: 'new' });
    this.ask(members, { as: 'batch', callback: call.n }, isSealed);
  }

  /** The worst end of the parents decides the outcome of the child. */
  addFate(): void {
    const afterError = this.draw.pick<Fate>('run', 'error', 'cancel');
    const isWrong = this.#bug === 'a child runs though its parent failed';
    const fate = this.#bug === 'a child does not run though it was to' ? 'run' : isWrong ? 'error' : afterError;
    const parent = this.put({ ...this.job('plain', 1000), status: 'error' });
    const other = this.add('plain', 1000);
    const status = { run: 'complete', error: 'error', cancel: 'cancelled' } as const;
    const came = isWrong ? 'run' : this.#bug === 'a child does not run though it was to' ? 'error' : fate;
    const child = this.put({ ...this.job('plain', 1000), status: status[came] });
    const failed = this.runAll([parent], { begunAt: 1010, how: 'NoRetry', to: 'error', reason: 'no retry' });
    const ended = Math.max(failed, this.run(other, this.draw.int(1005, 1030)));
    if (came === 'run') this.run(child, ended + this.draw.int(0, 20));
    else this.rest(child, 'new', status[came], 'parents', ended);
    this.ask([parent, other, child], { as: 'flow', afterError: fate, afterCancel: 'run' });
  }

  /** A batch in a batch, with a callback for each outcome. */
  addNested(): void {
    const [own, inner] = [this.add('plain', 1000), this.add('plain', 1000)];
    const isGood = this.draw.chance(0.5);
    const failed = { how: 'NoRetry', to: 'error', reason: 'no retry' };
    const first = this.run(own, 1010);
    const member = isGood ? inner : this.put({ ...this.job('plain', 1000), status: 'error' });
    const last = this.runAll([member], { begunAt: first + this.draw.int(10, 30), ...(isGood ? {} : failed) });
    const members = isGood ? [own, inner] : [own, inner, member];
    if (!isGood) this.run(inner, 1010);
    const all = Math.max(last, ...(isGood ? [] : [1050]));
    const isEarly = this.#bug === 'a batch does not wait for the one in it';
    const called = isEarly ? first + 1 : all;
    const call = (at: number): Job => {
      const job = this.add('called', at);
      this.run(job, at + 1);
      return job;
    };
    const [done, innerDone] = [call(called), call(all)];
    const isSwapped = this.#bug === 'a batch calls the wrong one';
    const [completes, fails] = [this.job('called', called), this.job('called', called)];
    this.run(this.put(isGood === isSwapped ? fails : completes), called + 1);
    const nested = { n: members.length - 1, callback: innerDone.n };
    this.ask(members, { as: 'batch', callback: done.n, completes: completes.n, fails: fails.n, nested }, true);
  }

  #several(n: number): Job[] {
    return Array.from({ length: n }, () => this.add('plain', 1000));
  }
}
