import { setMaxListeners } from 'node:events';
import { Stopped } from './errors.ts';
import { type Backoff, delay } from './time/backoff.ts';
import { after } from './time/clock.ts';

export interface LoopOptions {
  /** The name of the loop in messages: `queue.claim`. */
  readonly name: string;
  /**
   * One turn. Returns how many milliseconds to rest before the next turn; 0 or `'again'` means at once, Infinity means until
   * woken. stop() aborts the signal; a turn should then end soon, and may do so by throwing the reason.
   */
  readonly run: (signal: AbortSignal) => Promise<number | 'again'>;
  /**
   * Called when a turn has failed, now `failures` times in a row. The loop goes on, after a pause that grows with each failure.
   */
  readonly onError: (error: unknown, failures: number) => void;
  /** The pause after a failed turn. Default: exponential from 100 ms to 5 s. */
  readonly backoff?: Backoff | undefined;
  /** True: the process may exit while the loop rests. Default false. */
  readonly unref?: boolean | undefined;
}

/** A loop that runs in the background: first turn at once, never two turns at a time. */
export interface Loop extends AsyncDisposable {
  /** The error of the last turn; undefined if it succeeded. */
  readonly problem: string | undefined;
  /**
   * Ends the rest now. During a turn it makes another turn follow at once, so that no wake-up is lost, however late in the turn
   * it comes. It does not shorten the pause after a failed turn; otherwise a busy queue would hammer a broken database.
   */
  wake(): void;
  /**
   * Stops after the turn that is under way and waits for its end. Safe to call again: all calls resolve together. Never rejects;
   * leaves no timer. Do not await it inside the turn: the turn would wait for itself.
   */
  stop(): Promise<void>;
}

const BACKOFF: Backoff = { kind: 'exponential', min: 100, max: 5000, factor: 2, jitter: 0.5 };

/** Starts a loop. All pollers and keepers of Pawl are such loops. */
export function startLoop(options: LoopOptions): Loop {
  return new BackgroundLoop(options);
}

class BackgroundLoop implements Loop {
  readonly #options: LoopOptions;
  readonly #abort = new AbortController();
  readonly #ended: Promise<void>;
  #isWoken = false;
  #failures = 0;
  #failure: unknown;
  /** Ends the current rest. */
  #endRest: (() => void) | undefined;

  constructor(options: LoopOptions) {
    this.#options = options;
    // Each turn may wait in many places at once, and each wait has a listener of its own.
    setMaxListeners(0, this.#abort.signal);
    this.#ended = this.#cycle();
  }

  get problem(): string | undefined {
    if (this.#failures === 0) return undefined;
    return this.#failure instanceof Error ? this.#failure.message : String(this.#failure);
  }

  wake(): void {
    this.#isWoken = true;
    if (this.#failures === 0) this.#endRest?.();
  }

  stop(): Promise<void> {
    this.#abort.abort(new Stopped(`the loop "${this.#options.name}" was stopped`));
    this.#endRest?.();
    return this.#ended;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #cycle(): Promise<void> {
    const { signal } = this.#abort;
    // The caller of startLoop has the loop before its first turn begins.
    await Promise.resolve();
    while (!signal.aborted) {
      this.#isWoken = false;
      const restMs = await this.#turn(signal);
      if (!signal.aborted) await this.#rest(restMs);
    }
  }

  /** One turn. @returns how long to rest, failed or not */
  async #turn(signal: AbortSignal): Promise<number> {
    try {
      const result = await this.#options.run(signal);
      const restMs = result === 'again' ? 0 : result;
      if (Number.isNaN(restMs)) throw new TypeError(`the pause of the loop "${this.#options.name}" is NaN ms`);
      this.#failures = 0;
      return restMs;
    } catch (error) {
      if (signal.aborted && error === signal.reason) return 0;
      this.#failures++;
      this.#failure = error;
      this.#report(error);
      return delay(this.#options.backoff ?? BACKOFF, this.#failures, Math.random());
    }
  }

  #rest(ms: number): Promise<void> {
    const isDue = ms <= 0 || (this.#isWoken && this.#failures === 0);
    return new Promise((resolve) => {
      const end = (): void => {
        this.#endRest = undefined;
        cancel();
        resolve();
      };
      // Even if the next turn is due at once, the rest of the process gets its turn first.
      const cancel = isDue ? soon(end) : after(ms, end, { unref: this.#options.unref ?? false });
      this.#endRest = end;
    });
  }

  #report(error: unknown): void {
    try {
      this.#options.onError(error, this.#failures);
    } catch (second) {
      // The loop keeps leases alive and work moving, so a broken reporter must not end it.
      process.emitWarning(`onError of the loop "${this.#options.name}" failed: ${String(second)}`, 'PawlLoopWarning');
    }
  }
}

function soon(run: () => void): () => void {
  const immediate = setImmediate(run);
  return () => clearImmediate(immediate);
}
