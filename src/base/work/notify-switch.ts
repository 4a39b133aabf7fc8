import { BUSY_MS } from './deadlines.ts';

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
 * every commit that sends one.
 */
export class NotifySwitch {
  readonly #options: NotifySwitchOptions;
  #isOn = true;
  /** The last write of `false`: two writes on two connections may be carried out in any order. For that reason no heartbeat has the flag. */
  #turnedOff: Promise<void> = Promise.resolve();
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
  }

  /** A poll has left work. @returns whether polls have done so for so long that no producer need notify */
  mayTurnOff(): boolean {
    this.#busySince ??= performance.now();
    return this.#isOn && performance.now() - this.#busySince > BUSY_MS;
  }

  turnOff(worker: number): void {
    this.#isOn = false;
    this.#turnedOff = this.#options.write(worker, false).catch((error: unknown) => {
      // The next poll that leaves work tries again.
      this.#isOn = true;
      this.#options.onError(error);
    });
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
