import { setMaxListeners } from 'node:events';
import { StoreUnavailable, TimedOut } from '../base/errors.ts';
import { after } from '../base/time/clock.ts';
import { formatDuration } from '../base/time/duration.ts';

/** The party that has to make the next progress. */
export type ExpectedParty = 'store' | 'source' | 'reader' | 'neither';

export interface TransferTimeoutOptions {
  /** The name of the transfer in messages: `writing "doc-1"`. */
  readonly what: string;
  readonly totalMs: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * The time limits of one transfer. Its signal is aborted when the caller's is, when the time is over, and when the expected
 * party makes no progress for too long. `wait` ends then, even if the work hangs.
 */
export class TransferTimeout {
  readonly #abort = new AbortController();
  readonly #what: string;
  readonly #outer: AbortSignal | undefined;
  readonly #waiting = new Set<(reason: unknown) => void>();
  readonly #cancelTotal: () => void;
  #idle: NodeJS.Timeout | undefined;
  #idleMs = 0;
  #awaited: ExpectedParty = 'neither';

  constructor({ what, totalMs, signal }: TransferTimeoutOptions) {
    this.#what = what;
    this.#outer = signal;
    setMaxListeners(0, this.#abort.signal);
    this.#abort.signal.addEventListener('abort', () => this.#end());
    this.#cancelTotal = after(totalMs, () => {
      const limit = formatDuration(totalMs);
      this.#late(
        this.#awaited === 'reader'
          ? `its reader did not take all of it within ${limit}`
          : `was not done within ${limit}`,
      );
    });
    if (signal?.aborted) this.#onOuter();
    signal?.addEventListener('abort', this.#onOuter, { once: true });
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Whether the caller has aborted the transfer: then its failure says nothing about the store. */
  get wasGivenUp(): boolean {
    return this.#outer?.aborted === true && this.signal.aborted && this.signal.reason === this.#outer.reason;
  }

  /** From now on, this party has to make progress within `ms`. */
  expect(awaited: ExpectedParty, ms: number): void {
    this.#awaited = awaited;
    if (this.#idleMs === ms && this.#idle !== undefined) {
      this.#idle.refresh();
      return;
    }
    clearTimeout(this.#idle);
    this.#idleMs = ms;
    this.#idle = ms === Infinity ? undefined : setTimeout(() => this.#onIdle(), ms);
  }

  /**
   * Waits for one piece of work of the store, which has to end within `ms`. Any number of them may be under way, whatever `expect`
   * says: while parts of an upload are sent, the source is read.
   */
  async within<T>(ms: number, work: Promise<T>): Promise<T> {
    const timer = setTimeout(
      () => this.#abort.abort(new StoreUnavailable(`${this.#what}: ${this.#gaveNothing('the store', ms)}`)),
      ms,
    );
    try {
      return await work;
    } finally {
      clearTimeout(timer);
    }
  }

  /** Waits for work until the transfer is aborted; the result of the work is then ignored. */
  wait<T>(work: Promise<T>): Promise<T> {
    if (this.signal.aborted) {
      work.catch(() => {});
      return Promise.reject(this.signal.reason);
    }
    return new Promise<T>((resolve, reject) => {
      this.#waiting.add(reject);
      work.then(resolve, reject).finally(() => this.#waiting.delete(reject));
    });
  }

  /** Stops the clocks of the transfer. */
  stop(): void {
    this.#outer?.removeEventListener('abort', this.#onOuter);
    this.#cancelTotal();
    clearTimeout(this.#idle);
    this.#idle = undefined;
  }

  [Symbol.dispose](): void {
    this.stop();
  }

  readonly #onOuter = (): void => this.#abort.abort(this.#outer?.reason);

  #onIdle(): void {
    if (this.#awaited === 'source') this.#late(this.#gaveNothing('its source', this.#idleMs));
    if (this.#awaited === 'store') this.#late(this.#gaveNothing('the store', this.#idleMs));
  }

  #gaveNothing(who: string, ms: number): string {
    return `${who} gave nothing for ${formatDuration(ms)}`;
  }

  /** A party other than the store and its network that is late is none of their failures. */
  #late(why: string): void {
    const message = `${this.#what}: ${why}`;
    const isOther = this.#awaited === 'source' || this.#awaited === 'reader';
    this.#abort.abort(isOther ? new TimedOut(message) : new StoreUnavailable(message));
  }

  #end(): void {
    this.stop();
    for (const reject of this.#waiting) reject(this.signal.reason);
    this.#waiting.clear();
  }
}
