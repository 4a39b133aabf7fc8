import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';

/** Counts of the live picture stop at this many rows. */
const MOST = 10_000;

/** All figures of the live picture, of all queues and types, in one statement of bounded cost: every count stops at 10,000. */
const SNAPSHOT = statement(
  'http.snapshot',
  `
select json_build_object(
  'at', clock_timestamp(),
  'queues', pawl.queue_live($1::int),
  'locks', pawl.lock_live($1),
  'actors', a.live -> 'actors',
  'pages', a.live -> 'pages',
  'oldestTransactionMs', (
    select round(extract(epoch from clock_timestamp() - min(a.xact_start)) * 1000) from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.backend_type = 'client backend'),
  'connections', (select count(*) from pg_stat_activity a where a.backend_type = 'client backend'),
  'maxConnections', current_setting('max_connections')::int,
  'wraparound', (select age(d.datfrozenxid) from pg_database d where d.datname = current_database())
) as answer
from (select pawl.actor_live($1) as live offset 0) a`,
);

const PING = statement('http.ping', 'select 1 as one');

export interface LiveSnapshot {
  readonly at: string;
  readonly queues: readonly {
    readonly name: string;
    readonly stats: Readonly<Record<string, number | string | null | readonly unknown[]>>;
  }[];
  readonly locks: { readonly held: number; readonly waiting: number };
  readonly actors: readonly {
    readonly type: string;
    readonly paused: boolean;
    readonly states: Readonly<Record<string, number>>;
    readonly workers: number;
  }[];
  readonly pages: { readonly open: number; readonly acked: number; readonly worst: string | null };
  readonly oldestTransactionMs: number | null;
  readonly connections: number;
  readonly maxConnections: number;
  /** Transaction ids used since the last freeze; at 2,000 million Postgres stops. */
  readonly wraparound: number;
}

/** The present state of everything. */
export class LiveStore {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  async ping(): Promise<void> {
    await this.#reads.query(PING);
  }

  async snapshot(): Promise<LiveSnapshot> {
    const [row] = await this.#reads.query<{ answer: LiveSnapshot }>(SNAPSHOT, [MOST]);
    if (row === undefined) throw new Error('the database returned no row where there is always one');
    return row.answer;
  }
}
