import { BUSY_AGAIN_MS, BUSY_MS } from './deadlines.ts';

/** The part of the worker that its switch uses. */
export interface NotifySwitchOptions {
  /** Writes the flag of a worker, for producers. */
  readonly write: (worker: number, isOn: boolean) => Promise<void>;
  /** Makes the worker poll once more. */
  readonly wake: () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Decides whether producers should notify a worker. Under load no worker needs to be woken, and NOTIFY is not free: it serialises
 * every commit that sends one. If a worker sleeps without notifications, its jobs begin late; if a busy worker gets
 * notifications, that only costs more. So "on" is written only when every earlier "off" has its answer, and the heartbeats repeat
 * it while the switch is on. Only the switch writes "off", and repeats it every few seconds.
 */
export class NotifySwitch {
  readonly #options: NotifySwitchOptions;
  #isOn = true;
  /** The writes of `false`: two writes on two connections may be carried out in any order. */
  #turnedOff: Promise<unknown> = Promise.resolve();
  #turnedOffAt = -Infinity;
  #busySince: number | undefined;

  constructor(options: NotifySwitchOptions) {
    this.#options = options;
  }

  get isOn(): boolean {
    return this.#isOn;
  }

  /** Called when the worker has a new id, whose flag is on. */
  reset(): void {
    this.#isOn = true;
    this.#turnedOff = Promise.resolve();
  }

  /**
   * Called when a poll has left work.
   * @returns true if polls have done so for long enough: producers need not notify, and this has to be written
   */
  mayTurnOff(): boolean {
    const now = performance.now();
    this.#busySince ??= now;
    return now - this.#busySince > BUSY_MS && (this.#isOn || now - this.#turnedOffAt > BUSY_AGAIN_MS);
  }

  turnOff(worker: number): void {
    this.#isOn = false;
    this.#turnedOffAt = performance.now();
    // If the write fails, it may have been carried out anyway. So the flag counts as off, and is turned on before the worker
    // sleeps.
    const write = this.#options.write(worker, false).catch((error: unknown) => this.#options.onError(error));
    this.#turnedOff = Promise.all([this.#turnedOff, write]);
  }

  /**
   * Called when a poll has left nothing.
   * @returns whether the worker may sleep: the flag must be committed first, then one more poll must follow
   */
  noteIdle(worker: number): boolean {
    this.#busySince = undefined;
    if (this.#isOn) return true;
    this.#isOn = true;
    this.#turnedOff
      .then(() => this.#options.write(worker, true))
      .then(
        () => this.#options.wake(),
        (error: unknown) => {
          this.#isOn = false;
          this.#options.onError(error);
        },
      );
    return false;
  }
}
