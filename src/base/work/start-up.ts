import { Conflict, InvalidInput, NotSupported, SchemaMismatch, Stopped } from '../errors.ts';
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
 * Begins what is to run for as long as its process. A database that is away, read-only or out of connections, or that is yet to get
 * its role or its name, is so for a while, and nobody starts the process again when that is over: so it is tried until it succeeds.
 * @throws Stopped  once the signal is aborted
 * @throws SchemaMismatch, Conflict, InvalidInput, NotSupported: what no waiting mends, at once
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

function isLasting(error: unknown): boolean {
  return LASTING.some((kind) => error instanceof kind);
}

const LASTING = [SchemaMismatch, Conflict, InvalidInput, NotSupported, Stopped];
