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
  /** How long a statement may be on its way before it is asked for, and the time between two looks; milliseconds. */
  readonly deadlineMs: number;
  /** The connections, each with the process that serves it, where that is known. */
  readonly lanes: () => Iterable<readonly [Session, Backend | undefined]>;
  /** What else is to be done at each look. */
  readonly settle: () => Promise<void>;
  readonly onError: (error: unknown) => void;
}

/**
 * A handler's statement may take as long as it likes, so no deadline tells when the connection under it has gone dead. But the
 * server knows: a process that has done nothing between two looks, while a statement for it was under way all the time,
 * will never hear of it.
 */
export class LaneWatch {
  readonly #options: LaneWatchOptions;
  readonly #answer: AnswerOptions;
  readonly #loop: Loop;
  /** When each process that should be at work was found resting. */
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
