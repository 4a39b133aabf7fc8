import { BUSY_AGAIN_MS, BUSY_MS } from './deadlines.ts';

/** What a switch asks of the worker that it belongs to. */
export interface NotifySwitchOptions {
  /** Writes the flag of a worker, for producers. */
  readonly write: (worker: number, isOn: boolean) => Promise<void>;
  /** Has the worker poll once more. */
  readonly wake: () => void;
  readonly onError: (error: unknown) => void;
}

/**
 * Says whether producers should notify a worker. Under load no worker needs to be woken, and NOTIFY is not free: it serialises
 * every commit that sends one. A worker that sleeps without notifications begins its jobs late; one that is busy with them only costs
 * more. So "on" is written once each "off" before it has been answered, and again by the heartbeats that are sent while it is on. "Off" is
 * written by the switch alone, again every few seconds.
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

  /** The worker has a new id, whose flag is on. */
  reset(): void {
    this.#isOn = true;
    this.#turnedOff = Promise.resolve();
  }

  /** A poll has left work. @returns whether polls have done so for so long that no producer need notify, and that is to be written */
  mayTurnOff(): boolean {
    const now = performance.now();
    this.#busySince ??= now;
    return now - this.#busySince > BUSY_MS && (this.#isOn || now - this.#turnedOffAt > BUSY_AGAIN_MS);
  }

  turnOff(worker: number): void {
    this.#isOn = false;
    this.#turnedOffAt = performance.now();
    // Where it fails it may have been written: the flag counts as off, and is turned on before the worker sleeps.
    const write = this.#options.write(worker, false).catch((error: unknown) => this.#options.onError(error));
    this.#turnedOff = Promise.all([this.#turnedOff, write]);
  }

  /** A poll has left nothing. @returns whether the worker may sleep: first the flag, committed; then one more poll; only then sleep */
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
