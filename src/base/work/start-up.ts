import { InvalidInput, NotSupported, Stopped } from '../errors.ts';
import { sleep } from '../time/clock.ts';

export interface StartUpOptions {
  /** The name of the thing that starts, for messages: `the worker`. */
  readonly what: string;
  /** Ends the tries. */
  readonly signal: AbortSignal;
  /** Called when a try failed and another one will follow. */
  readonly onError: (error: unknown) => void;
}

/** The longest pause between two tries. */
const LONGEST_MS = 5000;

/**
 * Starts a worker that runs as long as its process. A database may be unreachable, read-only or out of connections, or its role,
 * its name or its schema may not exist yet. Such a state ends, but nothing starts the process again when it does. So the start is
 * tried until it succeeds.
 * @throws Stopped  once the signal is aborted
 * @throws InvalidInput, NotSupported: an error that the program itself has to correct, at once
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

/** Why a worker has not started yet, by the error of the last try. */
export function notStarted(error: unknown): string {
  return error instanceof Error ? `it has not started yet: ${error.message}` : 'it has not started yet';
}

function isLasting(error: unknown): boolean {
  return LASTING.some((kind) => error instanceof kind);
}

const LASTING = [InvalidInput, NotSupported, Stopped];
