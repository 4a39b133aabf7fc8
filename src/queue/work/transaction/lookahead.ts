import { Cooldown } from '../../../base/time/cooldown.ts';
import type { Candidate, Cursor, PeekRequest } from '../../store.ts';
import { START } from '../scan.ts';

/**
 * The buffer is read again after this time: jobs that became due, have precedence, or were committed late with a lower id,
 * wait no longer.
 */
const PASS_MS = 100;

/**
 * Jobs of another worker's share are free for all workers after this time, or at most twice as long. With 100 ms, four busy
 * processes tried to take the same jobs: a sixth of their takes failed.
 */
const OVERDUE_MS = 500;

/**
 * A candidate that was read this long ago is not taken any more: with slow handlers, another job may have precedence by now.
 */
const STALE_MS = 1000;

/**
 * A lane waits no longer than this for a read, whose connection may be dead. Then it claims alone, around the rows that the read has
 * locked, and so out of order. With 100 ms that happened on busy machines.
 */
export const READ_MS = 500;

/** After a read that took longer than this, the lanes claim alone for a while: they would wait for the next one, too. */
const SLOW_MS = 100;

/** How many rows a read may return: each costs 5 µs. */
const ROWS = { min: 16, max: 1024 } as const;

/** Several workers share the jobs by a hash, so that a read returns a little more or less than this worker's share. */
const FULL = 0.75;

export interface LookaheadOptions {
  readonly lanes: number;
  /** Reads candidates, on a connection without a handler. */
  readonly read: (request: Pick<PeekRequest, 'rows' | 'front'>) => Promise<readonly Candidate[]>;
  readonly onError: (error: unknown) => void;
}

/**
 * Ready jobs without a key of one shard, read ahead for all lanes of a worker. It holds no locks: the job of a candidate may
 * be gone when a lane takes it. Each read replaces the rest of the one before.
 */
export class Lookahead {
  readonly #options: LookaheadOptions;
  #candidates: readonly Candidate[] = [];
  /** The index of the next candidate. */
  #at = 0;
  /** True: the last read had fewer jobs than there are lanes, as with keys, so that each lane claims alone. */
  #isSparse = false;
  /** True: the last read, including jobs that lanes took meanwhile, had far fewer jobs than its limit. */
  #hasShownAll = false;
  #reading: Promise<void> | undefined;
  #readAt = -Infinity;
  /** The limit of the last read, and how many jobs lanes have taken, or missed, since it began. */
  #rows: number = ROWS.min;
  #taken = 0;
  #missed = 0;
  /** Jobs whose take has no answer yet. */
  readonly #open = new Set<number>();
  /** Jobs that the current read may show as free, since lanes take them after its snapshot. */
  readonly #recent = new Set<number>();
  /** The last taken job; the last one up to {@link OVERDUE_MS} ago; and up to twice as long ago. */
  #last: Cursor = START;
  #front: Cursor = START;
  #frontBefore: Cursor = START;
  #frontAt = -Infinity;
  #passAt = -Infinity;
  /** A slow read helps no lane. */
  readonly #cooldown = new Cooldown();

  constructor(options: LookaheadOptions) {
    this.#options = options;
  }

  /** The read that a lane without a candidate should wait for: a claim with a search costs as much as four takes. */
  get reading(): Promise<void> | undefined {
    return this.#isSparse || this.#left > 0 || this.#isOverdue ? undefined : this.#reading;
  }

  /** The next job to take; call {@link ended} with the result. Undefined: no candidate is known yet. */
  next(): Candidate | undefined {
    if (performance.now() - this.#readAt > STALE_MS) this.#candidates = [];
    if (this.#wantsRead) this.#read();
    const candidate = this.#candidates[this.#at];
    if (candidate === undefined) return undefined;
    this.#at += 1;
    this.#open.add(candidate.id);
    this.#note(candidate);
    return candidate;
  }

  /** Called when a take has ended. */
  ended({ id }: Candidate, isTaken: boolean): void {
    this.#open.delete(id);
    if (!isTaken) this.#missed += 1;
  }

  /** Called when a lane's own claim has found a job without a key: more may be ready. */
  found(job: Cursor): void {
    this.#note(job);
    if (this.#reading === undefined && this.#left <= 0 && (!this.#isSparse || this.#isPassDue)) this.#read();
  }

  /** Called when a lane's own claim has found nothing. */
  foundNone(): void {
    if (this.#left <= 0) this.#isSparse = true;
  }

  /** Resolves when no read is under way. */
  async settled(): Promise<void> {
    await this.#reading;
  }

  get #left(): number {
    return this.#candidates.length - this.#at;
  }

  get #isPassDue(): boolean {
    return performance.now() - this.#passAt > PASS_MS;
  }

  get #isOverdue(): boolean {
    return performance.now() - this.#readAt > READ_MS;
  }

  get #wantsRead(): boolean {
    if (this.#reading !== undefined || !this.#cooldown.isOver) return false;
    if (this.#left <= 0) return !this.#isSparse && this.#isPassDue;
    // Many takes have failed, so other workers take the same jobs: most candidates may be gone.
    return this.#isPassDue || this.#isScarce || this.#missed > this.#options.lanes / 2 + this.#taken / 4;
  }

  get #isScarce(): boolean {
    return this.#left < Math.max(2 * this.#options.lanes, this.#rows / 8) && !this.#hasShownAll;
  }

  #note(job: Cursor): void {
    this.#last = { priority: job.priority, id: job.id };
    this.#taken += 1;
    this.#recent.add(job.id);
  }

  #read(): void {
    const begin = performance.now();
    this.#rows = this.#rowsFor(begin - this.#readAt);
    if (this.#isPassDue) this.#passAt = begin;
    if (begin - this.#frontAt > OVERDUE_MS) {
      [this.#frontBefore, this.#front, this.#frontAt] = [this.#front, this.#last, begin];
    }
    this.#readAt = begin;
    this.#taken = 0;
    this.#missed = 0;
    this.#recent.clear();
    for (const id of this.#open) this.#recent.add(id);
    this.#reading = this.#options
      .read({ rows: this.#rows, front: this.#frontBefore })
      .then(
        (candidates) => this.#fill(candidates),
        (error: unknown) => {
          this.#isSparse = true;
          this.#options.onError(error);
        },
      )
      .finally(() => {
        this.#cooldown.record(performance.now() - begin > SLOW_MS);
        this.#reading = undefined;
      });
  }

  /** A quarter more than the lanes will take until the next pass, at the rate since the last read. */
  #rowsFor(elapsedMs: number): number {
    const { lanes } = this.#options;
    const pace = (this.#taken * PASS_MS) / Math.min(Math.max(elapsedMs, 1), PASS_MS);
    return Math.round(Math.min(ROWS.max, Math.max(ROWS.min, 4 * lanes, 1.25 * pace)));
  }

  #fill(candidates: readonly Candidate[]): void {
    this.#candidates = candidates.filter(({ id }) => !this.#recent.has(id));
    this.#at = 0;
    this.#hasShownAll = candidates.length + this.#recent.size < this.#rows * FULL;
    this.#isSparse = this.#left < this.#options.lanes;
  }
}
