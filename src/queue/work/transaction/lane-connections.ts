import { DatabaseError } from '../../../base/errors.ts';
import { answerDeadline } from '../../../base/work/deadlines.ts';
import { type Backend, limitSilence, type Session } from '../../../engine/postgres/index.ts';
import type { PostgresQueueStore } from '../../postgres/store.ts';
import type { Lane } from './lane.ts';
import { RAISE_TOKENS } from './statements.ts';

/** "prepared statement does not exist" */
const IS_DEALLOCATED = '26000';

/** The connections of a worker's lanes, one each. */
export class LaneConnections {
  readonly #store: PostgresQueueStore;
  readonly #leaseMs: number;
  /** The connections, each with its server process, if that is known. */
  readonly #backends = new Map<Session, Backend | undefined>();
  #mayPrepare = true;

  constructor(store: PostgresQueueStore, leaseMs: number) {
    this.#store = store;
    this.#leaseMs = leaseMs;
  }

  get open(): Iterable<readonly [Session, Backend | undefined]> {
    return this.#backends;
  }

  async connect(): Promise<Lane> {
    const session = await this.#store.connect();
    try {
      const answer = { deadlineMs: answerDeadline(this.#leaseMs) };
      const backend = await limitSilence(session, this.#leaseMs, answer);
      await session.query(RAISE_TOKENS, [], answer);
      this.#backends.set(session, backend);
      // Behind a pooler the next transaction may have another server process.
      const takesBatches = backend !== undefined && session.takesBatches && this.#mayPrepare;
      const { spansNodes } = this.#store.engine;
      return { session, answer, takesBatches, isPooled: backend === undefined, spansNodes };
    } catch (error) {
      session.release(true);
      throw error;
    }
  }

  /** Closes a connection, since its settings and its lock must not get to another user of the pool. */
  close(session: Session): void {
    this.#backends.delete(session);
    session.release(true);
  }

  /**
   * Closes a connection after a failure, which leaves the state of its transaction unknown.
   * @returns its server process, which may not have noticed the failure, and keep the transaction with its jobs and keys
   */
  giveUp(session: Session, error: unknown): Backend | undefined {
    // A handler has deallocated all prepared statements, and may do so again.
    if (error instanceof DatabaseError && error.sqlState === IS_DEALLOCATED) this.#mayPrepare = false;
    const backend = session.isBroken ? this.#backends.get(session) : undefined;
    this.close(session);
    return backend;
  }

  closeAll(): void {
    for (const session of Array.from(this.#backends.keys())) session.release(true);
  }
}
