import { InvalidInput, NotSupported, Stopped } from '../errors.ts';
import { sleep } from '../time/clock.ts';

export interface StartUpOptions {
  /** Says in messages what is to begin: `the worker`. */
  readonly what: string;
  /** Ends the trying. */
  readonly signal: AbortSignal;
  /** A try failed, and there will be another. */
  readonly onError: (error: unknown) => void;
}

/** The longest wait between two tries. */
const LONGEST_MS = 5000;

/**
 * Begins what is to run for as long as its process. A database may be away, read-only or out of connections, or have yet to get its
 * role, its name or its schema. That ends, and nothing starts the process again when it does: so it is tried until it succeeds.
 * @throws Stopped  once the signal is aborted
 * @throws InvalidInput, NotSupported: what the program itself has to change, at once
 */
export async function startWithRetries<T>(
  start: () => Promise<T>,
  { what, signal, onError }: StartUpOptions,
): Promise<T> {
  for (let failures = 1; !signal.aborted; failures += 1) {
    try {
      return await start();
    } catch (error) {
      if (isLasting(error)) throw error;
      onError(error);
      await sleep(Math.min(100 * 2 ** failures, LONGEST_MS), signal);
    }
  }
  throw new Stopped(`${what} was stopped before it had started`);
}

/** Why something has not started yet, by the error of the last try. */
export function notStarted(error: unknown): string {
  return error instanceof Error ? `it has not started yet: ${error.message}` : 'it has not started yet';
}

function isLasting(error: unknown): boolean {
  return LASTING.some((kind) => error instanceof kind);
}

const LASTING = [InvalidInput, NotSupported, Stopped];
