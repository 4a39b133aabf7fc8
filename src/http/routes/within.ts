import { TimedOut } from '../../base/errors.ts';

/** A full comparison takes longer the more data there is. A caller over HTTP waits no longer than this; the command line does. */
export const COMPARE_MS = 60_000;

/** Runs slow work, and tells it to end when its time is over. @throws TimedOut  with these words */
export async function within<T>(ms: number, late: string, fn: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new TimedOut(late)), ms);
  try {
    return await fn(controller.signal);
  } finally {
    clearTimeout(timer);
  }
}
