import type { Logger } from '../logger.ts';

/** A failure that repeats. */
interface RepeatingFailure {
  readonly since: Date;
  failures: number;
  lastMs: number;
  /** When to write the next warning. */
  dueMs: number;
  pauseMs: number;
}

const FIRST_PAUSE_MS = 10_000;
const LONGEST_PAUSE_MS = 600_000;
/** After this long without it, the same failure counts as a new one. Loops try again within seconds. */
const FORGET_MS = 120_000;
/** The most failures to remember: messages may contain a part that differs each time, such as a name. */
const MOST = 100;

/**
 * Warns of a failure that is tried again: at once, then after 10 s, 20 s, 40 s and so on up to ten minutes, with the time since
 * it first failed. If a message differs in more than its numbers, it is another failure. So a program that cannot reach its
 * database is never silent, and does not fill the log.
 */
export class FailureLog {
  readonly #logger: Logger;
  readonly #what: string;
  readonly #repeated = new Map<string, RepeatingFailure>();

  /** @param what  the words before the message: `queue worker` */
  constructor(logger: Logger, what: string) {
    this.#logger = logger;
    this.#what = what;
  }

  /** Called when it has failed, and will be tried again. */
  warn(error: unknown, fields: object = {}): void {
    const nowMs = performance.now();
    const known = this.#known(String(error).replace(/\d+/g, '0'), nowMs);
    known.failures += 1;
    known.lastMs = nowMs;
    if (nowMs < known.dueMs) return;
    known.dueMs = nowMs + known.pauseMs;
    known.pauseMs = Math.min(known.pauseMs * 2, LONGEST_PAUSE_MS);
    const { failures, since } = known;
    const again = failures === 1 ? '' : `; it has failed ${failures} times since ${since.toISOString()}`;
    this.#logger.warn({ err: error, ...fields, failures, since }, `${this.#what}: it keeps trying${again}`);
  }

  #known(text: string, nowMs: number): RepeatingFailure {
    const known = this.#repeated.get(text);
    if (known !== undefined && nowMs - known.lastMs < FORGET_MS) return known;
    if (this.#repeated.size >= MOST) this.#repeated.clear();
    const fresh = { since: new Date(), failures: 0, lastMs: nowMs, dueMs: nowMs, pauseMs: FIRST_PAUSE_MS };
    this.#repeated.set(text, fresh);
    return fresh;
  }
}
