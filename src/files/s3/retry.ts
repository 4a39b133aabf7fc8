import { StoreUnavailable } from '../../base/errors.ts';
import { sleep } from '../../base/time/clock.ts';

const TRIES = 4;

/** Repeats a call that failed for the moment, with growing pauses. Throws its last error. */
export async function withRetries<T>(signal: AbortSignal, run: (attempt: number) => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await run(attempt);
    } catch (error) {
      if (!(error instanceof StoreUnavailable) || attempt === TRIES || signal.aborted) throw error;
      await sleep(50 * 2 ** attempt * (0.5 + Math.random() / 2), signal);
    }
  }
}
