import type { Blocker, ClaimAnswer, Cursor } from '../store.ts';
import { countJobsOfKeys, countUnits } from './claim-reader.ts';

/** The position before every job. */
export const START: Cursor = { priority: -32_768, id: 0 };

/**
 * The longest time until a new pass begins. A job of higher priority, or a job that is committed late with a lower id, waits no
 * longer than this behind a deep backlog.
 */
const PASS_MS = 100;

const ROWS = { min: 16, first: 64, max: 2000 } as const;

/** The result of a poll: there may be more jobs, there are none, or other transactions hold the rows now. */
export type ScanVerdict = 'again' | 'empty' | 'busy';

/**
 * Passes over one shard: from the start, on from the end of the last poll, and from the start again until a whole pass finds
 * nothing. It does not rely on the order of ids: the next pass finds jobs that were committed behind the cursor.
 */
export class Scan {
  readonly shard: number;
  cursor: Cursor;
  /**
   * How many ready rows to read. A bulk enqueue makes rows of many jobs, so the number follows the last polls. At the start of a
   * pass it follows the starts of earlier passes, because jobs that are tried again are there, one row each.
   */
  rows: number = ROWS.first;
  /** Milliseconds until the next delayed job, from the last poll that found nothing. */
  due: number = Infinity;
  /** The result of the last poll, if it was not `again`. */
  quiet: 'empty' | 'busy' | undefined;
  /** How long to rest before the next poll. */
  restMs: number = 0;
  /** hold 'transaction': the blocker that the next poll removes first. */
  blocker: Blocker | undefined;
  readonly #start: Cursor;
  #startedAt = performance.now();
  #found = false;
  /** The number of rows to read at the start of a pass, and after it. */
  #rowsAtStart: number = ROWS.first;
  #rowsBehind: number = ROWS.first;
  /**
   * The rows that the polls of this pass have read before one of them got as many jobs as it asked for; undefined: one of them
   * did.
   */
  #readUntilFilled: number | undefined = 0;

  constructor(shard: number, start: Cursor = START) {
    this.shard = shard;
    this.#start = start;
    this.cursor = start;
  }

  read(answer: ClaimAnswer, limit: number): ScanVerdict {
    const units = countUnits(answer);
    this.#adapt(answer, units >= limit);
    this.due = answer.due ?? Infinity;
    this.#found ||= units > 0;
    const verdict = answer.seen === 0 ? this.#atEnd(answer) : this.#onwards(answer, units);
    this.quiet = verdict === 'again' ? undefined : verdict;
    if (this.cursor === this.#start) this.rows = this.#rowsAtStart;
    return verdict;
  }

  #adapt(answer: ClaimAnswer, isFilled: boolean): void {
    // Each job of a coalesced unit is a row, and all of them may come before the rows of the next key.
    const used = answer.runs.length + countJobsOfKeys(answer) + (answer.chains?.keys.length ?? 0);
    const isCut = answer.seen >= this.rows;
    const more = isCut ? inBounds(this.rows * 2) : this.rows;
    const before = this.#readUntilFilled;
    if (before === undefined) {
      this.#rowsBehind = isFilled ? inBounds(used * 1.25) : more;
      this.rows = this.#rowsBehind;
      return;
    }
    const read = before + (isFilled ? used : answer.seen);
    if (isFilled || isCut) this.#rowsAtStart = inBounds(read * (isFilled ? 1.25 : 2));
    this.#readUntilFilled = isFilled ? undefined : read;
    this.rows = isFilled ? this.#rowsBehind : more;
  }

  restart(): void {
    this.cursor = this.#start;
    this.#found = false;
    this.#readUntilFilled = 0;
    this.#startedAt = performance.now();
  }

  #atEnd(answer: ClaimAnswer): ScanVerdict {
    const [isWhole, found] = [this.cursor === this.#start, this.#found];
    this.restart();
    if (found || (!isWhole && answer.busy !== true)) return 'again';
    return answer.busy === true ? 'busy' : 'empty';
  }

  #onwards(answer: ClaimAnswer, units: number): ScanVerdict {
    const { priority, id } = answer.last ?? this.cursor;
    const moved = priority !== this.cursor.priority || id !== this.cursor.id;
    if (!moved && units === 0) {
      this.restart();
      return 'busy';
    }
    this.cursor = { priority, id };
    if (performance.now() - this.#startedAt > PASS_MS) this.restart();
    return 'again';
  }
}

function inBounds(rows: number): number {
  return Math.min(ROWS.max, Math.max(ROWS.min, Math.ceil(rows)));
}

/**
 * How long a worker rests for each row of others that it has skipped: about ten times as long as the server takes to read one.
 */
const REST_MS = 0.005;

/**
 * Passes of a worker that takes only some kinds or priorities. It skips the jobs of other workers, a bounded number at each poll,
 * and rests after each poll. So a backlog of theirs costs it at most a tenth of a processor of the server, however large it is.
 */
export class PickyScan extends Scan {
  #passStartedAt = performance.now();
  #foundAt: number | undefined;
  #wasBusy = false;

  override read(answer: ClaimAnswer): ScanVerdict {
    const units = countUnits(answer);
    if (answer.seen >= this.rows) this.rows = Math.min(ROWS.max, this.rows * 2);
    this.due = answer.due ?? Infinity;
    this.#wasBusy ||= answer.busy === true;
    if (units > 0) this.#foundAt ??= performance.now();
    const verdict = answer.seen === 0 ? this.#endPass() : this.#goOn(answer, units);
    this.restMs = verdict === 'again' && units === 0 ? answer.seen * REST_MS : 0;
    this.quiet = verdict === 'again' ? undefined : verdict;
    return verdict;
  }

  override restart(): void {
    super.restart();
    this.#passStartedAt = performance.now();
    this.#foundAt = undefined;
    this.#wasBusy = false;
  }

  #endPass(): ScanVerdict {
    const verdict = this.#foundAt !== undefined ? 'again' : this.#wasBusy ? 'busy' : 'empty';
    this.restart();
    return verdict;
  }

  #goOn(answer: ClaimAnswer, units: number): ScanVerdict {
    const { priority, id } = answer.last ?? this.cursor;
    const hasMoved = priority !== this.cursor.priority || id !== this.cursor.id;
    if (!hasMoved && units === 0) {
      this.restart();
      return 'busy';
    }
    this.cursor = { priority, id };
    // A more urgent job waits at most twice as long as the scan took to come here.
    const foundAt = this.#foundAt;
    if (foundAt !== undefined && performance.now() - foundAt > Math.max(PASS_MS, foundAt - this.#passStartedAt)) {
      this.restart();
    }
    return 'again';
  }
}
