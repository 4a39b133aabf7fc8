import { after } from '../../base/time/clock.ts';

/** What one waiter is woken through. A call that comes while it does not wait is kept for when it does. */
export interface WakeUpHandle {
  /** Waits until called, until `ms` have passed, or until the signal is aborted. */
  wait(ms: number, signal: AbortSignal | undefined): Promise<void>;
  /** What the last call brought with it: the lock itself, granted meanwhile. */
  readonly token: bigint | undefined;
  stop(): void;
}

/** The waiters of this process. */
export class WakeUps {
  readonly #waiting = new Map<string, (token?: bigint) => void>();

  get size(): number {
    return this.#waiting.size;
  }

  /** Under a key of the waiter's choice, from now on. */
  expect(key: string): WakeUpHandle {
    let isCalled = false;
    let granted: bigint | undefined;
    let wake: (() => void) | undefined;
    const call = (token?: bigint): void => {
      isCalled = true;
      granted = token ?? granted;
      wake?.();
    };
    this.#waiting.set(key, call);
    return {
      get token() {
        return granted;
      },
      wait: (ms, signal) =>
        new Promise((resolve) => {
          const finish = (): void => {
            isCalled = false;
            wake = undefined;
            cancel();
            signal?.removeEventListener('abort', finish);
            resolve();
          };
          const cancel = after(ms, finish);
          wake = finish;
          signal?.addEventListener('abort', finish, { once: true });
          if (isCalled || signal?.aborted) finish();
        }),
      stop: () => {
        if (this.#waiting.get(key) === call) this.#waiting.delete(key);
      },
    };
  }

  wake(key: string, token?: bigint): void {
    this.#waiting.get(key)?.(token);
  }

  wakeAll(): void {
    for (const call of this.#waiting.values()) call();
  }
}
