import { after } from '../../base/time/clock.ts';

/** Wakes one waiter. A wake-up that comes while it does not wait is kept for its next wait. */
export interface WakeUpHandle {
  /** Waits for a wake-up, for `ms`, or until the signal is aborted. */
  wait(ms: number, signal: AbortSignal | undefined): Promise<void>;
  /** The token that came with the last wake-up: the lock was granted in a direct hand-off. */
  readonly token: bigint | undefined;
  stop(): void;
}

/** The waiters of this process, by key. */
export class WakeUps {
  readonly #waiting = new Map<string, (token?: bigint) => void>();

  get size(): number {
    return this.#waiting.size;
  }

  /** Registers a waiter under a key of its choice. */
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
