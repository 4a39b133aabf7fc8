import type { Draw } from '../../../../support/random.ts';
import type { Job, QueueHistory } from '../../history.ts';
import { Addition } from './addition.ts';

/** What a queue that is broken may do with jobs that belong together. */
export const GROUP_BUGS = [
  'a child begins before its parents have ended',
  'a batch calls twice',
  'a batch does not call',
  'a batch calls before its last member has ended',
  'a dead letter is missing',
  'a dead letter is there twice',
] as const;

/** The history, with jobs that belong together next to those that it has. */
export function withGroups(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Groups(history, draw, bug);
  more.leaveLetters();
  more.addFlow();
  more.addBatch();
  return more.history();
}

class Groups extends Addition {
  readonly #bug: string | undefined;

  constructor(before: QueueHistory, draw: Draw, bug: string | undefined) {
    super(before, draw, 1_000_000);
    this.#bug = bug;
  }

  leaveLetters(): void {
    const fragile = new Set(this.before.jobs.filter(({ kind }) => kind === 'fragile').map(({ id }) => id));
    for (const { job, to, committedAt } of this.before.moves) {
      if (to !== 'error' || !fragile.has(job) || this.#bug === 'a dead letter is missing') continue;
      for (let n = this.#bug === 'a dead letter is there twice' ? 2 : 1; n > 0; n -= 1) {
        const letter = this.job('letter', committedAt);
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

  addBatch(): void {
    const members = this.#several(this.draw.int(1, 4));
    const last = Math.max(...members.map((member) => this.run(member, this.draw.int(1000, 2000))));
    const isSealed = this.draw.chance(0.8);
    // Sealed before the last one ends, or afterwards, or never.
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

  #several(n: number): Job[] {
    return Array.from({ length: n }, () => this.add('plain', 1000));
  }
}
