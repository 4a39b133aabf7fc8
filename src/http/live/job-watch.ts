import type { Logger } from '../../base/logger.ts';
import { after } from '../../base/time/clock.ts';
import type { JobStanding, QueueOverview } from '../../queue/index.ts';
import { HttpRefusal } from '../protocol/failure.ts';

/** The pause between two reads: the longest delay until a step of a job is noticed. */
const LOOK_MS = 250;
/** One statement reads all watched jobs; if it is slow, the pause after it is this many times as long. */
const REST = 4;
/** The most jobs that one process watches at once. */
const MOST = 1000;

type Listener = (standing: JobStanding | undefined) => void;

/** Whether the job changes only if a caller changes it. */
export function isSettled({ status }: JobStanding): boolean {
  return status !== 'new' && status !== 'in-progress';
}

/**
 * Reads the jobs that callers wait for, all of them in one statement, as long as there are any. The database does not notify of
 * the settlement of a job: that would cost every job, and callers wait for few.
 */
export class JobWatch {
  readonly #store: QueueOverview;
  readonly #logger: Logger;
  readonly #watched = new Map<string, Set<Listener>>();
  #isLooking = false;
  #cancel: (() => void) | undefined;

  constructor(store: QueueOverview, logger: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /**
   * Calls back with the state of a job, at once and then after every read; undefined: the job no longer exists.
   * @returns a function that ends it
   * @throws HttpRefusal  busy
   */
  watch(id: string, listener: Listener): () => void {
    const listeners = this.#watched.get(id) ?? new Set();
    if (this.#watched.size >= MOST && listeners.size === 0) {
      throw new HttpRefusal('rate_limited', `this server already waits for ${MOST} jobs, which is its limit`, {
        'retry-after': '5',
      });
    }
    this.#watched.set(id, listeners);
    listeners.add(listener);
    this.#lookIn(0);
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#watched.get(id) === listeners) this.#watched.delete(id);
    };
  }

  /** Waits until the job is settled or gone, the time is over, or no caller waits any more. @throws HttpRefusal  busy */
  settled(id: string, ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      let stop = (): void => {};
      const end = (): void => {
        stop();
        stopWaiting();
        signal.removeEventListener('abort', end);
        resolve();
      };
      const stopWaiting = after(ms, end, { unref: true });
      signal.addEventListener('abort', end, { once: true });
      try {
        stop = this.watch(id, (standing) => {
          if (standing === undefined || isSettled(standing)) end();
        });
      } catch (error) {
        end();
        reject(error);
      }
    });
  }

  /** Ends all waits, as if the jobs no longer existed. */
  stop(): void {
    this.#cancel?.();
    for (const listeners of this.#watched.values()) for (const tell of listeners) tell(undefined);
    this.#watched.clear();
  }

  #lookIn(ms: number): void {
    if (this.#isLooking) return;
    this.#cancel?.();
    this.#cancel = after(ms, () => void this.#look(), { unref: true });
  }

  async #look(): Promise<void> {
    const ids = [...this.#watched.keys()];
    if (ids.length === 0 || this.#isLooking) return;
    this.#isLooking = true;
    const begun = performance.now();
    try {
      const standings = new Map((await this.#store.standing(ids)).map((one) => [one.id, one]));
      for (const id of ids) for (const tell of this.#watched.get(id) ?? []) tell(standings.get(id));
    } catch (error) {
      // Callers continue to wait until their own time is over.
      this.#logger.warn({ err: error }, 'http: the statuses of awaited jobs could not be read');
    }
    this.#isLooking = false;
    this.#lookIn(Math.max(LOOK_MS, (performance.now() - begun) * REST));
  }
}
