import type { Draw } from '../../../../support/random.ts';
import type { KindName } from '../../declaration.ts';
import type { Change, Effect, Job, Move, QueueHistory, Request, Run } from '../../history.ts';
import type { Group } from '../../plan.ts';

/** The special features of an added run. */
export interface RunOptions {
  readonly begunAt: number;
  /** The time between the claim and the start. Default: 0. */
  readonly claimedMs?: number;
  readonly hold?: Run['hold'];
  readonly version?: number;
  readonly keptUntil?: number;
  /** The call of a batch handler. */
  readonly call?: string;
  readonly attempt?: number;
  /** The outcome, in the words of the handler and of the history. Default: well. */
  readonly how?: string;
  readonly to?: string;
  readonly reason?: string;
}

/** Jobs in addition to those of a history, with their outcomes. */
export class Addition {
  protected readonly before: QueueHistory;
  protected readonly draw: Draw;
  readonly #requests: Request[] = [];
  readonly #jobs: Job[] = [];
  readonly #moves: Move[] = [];
  readonly #runs: Run[] = [];
  readonly #effects: Effect[] = [];
  readonly #changes: Change[] = [];
  #number: number;

  /** @param from  the first number of its jobs */
  constructor(before: QueueHistory, draw: Draw, from: number) {
    this.before = before;
    this.draw = draw;
    this.#number = from;
  }

  history(): QueueHistory {
    const { requests, jobs, moves, runs, effects, changes } = this.before;
    return {
      ...this.before,
      requests: [...requests, ...this.#requests],
      jobs: [...jobs, ...this.#jobs],
      moves: [...moves, ...this.#moves],
      runs: [...runs, ...this.#runs],
      effects: [...effects, ...this.#effects],
      changes: [...changes, ...this.#changes],
    };
  }

  protected next(): number {
    this.#number += 1;
    return this.#number;
  }

  /** A job that ends well unless the caller changes it. It is not in the history yet. */
  protected job(kind: KindName, committedAt: number, key: string | null = null): Job {
    const n = this.next();
    const createdAt = committedAt - this.draw.int(0, 3);
    return { id: String(n), n, kind, key, isDelayed: false, createdAt, committedAt, status: 'complete' };
  }

  protected put(job: Job): Job {
    this.#jobs.push(job);
    return job;
  }

  protected add(kind: KindName, committedAt: number, key: string | null = null): Job {
    return this.put(this.job(kind, committedAt, key));
  }

  protected change(change: Omit<Change, 'member'>): void {
    this.#changes.push({ member: 'another', ...change });
  }

  /** @param duplicates  the numbers of jobs that existed already */
  protected ask(jobs: readonly Job[], group?: Group, isSealed = false, duplicates: readonly number[] = []): void {
    this.askAs(jobs, { group, isSealed, duplicates: new Set(duplicates) });
  }

  /** A request with special features. */
  protected askAs(jobs: readonly Job[], more: Partial<Request>): void {
    const times = jobs.map(({ committedAt }) => committedAt);
    const [numbers, ids] = [jobs.map(({ n }) => n), jobs.map(({ id }) => id)];
    const request = { numbers, how: 'committed', outcome: 'acknowledged', ids, duplicates: new Set<number>() } as const;
    this.#requests.push({ ...request, askedAt: Math.min(...times) - 1, answeredAt: Math.max(...times) + 1, ...more });
  }

  /** A move of a job that does not run. */
  protected rest({ id }: Job, from: string, to: string, reason: string, committedAt: number): void {
    const xid = String(this.next());
    const of = { attempt: 0, process: null, claimedAt: null, at: committedAt, committedAt, xid };
    this.#moves.push({ job: id, from, to, reason, ...of });
  }

  /** Runs the job once. @returns the time of the end */
  protected run(job: Job, begunAt: number): number {
    return this.runAll([job], { begunAt });
  }

  /** Runs these jobs as one unit. @returns the time of the end */
  protected runAll(jobs: readonly Job[], options: RunOptions): number {
    const { begunAt, claimedMs = 0, hold = 'lease', attempt = 1, version = 0, keptUntil, call } = options;
    const { how = 'well', to = 'complete', reason = to } = options;
    const [first] = jobs;
    if (first === undefined) return begunAt;
    const n = this.next();
    const [process, xid] = [`process ${n}`, `xid ${n}`];
    const at = begunAt + this.draw.int(5, 30);
    const base = { process, attempt, token: BigInt(n) };
    const ids = jobs.map(({ id }) => id);
    const run = { ...base, member: 'another', pid: 0, hold, ids, kind: first.kind, key: first.key };
    const versions = ids.map(() => version);
    this.#runs.push({ ...run, begunAt, versions, keptUntil, call, ended: { at, how } });
    for (const { id } of jobs) {
      if (how === 'well') this.#effects.push({ ...base, job: id, committedAt: at, xid });
      const move = { job: id, from: 'in-progress', to, reason, attempt, process, xid };
      this.#moves.push({ ...move, claimedAt: begunAt - claimedMs, at: at + 1, committedAt: at + 1 });
    }
    return at + 1;
  }
}
