import { setMaxListeners } from 'node:events';
import { type PawlError, StoreUnavailable, TimedOut } from '../base/errors.ts';
import { after } from '../base/time/clock.ts';
import { formatDuration } from '../base/time/duration.ts';

/** The party that has to make the next progress. */
export type ExpectedParty = 'store' | 'source' | 'neither';

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
    this.#cancelTotal = after(totalMs, () => this.#late(`was not done within ${formatDuration(totalMs)}`));
    if (signal?.aborted) this.#onOuter();
    signal?.addEventListener('abort', this.#onOuter, { once: true });
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
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
    if (this.#awaited === 'neither') return;
    this.#late(
      `${this.#awaited === 'source' ? 'its source' : 'the store'} gave nothing for ${formatDuration(this.#idleMs)}`,
    );
  }

  #late(why: string): void {
    const message = `${this.#what}: ${why}`;
    const reason: PawlError = this.#awaited === 'source' ? new TimedOut(message) : new StoreUnavailable(message);
    this.#abort.abort(reason);
  }

  #end(): void {
    this.stop();
    for (const reject of this.#waiting) reject(this.signal.reason);
    this.#waiting.clear();
  }
}
