import { suspendedMs } from './suspension.ts';

/** A point in time on this machine; only differences mean anything, and only in this process. */
export interface Moment {
  /** The monotonic clock: never jumps, but on some systems stands still while the machine is suspended. */
  readonly monotonicMs: number;
  /** For how long it had stood still until then. */
  readonly suspendedMs: number;
}

export interface TimerOptions {
  /** Let the process exit while nothing except this timer is left. Default false. */
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
 * How many milliseconds one has waited, by the monotonic clock alone: whatever is done to the wall clock ends no wait, and
 * a process that slept with its machine waits on.
 */
export function waitedFor(since: Moment): number {
  return performance.now() - since.monotonicMs;
}

/**
 * How many milliseconds one may have owned something, by the clock that says more: those of a suspended machine count, as
 * others have seen them pass. A step of the wall clock counts only where it cannot be told from a suspension.
 */
export function ownedFor(since: Moment): number {
  const monotonicMs = performance.now();
  return monotonicMs - since.monotonicMs + suspendedMs(monotonicMs) - since.suspendedMs;
}

// Node takes a longer delay for 1 ms.
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `run` after `ms`, never early by the monotonic clock; any length will do, Infinity never comes.
 * @returns cancels it; afterwards nothing is left of it
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

/** Rejects with the signal's reason as soon as that is aborted: to race with what may not end when it is told to. Race it at once: nothing else handles its rejection. */
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
