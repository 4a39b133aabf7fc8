import { Stopped } from '../../base/errors.ts';
import { within } from '../../base/time/clock.ts';
import type { ClientLike, PoolLike } from './driver.ts';
import type { ResolvedOptions } from './options.ts';
import { type AnswerOptions, checkOut, Session } from './session/session.ts';
import { destroySocket } from './session/socket.ts';
import { SuspectConnections } from './session/suspect-connections.ts';
import { openSource, type Source } from './source.ts';

const UNASKED =
  'postgres() was given no URL: it uses a temporary Postgres, whose data is removed when the engine stops; ' +
  'postgres.temporary() says that this is meant';

/** Enough to open a connection: a handshake of several round trips, and a process that the server has to start. */
const OPENING_MS = 5_000;

/** The connections of an engine: its pool, two reserved ones, and a record of those in use. */
export class Connections {
  /** True: no connection is given out any more. */
  isStopping = false;
  readonly #given: string | PoolLike | undefined;
  readonly #options: ResolvedOptions;
  readonly #isUnasked: boolean;
  readonly #sessions = new Set<Session>();
  readonly #suspects = new SuspectConnections();
  #source: Promise<Source> | undefined;
  #whenIdle: (() => void) | undefined;
  #waiting = 0;

  /** @param isUnasked  true: the database is temporary because the caller passed no URL */
  constructor(given: string | PoolLike | undefined, options: ResolvedOptions, isUnasked: boolean) {
    this.#given = given;
    this.#options = options;
    this.#isUnasked = isUnasked;
  }

  async checkOut(from: 'pool' | 'reserved', options?: AnswerOptions): Promise<Session> {
    this.refuseIfStopping();
    this.#waiting += 1;
    try {
      const client = await this.#takeClient(await this.open(), from, options?.deadlineMs);
      const session = new Session(client, this.#options, this.#onRelease);
      this.#sessions.add(session);
      return session;
    } finally {
      this.#waiting -= 1;
      this.#notifyIfIdle();
    }
  }

  /** @throws Stopped */
  refuseIfStopping(): void {
    if (this.isStopping) throw new Stopped('the engine has been stopped; make another one with postgres()');
  }

  /** Resolves when no connection is in use, after `stopTimeoutMs` at the latest. */
  async whenIdle(): Promise<void> {
    if (this.#waiting + this.#sessions.size === 0) {
      return;
    }
    const idle = new Promise<void>((resolve) => {
      this.#whenIdle = resolve;
    });
    await within(this.#options.stopTimeoutMs, idle);
  }

  /** Breaks off all running statements, and closes every connection opened here. */
  async close(): Promise<void> {
    for (const session of this.#sessions) {
      session.release(true);
    }
    // A source that never opened has nothing to close, and its callers have seen its failure.
    const source = await this.#source?.catch(() => undefined);
    await source?.close();
  }

  /** The source of connections, which the first call opens. */
  open(): Promise<Source> {
    if (this.#source === undefined && this.#isUnasked) this.#options.logger.warn({}, UNASKED);
    this.#source ??= openSource(this.#given, this.#options).catch((error: unknown) => {
      // The next call tries again: an embedded server may have found its port taken.
      this.#source = undefined;
      throw error;
    });
    return this.#source;
  }

  async #takeClient(source: Source, from: 'pool' | 'reserved', givenMs: number | undefined): Promise<ClientLike> {
    const deadlineMs = givenMs === undefined ? undefined : Math.max(givenMs, OPENING_MS);
    for (;;) {
      const client = await checkOut(source[from], { deadlineMs }, () => source.dropOpening(deadlineMs ?? 0));
      if (!this.#suspects.isSuspect(client)) return client;
      client.on('error', () => {});
      destroySocket(client);
      client.release(true);
    }
  }

  readonly #onRelease = (session: Session): void => {
    this.#sessions.delete(session);
    if (session.silentMs !== undefined) this.#suspects.markSilent(session.silentMs);
    else if (!session.isBroken) this.#suspects.markAlive(session.client);
    this.#notifyIfIdle();
  };

  #notifyIfIdle(): void {
    if (this.#waiting + this.#sessions.size === 0) {
      this.#whenIdle?.();
    }
  }
}
