import type { Draw } from '../../../support/random.ts';
import type { KindName } from '../declaration.ts';
import type { Effect, Job, Move, QueueHistory, Request, Run } from '../history.ts';
import type { Group } from '../plan.ts';
import { FINAL } from './check-moves.ts';

/** What a queue that is broken may do with jobs that belong together. */
export const GROUP_BUGS = [
  'a child begins before its parents have ended',
  'a batch calls twice',
  'a batch does not call',
  'a batch calls before its last member has ended',
  'a dead letter is missing',
  'a dead letter is there twice',
  'two are outstanding',
] as const;

/** The history, with jobs that belong together next to those that it has. */
export function withGroups(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Addition(history, draw, bug);
  more.leaveLetters();
  more.addFlow();
  more.addBatch();
  more.addOutstanding();
  return more.history();
}

class Addition {
  readonly #before: QueueHistory;
  readonly #draw: Draw;
  readonly #bug: string | undefined;
  readonly #requests: Request[] = [];
  readonly #jobs: Job[] = [];
  readonly #moves: Move[] = [];
  readonly #runs: Run[] = [];
  readonly #effects: Effect[] = [];
  #number = 1_000_000;

  constructor(before: QueueHistory, draw: Draw, bug: string | undefined) {
    this.#before = before;
    this.#draw = draw;
    this.#bug = bug;
  }

  history(): QueueHistory {
    const { requests, jobs, moves, runs, effects } = this.#before;
    return {
      ...this.#before,
      requests: [...requests, ...this.#requests],
      jobs: [...jobs, ...this.#jobs],
      moves: [...moves, ...this.#moves],
      runs: [...runs, ...this.#runs],
      effects: [...effects, ...this.#effects],
    };
  }

  leaveLetters(): void {
    const fragile = new Set(this.#before.jobs.filter(({ kind }) => kind === 'fragile').map(({ id }) => id));
    for (const { job, to, committedAt } of this.#before.moves) {
      if (to !== 'error' || !fragile.has(job) || this.#bug === 'a dead letter is missing') continue;
      for (let n = this.#bug === 'a dead letter is there twice' ? 2 : 1; n > 0; n -= 1) {
        const letter = this.#job('letter', committedAt);
        this.#jobs.push({ ...letter, n: 0, letterOf: job });
        this.#run(letter, committedAt + this.#draw.int(0, 40));
      }
    }
  }

  addFlow(): void {
    const parents = this.#several(this.#draw.int(1, 4));
    const child = this.#add('plain', 1000);
    const begins = Math.max(...parents.map((parent) => this.#run(parent, this.#draw.int(1000, 2000))));
    this.#run(
      child,
      begins + (this.#bug === 'a child begins before its parents have ended' ? -20 : this.#draw.int(0, 40)),
    );
    this.#ask([...parents, child], { as: 'flow' });
  }

  addBatch(): void {
    const members = this.#several(this.#draw.int(1, 4));
    const last = Math.max(...members.map((member) => this.#run(member, this.#draw.int(1000, 2000))));
    const isSealed = this.#draw.chance(0.8);
    // Sealed before the last one ends, or afterwards, or never.
    const called = last + (this.#draw.chance(0.5) ? 0 : this.#draw.int(0, 100));
    const early = this.#bug === 'a batch calls before its last member has ended' ? 10 : 0;
    const call = this.#job('called', called - early);
    const isCalled = (isSealed || this.#draw.chance(0.5)) && this.#bug !== 'a batch does not call';
    if (isCalled) {
      this.#jobs.push(call);
      this.#run(call, called);
    }
    if (this.#bug === 'a batch calls twice')
      this.#jobs.push({ ...this.#job('called', called), n: call.n, status: 'new' });
    this.#ask(members, { as: 'batch', callback: call.n }, isSealed);
  }

  addOutstanding(): void {
    let at = 1000;
    for (let n = this.#draw.int(1, 4); n > 0; n -= 1) {
      const job = this.#add('only', at, 'only');
      const ended = this.#run(job, at + this.#draw.int(6, 40));
      this.#ask([job], undefined);
      at = ended + (this.#bug === 'two are outstanding' ? -1 : this.#draw.int(0, 20));
    }
  }

  #several(n: number): Job[] {
    return Array.from({ length: n }, () => this.#add('plain', 1000));
  }

  #add(kind: KindName, committedAt: number, key: string | null = null): Job {
    const job = { ...this.#job(kind, committedAt), key };
    this.#jobs.push(job);
    return job;
  }

  #job(kind: KindName, committedAt: number): Job {
    this.#number += 1;
    const status = FINAL[0] ?? '';
    return { id: String(this.#number), n: this.#number, kind, key: null, isDelayed: false, committedAt, status };
  }

  #ask(jobs: readonly Job[], group: Group | undefined, isSealed = false): void {
    const askedAt = Math.min(...jobs.map(({ committedAt }) => committedAt)) - 1;
    const [numbers, ids] = [jobs.map(({ n }) => n), jobs.map(({ id }) => id)];
    const request: Request = { numbers, askedAt, how: 'committed', outcome: 'acknowledged', ids, isDuplicate: false };
    this.#requests.push({ ...request, group, isSealed });
  }

  /** It runs once, well. @returns when it ends */
  #run({ id, kind, key }: Job, begunAt: number): number {
    const [process, xid, token] = [`process of ${id}`, `xid of ${id}`, BigInt(id)];
    const at = begunAt + this.#draw.int(5, 30);
    const base = { process, attempt: 1, token };
    const ended = { at, how: 'well' };
    this.#runs.push({ ...base, member: 'another', pid: 0, hold: 'lease', ids: [id], kind, key, begunAt, ended });
    this.#effects.push({ ...base, job: id, committedAt: at, xid });
    const move = { job: id, from: 'in-progress', to: 'complete', reason: 'complete', attempt: 1, process };
    this.#moves.push({ ...move, claimedAt: begunAt, committedAt: at + 1, xid });
    return at + 1;
  }
}
