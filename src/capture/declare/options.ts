import { InvalidInput } from '../../base/errors.ts';
import {
  type Check,
  checkOptions,
  custom,
  duration,
  integer,
  list,
  object,
  oneOf,
  optional,
  record,
  signal,
  text,
} from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import { isObject } from '../../base/options/shape.ts';
import { type Backoff, type BackoffOption, backoffShape } from '../../base/time/backoff.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { PostgresEngine, Transaction } from '../../engine/postgres/index.ts';
import type { TargetOptions } from '../postgres/target/declared.ts';
import { Sql } from './sql-text.ts';

/**
 * One row for the target: values by column, including the key. Bytes may be a Buffer or a Uint8Array. An entity fails if a value
 * has no form in JSON: an invalid Date, a Map, a Set, a Promise, a function. NaN, Infinity and bigints are stored as such.
 */
export type ProjectedRow = Readonly<Record<string, unknown>>;

/**
 * Makes the rows of some entities from the current content of the database, best with one query for all of them. An entity
 * for which it returns no row is removed from the target.
 * @param ids  keys, as text; at most `batch` of them
 * @param tx  the transaction in which the rows are written. Read through it, and change nothing.
 */
export type Build = (ids: readonly string[], tx: Transaction) => Promise<readonly ProjectedRow[]>;

export interface ProjectOptions {
  /** The table to write. `apply()` creates it when it is missing; its primary key is the key of the entity. */
  readonly into: string;
  /**
   * How a row is made: a function, or a query that returns the rows for the keys in `$1`, with the target's columns by name:
   * `` sql`select o.id, c.name as customer from … where o.id = any ($1::bigint[])` ``. A query is several times as fast, and
   * keeps values that JavaScript would round, such as microseconds.
   */
  readonly build: Build | Sql;
  /**
   * The columns and their types: `{ customer: 'text', placed_at: 'timestamptz' }`. Default: the columns of the existing
   * table.
   */
  readonly columns?: Readonly<Record<string, string>> | undefined;
  /**
   * Columns whose words can be searched for, the most important first. Postgres decides what a word is. A text without spaces
   * between words, such as Chinese or Japanese, is found as a whole and by its beginnings (`東京*`). If the column is in
   * `fragments`, the text is also found by any piece of three characters.
   */
  readonly text?: readonly string[] | undefined;
  /** Columns, such as product codes, that are also found by a piece of their value. Needs the extension pg_trgm. */
  readonly fragments?: readonly string[] | undefined;
  /** If there are too many matches to rank, search prefers those with the highest values in this column. Default: the key. */
  readonly order?: string | undefined;
  /** The column with the tenant of a row. Search then requires a tenant, and row-level security keeps tenants apart. */
  readonly tenant?: string | undefined;
  /**
   * The text search configuration for `text`. Default `'simple'`: words are not reduced to stems, whatever their language.
   */
  readonly language?: string | undefined;
  /**
   * Another database that holds the table: a copy for searching, or for other programs. It needs the migrations of Pawl. Each
   * row arrives at least once, and an older row never overwrites a newer one. Default: the captured database itself.
   */
  readonly to?: PostgresEngine | undefined;
  /**
   * Makes Citus spread the rows over the nodes of its cluster, whose coordinator has the table. Default: the rows are on one
   * node. See {@link DistributeOptions}.
   */
  readonly distribute?: DistributeOptions | undefined;
  /** The name of this consumer. Default: `into`. */
  readonly name?: string | undefined;
}

export interface DistributeOptions {
  /**
   * `'id'`: by the key of the entity. Every node has a share of each search. `'tenant'`: by the column in `tenant`. A tenant's rows are on one
   * node, and its searches, which always name it, ask that node alone.
   */
  readonly by: 'id' | 'tenant';
  /** Into how many shards, 1 to 1024. Default: `citus.shard_count`, which is 32 unless it was changed. */
  readonly shards?: number | undefined;
}

export interface RunOptions {
  /** How many batches this process works on at once. Default 1. */
  readonly concurrency?: number | undefined;
  /**
   * Entities in one batch, at most 10,000. Default 500. A batch locks each of its entities until it commits. The batches of this
   * process together lock at most half as many as the server has room for, and so are smaller on a small server: half of
   * `max_locks_per_transaction` × (`max_connections` + `max_prepared_transactions`), by default 3,200.
   */
  readonly batch?: number | undefined;
  /**
   * How often to poll when nothing changes. After a change the worker polls again at once, then less and less often. Default
   * 500 ms.
   */
  readonly poll?: Duration | undefined;
  /** How long one batch may take; a process that hangs for longer loses it. Default 30 s. */
  readonly timeout?: Duration | undefined;
  /**
   * How long to wait before an entity that could not be projected is tried again. Default exponential: 1 s, doubled each
   * time, at most 1 h.
   */
  readonly backoff?: BackoffOption | undefined;
  /** Stops the worker when it aborts. */
  readonly signal?: AbortSignal | undefined;
}

/** Run options after the check, with defaults filled in. */
export interface RunSettings {
  readonly concurrency: number;
  readonly batch: number;
  readonly pollMs: number;
  readonly timeoutMs: number;
  readonly backoff: Backoff;
  readonly signal: AbortSignal | undefined;
}

export interface ProjectionSettings extends TargetOptions {
  readonly name: string;
  /** Exactly one of `build` and `query` is set. */
  readonly build: Build | undefined;
  readonly query: string | undefined;
  readonly to: PostgresEngine | undefined;
}

const BUILD = 'sql`…`, which builds in the database, or a function';

/**
 * An option that is an engine. It is recognised by its shape, since the program may have loaded another copy of this package.
 */
export const otherDatabase: Check<PostgresEngine> = custom('an engine, made by postgres()', (value, place) => {
  if (!isEngine(value)) throw refusal(place, value, 'an engine, made by postgres()');
  return value;
});

function isEngine(value: unknown): value is PostgresEngine {
  return isObject(value) && value['kind'] === 'postgres' && 'transaction' in value;
}

const name = text({ min: 1, max: 200 });
const names = list(name, { default: [] });

/** @throws InvalidInput */
export function readProjectOptions(options: ProjectOptions): ProjectionSettings {
  const given = checkOptions('project', options, {
    into: name,
    build: custom(BUILD, (value, place): Build | Sql => {
      if (value instanceof Sql || typeof value === 'function') return value as Build | Sql;
      throw refusal(place, value, BUILD);
    }),
    columns: record(text({ min: 1 }), { default: {} }),
    text: names,
    fragments: names,
    order: optional(name),
    tenant: optional(name),
    language: text({ pattern: [/^[\w.]+$/, 'the name of a text search configuration'], default: 'simple' }),
    to: optional(otherDatabase),
    distribute: optional(object({ by: oneOf(['id', 'tenant']), shards: optional(integer({ min: 1, max: 1024 })) })),
    name: optional(name),
  });
  if (given.distribute?.by === 'tenant' && given.tenant === undefined) {
    throw new InvalidInput(
      `option "distribute.by" for project is 'tenant', and there is no option "tenant"; name the tenant's column there, or give 'id'`,
      { field: 'distribute.by' },
    );
  }
  const known = Object.keys(given.columns);
  for (const column of known) {
    if (given.columns[column]?.includes(';')) {
      throw new InvalidInput(`the type of the column "${column}" cannot hold a semicolon`, {
        field: `columns.${column}`,
      });
    }
  }
  const made =
    given.build instanceof Sql
      ? { build: undefined, query: given.build.text.replace(/;\s*$/, '') }
      : { build: given.build, query: undefined };
  return { ...given, ...made, name: given.name ?? given.into };
}

const runShape = {
  concurrency: integer({ min: 1, max: 64, default: 1 }),
  batch: integer({ min: 1, max: 10_000, default: 500 }),
  poll: duration({ min: 1, max: '1h', default: 500 }),
  timeout: duration({ min: '1s', max: '1h', default: '30s' }),
  backoff: backoffShape(),
  signal,
};

/** @throws InvalidInput */
export function readRunOptions(what: string, options: RunOptions): RunSettings {
  const { poll, timeout, ...rest } = checkOptions(what, options, runShape);
  return { ...rest, pollMs: poll, timeoutMs: timeout };
}
