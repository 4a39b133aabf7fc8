import { suspendedMs } from './suspension.ts';

/** A point in time on this machine. Only differences have a meaning, and only in this process. */
export interface Moment {
  /** The monotonic clock: it never jumps, but on some systems it stops while the machine is suspended. */
  readonly monotonicMs: number;
  /** How long that clock had stopped until then. */
  readonly suspendedMs: number;
}

export interface TimerOptions {
  /** True: the process may exit while only this timer is left. Default false. */
  readonly unref?: boolean;
}

/** Milliseconds of a clock that never jumps, from an arbitrary start. */
export function now(): number {
  return performance.now();
}

/** Now, for {@link waitedFor} and {@link ownedFor}. */
export function moment(): Moment {
  const monotonicMs = performance.now();
  return { monotonicMs, suspendedMs: suspendedMs(monotonicMs) };
}

/**
 * How many milliseconds have passed for a wait, by the monotonic clock alone: a change of the wall clock ends no wait, and a
 * process that slept with its machine waits on.
 */
export function waitedFor(since: Moment): number {
  return performance.now() - since.monotonicMs;
}

/**
 * How many milliseconds have passed for an owner, by the clock that says more: time of a suspended machine counts, because others
 * have seen it pass. A step of the wall clock counts only if it cannot be told from a suspension.
 */
export function ownedFor(since: Moment): number {
  const monotonicMs = performance.now();
  return monotonicMs - since.monotonicMs + suspendedMs(monotonicMs) - since.suspendedMs;
}

/** Node treats a longer delay as 1 ms. */
export const LONGEST_TIMER_MS: number = 2 ** 31 - 1;

/**
 * Calls `run` after `ms`, never early by the monotonic clock. Any length is allowed; Infinity never ends.
 * @returns a function that cancels it and leaves nothing behind
 */
export function after(ms: number, run: () => void, { unref = false }: TimerOptions = {}): () => void {
  const due = performance.now() + ms;
  let timer: NodeJS.Timeout | undefined;
  const arm = (): void => {
    const left = due - performance.now();
    if (timer !== undefined && left <= 0) return run();
    timer = setTimeout(arm, Math.min(Math.max(Math.ceil(left), 1), LONGEST_TIMER_MS));
    if (unref) timer.unref();
  };
  arm();
  return () => clearTimeout(timer);
}

/**
 * Waits. Resolves to true when the time has passed, to false as soon as the signal is aborted; never rejects.
 * Leaves neither a timer nor a listener behind. `sleep(Infinity, signal)` waits for the signal.
 */
export function sleep(ms: number, signal?: AbortSignal, options?: TimerOptions): Promise<boolean> {
  if (signal?.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const finish = (elapsed: boolean): void => {
      signal?.removeEventListener('abort', abort);
      cancel();
      resolve(elapsed);
    };
    const abort = (): void => finish(false);
    const cancel = after(ms, () => finish(true), options);
    signal?.addEventListener('abort', abort, { once: true });
  });
}

/**
 * Rejects with the signal's reason as soon as it aborts: to race with work that may not end when it is told to. Race it at once:
 * nothing else handles its rejection.
 */
export function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const tell = (): void => reject(signal.reason);
    if (signal.aborted) tell();
    else signal.addEventListener('abort', tell, { once: true });
  });
}

/** Waits for `work`, but no longer than `ms`. Resolves to whether it ended in time; leaves no timer behind. */
export async function within(ms: number, work: Promise<unknown>): Promise<boolean> {
  const over = new AbortController();
  try {
    return await Promise.race([work.then(() => true), sleep(ms, over.signal).then(() => false)]);
  } finally {
    over.abort();
  }
}
