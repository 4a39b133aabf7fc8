import { Cooldown } from '../../../base/time/cooldown.ts';
import type { Candidate, Cursor, PeekRequest } from '../../store.ts';
import { START } from '../scan.ts';

/** The buffer is read again after this: what came due, goes first, or was committed late with a lower id, waits no longer. */
const PASS_MS = 100;

/**
 * What another worker should have taken is free for all after this time, and at most twice as long. With 100 ms, four busy processes
 * went after the same jobs: a sixth of their takes were in vain.
 */
const OVERDUE_MS = 500;

/** A candidate that was read this long ago is not taken any more: with handlers that take long, something may come before it by now. */
const STALE_MS = 1000;

/** A lane waits no longer than this for a read, whose connection may be dead; then it claims by itself. */
export const READ_MS = 100;

/** How many rows a read may bring: each costs 5 µs. */
const ROWS = { min: 16, max: 1024 } as const;

/** Where several workers share the jobs by a hash, a read brings a little more or less than this worker's share of them. */
const FULL = 0.75;

export interface LookaheadOptions {
  readonly lanes: number;
  /** Reads candidates, on a connection that no handler has. */
  readonly read: (request: Pick<PeekRequest, 'rows' | 'front'>) => Promise<readonly Candidate[]>;
  readonly onError: (error: unknown) => void;
}

/**
 * Ready jobs without a key of one shard, read ahead for all lanes of a worker. It holds no lock on them: a lane that takes one may
 * find it gone. Each read replaces what is left of the one before.
 */
export class Lookahead {
  readonly #options: LookaheadOptions;
  #candidates: readonly Candidate[] = [];
  /** The next of them. */
  #at = 0;
  /** The last read showed fewer jobs than there are lanes, as with keys: each lane claims by itself. */
  #isSparse = false;
  /** The last read brought far fewer jobs than it was to bring, those included that lanes have taken meanwhile. */
  #hasShownAll = false;
  #reading: Promise<void> | undefined;
  #readAt = -Infinity;
  /** How many the last read was to bring, and how many lanes have taken, or missed, since it began. */
  #rows: number = ROWS.min;
  #taken = 0;
  #missed = 0;
  /** Jobs of takes without an answer. */
  readonly #open = new Set<number>();
  /** Jobs that the read under way may show as free, since a lane takes them behind its snapshot. */
  readonly #recent = new Set<number>();
  /** The last job taken; where that was up to {@link OVERDUE_MS} ago, and up to twice as long ago. */
  #last: Cursor = START;
  #front: Cursor = START;
  #frontBefore: Cursor = START;
  #frontAt = -Infinity;
  #passAt = -Infinity;
  /** Slow reads help no lane. */
  readonly #cooldown = new Cooldown();

  constructor(options: LookaheadOptions) {
    this.#options = options;
  }

  /** A read that a lane without a candidate should wait for: a claim that searches costs as much as four takes. */
  get reading(): Promise<void> | undefined {
    return this.#isSparse || this.#left > 0 || this.#isOverdue ? undefined : this.#reading;
  }

  /** The next job to take, of which {@link ended} tells how that went. Undefined: there is none to be known yet. */
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

  /** A take has ended. */
  ended({ id }: Candidate, isTaken: boolean): void {
    this.#open.delete(id);
    if (!isTaken) this.#missed += 1;
  }

  /** A lane's own claim has found a job without a key: more may be ready. */
  found(job: Cursor): void {
    this.#note(job);
    if (this.#reading === undefined && this.#left <= 0 && (!this.#isSparse || this.#isPassDue)) this.#read();
  }

  /** A lane's own claim has found nothing. */
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
    // Other workers are at the same jobs: most of what was read may be gone.
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
        this.#cooldown.record(performance.now() - begin > READ_MS);
        this.#reading = undefined;
      });
  }

  /** A quarter more than the lanes take until the next pass, at the pace since the last read. */
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
