import { setTimeout as sleep } from 'node:timers/promises';
import { LockNotAvailable } from '../../../base/errors.ts';
import { type PostgresEngine, type Statement, statement } from '../../../engine/postgres/index.ts';

/** The statements of callers without the declaration of a queue, in one transaction. */
export const ENQUEUE: Statement = statement('queue.enqueue_by_hand', 'select pawl.enqueue($1::jsonb) as answer');
export const BATCH_JOIN: Statement = statement('queue.batch_join', 'select pawl.queue_batch_join($1::bigint)');
export const BATCH_MEMBERS: Statement = statement(
  'queue.batch_members',
  'select pawl.queue_batch_members($1::bigint, $2::jsonb)',
);
export const BATCH_MAKE: Statement = statement(
  'queue.batch_make',
  'select pawl.queue_batch_make($1::jsonb)::text as id',
);

const ADD_FLOW: Statement = statement('queue.add_flow', 'select pawl.queue_add_flow($1::json)::text as ids');
const BATCH_NEW: Statement = statement('queue.batch_new', 'select pawl.queue_batch_new($1::jsonb)::text as id');
const BATCH_SEAL: Statement = statement('queue.batch_seal', 'select pawl.queue_batch_seal($1::bigint)');
const BRIEFLY: Statement = statement(
  'queue.batch_seal_briefly',
  "select pg_catalog.set_config('lock_timeout', '50ms', true)",
);
const BATCH_PROGRESS: Statement = statement(
  'queue.batch_progress',
  'select pawl.queue_batch_progress($1::bigint) as progress',
);

const BATCHES: Statement = statement(
  'queue.batches',
  `
select w.id::text as id, pawl.queue_batch_progress(w.id) as progress from pawl.queue_watch w
where w.sort = 'batch' and ($1::text is null or w.queue = pawl.queue_id($1::text)) and ($2::bigint is null or w.id < $2::bigint)
order by w.id desc limit $3::int`,
);

/** The progress of a batch, in the form of the database. */
export interface BatchRow {
  readonly queue: string;
  readonly total: number;
  readonly outstanding: number;
  readonly errors: number;
  readonly cancelled: number;
  readonly sealedAt: string | null;
  readonly doneAt: string | null;
  readonly problem: string | null;
}

/** The statements of flows and batches. */
export class PostgresQueueFlows {
  readonly #engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** @param flow  see pawl.queue_add_flow() @returns the ids of its jobs */
  async add(flow: string, tx: unknown): Promise<string[]> {
    const row = await this.#one<{ ids: string }>(ADD_FLOW, flow, tx);
    return row.ids === '{}' ? [] : row.ids.slice(1, -1).split(',');
  }

  /** @returns its id */
  async newBatch(
    batch: { queue: string; callbacks: object; parent: string | undefined },
    tx: unknown,
  ): Promise<string> {
    return (await this.#one<{ id: string }>(BATCH_NEW, JSON.stringify(batch), tx)).id;
  }

  /**
   * Tries the latch of the batch again and again. If it waited, others that want to share the latch would wait behind it: a
   * transaction that adds to the batch and stays open would prevent the settlement of its jobs.
   * @throws NotFound
   */
  async seal(batch: string, signal?: AbortSignal): Promise<void> {
    while (!(await this.#trySeal(batch))) await sleep(25, undefined, signal === undefined ? {} : { signal });
  }

  async #trySeal(batch: string): Promise<boolean> {
    try {
      await this.#engine.transaction(
        async (tx) => {
          await tx.query(BRIEFLY);
          await tx.query(BATCH_SEAL, [batch]);
        },
        { isolation: 'read committed' },
      );
      return true;
    } catch (error) {
      if (error instanceof LockNotAvailable) return false;
      throw error;
    }
  }

  async progress(batch: string): Promise<BatchRow | undefined> {
    const [row] = await this.#engine.query<{ progress: BatchRow | null }>(BATCH_PROGRESS, [batch]);
    return row?.progress ?? undefined;
  }

  /** Newest first. @throws NotFound  no such queue */
  async batches(
    queue: string | null,
    before: string | null,
    limit: number,
  ): Promise<{ id: string; progress: BatchRow }[]> {
    return this.#engine.query<{ id: string; progress: BatchRow }>(BATCHES, [queue, before, limit]);
  }

  /** One call with one parameter, in the caller's transaction or its own. */
  async #one<Row>(sql: Statement, value: string, tx: unknown): Promise<Row> {
    const [row] =
      tx === undefined ? await this.#engine.decide<Row>(sql, [value]) : await this.#engine.callIn(tx, sql.text, value);
    if (row === undefined) throw new Error('the database returned no row where there is always one');
    return row as Row;
  }
}
