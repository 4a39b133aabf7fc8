import { NotFound } from '../../base/errors.ts';
import { only, type PostgresEngine, statement, type Transaction } from '../../engine/postgres/index.ts';
import { answerDeadlineMs } from '../deadlines.ts';
import type { Reader } from './catalog.ts';
import { StaleDeclaration } from './stale-declaration.ts';

/** A change as the database returns it. */
export interface ChangeRow {
  readonly id: string;
  readonly at: string;
  readonly source: number;
  readonly op: 'insert' | 'update' | 'delete' | 'truncate';
  readonly key: string | null;
  readonly oldKey: string | null;
  readonly before: Readonly<Record<string, string | null>> | null;
  readonly after: Readonly<Record<string, string | null>> | null;
  readonly actor: string | null;
  readonly reason: string | null;
  readonly dbUser: string;
}

interface TakenBatch {
  /** False: another process has the line. */
  readonly mine: boolean;
  readonly changes: ChangeRow[] | null;
  /** Whether the batch may have other changes after these. */
  readonly more: boolean;
}

const OPEN_BATCH = statement('capture.open_batch', 'select pawl.capture_open_batch($1::smallint)');

const TAKE = statement(
  'capture.take_batch',
  'select t.mine, t.changes, t.more from pawl.capture_take_batch($1::smallint, $2::int, $3::bigint, $4::int) t',
);

/**
 * How many bytes of changes come at a time. They come as one JSON text, and the server can make 1 GB of it at most, Node a string of
 * 512 MB. The last change may go beyond this limit: it has at most 64 KiB for each column, before and after.
 */
const BATCH_BYTES = 32 * 1024 ** 2;

const ADVANCE = statement('capture.advance', 'select pawl.capture_advance($1::smallint, $2::bigint)');

/** The next delivery of a line whose changes go to another database. */
export interface Delivery {
  /** The name of the line in the other database. */
  readonly copy: string;
  /** How many deliveries have been acknowledged. */
  readonly number: string;
  /** The id of the batch. */
  readonly batch: string;
}

const DELIVERY = statement(
  'capture.delivery',
  'select l.copy::text as copy, l.delivery::text as number, l.batch::text as batch from pawl.capture_line l where l.id = $1::smallint',
);

const DELIVERED = statement(
  'capture.delivered',
  'update pawl.capture_line l set delivery = l.delivery + 1 where l.id = $1::smallint',
);

const REBASE = statement('capture.rebase', 'select pawl.capture_rebase($1::smallint)::int as left');

/** Batches of changes in order, for one line. */
export class ChangeStore {
  readonly #engine: PostgresEngine;
  readonly #line: number;

  constructor(engine: PostgresEngine, line: number) {
    this.#engine = engine;
    this.#line = line;
  }

  /**
   * Calls `fn` with the next changes, and acknowledges them in the same transaction. These are at most `limit`, and fewer if they are
   * large.
   * @returns how many; undefined while another process has the line
   * @throws StaleDeclaration  the line is gone
   */
  async next(
    limit: number,
    timeoutMs: number,
    fn: (rows: readonly ChangeRow[], tx: Transaction) => Promise<void>,
  ): Promise<number | undefined> {
    const deadlineMs = answerDeadlineMs(timeoutMs);
    await this.#engine.query(OPEN_BATCH, [this.#line], { deadlineMs }).catch((error: unknown) => {
      throw error instanceof NotFound ? new StaleDeclaration() : error;
    });
    return this.#engine.transaction(
      async (tx) => {
        const [taken] = await tx.query<TakenBatch>(TAKE, [this.#line, limit, BATCH_BYTES, timeoutMs]);
        if (taken?.mine !== true) return undefined;
        const rows = taken.changes ?? [];
        if (rows.length > 0) await fn(rows, tx);
        const last = taken.more ? (rows.at(-1)?.id ?? null) : null;
        await tx.query(ADVANCE, [this.#line, last]);
        return rows.length;
      },
      { isolation: 'read committed', retries: 0, deadlineMs },
    );
  }

  /** The delivery for the batch that this transaction has taken. */
  async delivery(tx: Transaction): Promise<Delivery> {
    return only(await tx.query<Delivery>(DELIVERY, [this.#line]));
  }

  async delivered(tx: Transaction): Promise<void> {
    await tx.query(DELIVERED, [this.#line]);
  }

  async rebase(capture: number): Promise<number> {
    const [row] = await this.#engine.query<{ left: number }>(REBASE, [capture]);
    return row?.left ?? 0;
  }
}

const HISTORY = statement(
  'capture.history',
  `
select h.id::text as id, pg_catalog.to_json(h.at) #>> '{}'::text[] as at, h.source, h.op, h.key, h.old_key as "oldKey",
  h.before, h.after, h.actor, h.reason, h.db_user::text as "dbUser"
from pawl.capture_history($1::smallint, $2::smallint, $3::text, $4::smallint[], $5::timestamptz, $6::timestamptz, $7::text, $8::text, $9::bigint, $10::int) h`,
);

export interface HistoryQuery {
  readonly source: number | undefined;
  readonly key: string | undefined;
  /** The sources whose key is the key of the entity. */
  readonly direct: readonly number[] | undefined;
  readonly since: Date | undefined;
  readonly until: Date | undefined;
  readonly actor: string | undefined;
  readonly words: string | undefined;
  readonly before: string | undefined;
  readonly limit: number;
}

export function readHistory(db: Reader, capture: number, query: HistoryQuery): Promise<ChangeRow[]> {
  const like = query.words === undefined ? null : `%${query.words.replaceAll(/[\\%_]/g, '\\$&')}%`;
  const { source, key, direct, since, until, actor, before, limit } = query;
  const values = [capture, source, key, direct, since, until, actor, like, before, limit];
  return db.query<ChangeRow>(
    HISTORY,
    values.map((value) => value ?? null),
  );
}
