import { ConnectionFailed } from '../../base/errors.ts';
import { now } from '../../base/time/clock.ts';
import type { PostgresEngine, Session } from '../../engine/postgres/index.ts';
import type { CallOptions } from '../store.ts';

// How long to wait for a connection of the pool. Handlers may hold all of them while they wait for a lock whose holder waits
// for a connection.
const PATIENCE_MS = 50;

/**
 * Runs one statement through `send` with a time limit, for the connection and for the answer. When the time is over or the
 * signal is aborted, the connection is closed and the outcome is unknown.
 * @throws ConnectionFailed, and whatever `send` throws
 */
export async function callWithin<T>(
  engine: PostgresEngine,
  what: string,
  { timeoutMs, isUrgent = false, signal }: CallOptions,
  send: (session: Session) => Promise<T>,
): Promise<T> {
  const limit = new Limit(timeoutMs, what, signal);
  try {
    const { session, done } = await checkOut(engine, isUrgent, limit);
    let isClean = false;
    try {
      const result = await limit.race(send(session));
      isClean = true;
      return result;
    } catch (error) {
      isClean = !limit.isOver;
      throw error;
    } finally {
      session.release(!isClean);
      done();
    }
  } finally {
    limit.end();
  }
}

interface CheckedOut {
  readonly session: Session;
  readonly done: () => void;
}

const NOTHING = (): void => {};

/**
 * Takes a connection from the pool; or, if the pool has none for a while, from the reserved connections. Only one call at a
 * time does that: the other reserved connection is for renewals, which must not queue behind many calls.
 */
async function checkOut(engine: PostgresEngine, isUrgent: boolean, limit: Limit): Promise<CheckedOut> {
  if (isUrgent) return { session: await limit.take(engine.connectReserved()), done: NOTHING };
  const own = engine.connect();
  try {
    for (;;) {
      const session = await limit.raceOrLate(own);
      if (session !== undefined) return { session, done: NOTHING };
      if (!usingReserved.has(engine)) return await useReserved(engine, own, limit);
    }
  } catch (error) {
    returnWhenReady(own);
    throw error;
  }
}

/** Engines on which a call uses a reserved connection now. */
const usingReserved = new WeakSet<PostgresEngine>();

async function useReserved(engine: PostgresEngine, own: Promise<Session>, limit: Limit): Promise<CheckedOut> {
  usingReserved.add(engine);
  const done = (): void => void usingReserved.delete(engine);
  try {
    const session = await limit.take(engine.connectReserved());
    returnWhenReady(own);
    return { session, done };
  } catch (error) {
    done();
    throw error;
  }
}

/** Returns a connection that is not needed any more as soon as it is open. */
function returnWhenReady(own: Promise<Session>): void {
  own.then(
    (session) => session.release(),
    () => {},
  );
}

/** The time limit of one call. It has one timer: a second one cost a tenth of the time of a call. */
class Limit {
  readonly #what: string;
  readonly #signal: AbortSignal | undefined;
  readonly #dueAt: number;
  #timer: NodeJS.Timeout;
  #over: Error | undefined;
  #fail: ((error: Error) => void) | undefined;
  #late: (() => void) | undefined;

  constructor(timeoutMs: number, what: string, signal: AbortSignal | undefined) {
    this.#what = what;
    this.#signal = signal;
    this.#dueAt = now() + timeoutMs;
    this.#timer = setTimeout(this.#tick, Math.min(timeoutMs, PATIENCE_MS));
    signal?.addEventListener('abort', this.#abort, { once: true });
    if (signal?.aborted) this.#abort();
  }

  get isOver(): boolean {
    return this.#over !== undefined;
  }

  /** Call it for one promise at a time. Promise.race takes five times as long. */
  race<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#fail = reject;
      work.then(resolve, reject);
      if (this.#over !== undefined) reject(this.#over);
    });
  }

  /** Undefined when the pool takes too long. A pool with a free connection, or room for a new one, is quicker than that. */
  raceOrLate(own: Promise<Session>): Promise<Session | undefined> {
    const late = new Promise<Session | undefined>((resolve, reject) => {
      this.#late = () => resolve(undefined);
      own.then(resolve, reject);
    });
    return this.race(late);
  }

  /** Waits for a connection; one that comes too late goes back to the pool. */
  async take(own: Promise<Session>): Promise<Session> {
    try {
      return await this.race(own);
    } catch (error) {
      returnWhenReady(own);
      throw error;
    }
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener('abort', this.#abort);
  }

  readonly #tick = (): void => {
    const leftMs = this.#dueAt - now();
    if (leftMs <= 0) return this.#stop('came in time');
    this.#late?.();
    this.#late = undefined;
    this.#timer = setTimeout(this.#tick, Math.ceil(Math.min(leftMs, PATIENCE_MS)));
  };

  readonly #abort = (): void => this.#stop('was waited for any longer');

  #stop(why: string): void {
    this.#over = new ConnectionFailed(`no answer to "${this.#what}" ${why}; it may or may not have been carried out`);
    this.#fail?.(this.#over);
  }
}
