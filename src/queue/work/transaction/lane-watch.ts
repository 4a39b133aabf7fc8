import { type Loop, startLoop } from '../../../base/loop.ts';
import {
  type AnswerOptions,
  type Backend,
  idleSince,
  type PostgresEngine,
  type Session,
} from '../../../engine/postgres/index.ts';

export interface LaneWatchOptions {
  readonly engine: PostgresEngine;
  /** How long a statement may be under way before it is checked, and the time between two checks; milliseconds. */
  readonly deadlineMs: number;
  /** The connections, each with its server process, if that is known. */
  readonly lanes: () => Iterable<readonly [Session, Backend | undefined]>;
  /** Other work for each check. */
  readonly settle: () => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * Finds dead connections under statements of handlers. Such a statement has no time limit, so no deadline shows that its
 * connection is dead. The server does: if its process was idle at two checks, while a statement was under way all the time,
 * the statement will never arrive there.
 */
export class LaneWatch {
  readonly #options: LaneWatchOptions;
  readonly #answer: AnswerOptions;
  readonly #loop: Loop;
  /** When each server process that should be working was found idle. */
  #resting = new Map<Session, string>();

  constructor(options: LaneWatchOptions) {
    this.#options = options;
    this.#answer = { deadlineMs: options.deadlineMs };
    this.#loop = startLoop({
      name: 'queue.lanes',
      run: () => this.#look(),
      onError: options.onError,
      unref: true,
    });
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #look(): Promise<number> {
    const { engine, deadlineMs, lanes, settle } = this.#options;
    await settle();
    const asked = new Map<Session, Backend>();
    for (const [session, backend] of lanes()) if (backend !== undefined && session.isBusy) asked.set(session, backend);
    const resting = new Map<Session, string>();
    const moves = asked.size === 0 ? new Map() : await idleSince(engine, [...asked.values()], this.#answer);
    for (const [session, { pid }] of asked) {
      const since = moves.get(pid);
      if (since === undefined || !session.isBusy) continue;
      if (this.#resting.get(session) === since) session.giveUp(deadlineMs);
      else resting.set(session, since);
    }
    this.#resting = resting;
    return deadlineMs;
  }
}
