import { InvalidInput } from '../../base/errors.ts';
import {
  type Check,
  checkOptions,
  custom,
  duration,
  integer,
  list,
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
import type { TargetOptions } from '../postgres/target.ts';
import { Sql } from './sql-text.ts';

/** One row for the target: values by column, the key among them. */
export type ProjectedRow = Readonly<Record<string, unknown>>;

/**
 * Makes the rows of some entities from what is in the database now, best with one query for all. An entity for which no row
 * is given leaves the target.
 * @param ids  keys, as text; at most `batch` of them
 * @param tx  the transaction in which the rows are written: read through it, and change nothing
 */
export type Build = (ids: readonly string[], tx: Transaction) => Promise<readonly ProjectedRow[]>;

export interface ProjectOptions {
  /** The table to write. It is made by `apply()` if it is not there; its primary key is the key of the entity. */
  readonly into: string;
  /**
   * What a row is: a function, or a query that gives the rows of the keys in `$1`, with the target's columns by name:
   * `` sql`select o.id, c.name as customer from … where o.id = any ($1::bigint[])` ``. A query is several times as fast, and
   * keeps values that JavaScript would change, such as microseconds.
   */
  readonly build: Build | Sql;
  /** The columns and their types: `{ customer: 'text', placed_at: 'timestamptz' }`. Default: those of a table that is there. */
  readonly columns?: Readonly<Record<string, string>> | undefined;
  /**
   * Columns whose words can be searched for, the weightiest first. A word is what Postgres takes for one: a text that has no spaces
   * between words, such as Chinese or Japanese, is found as a whole and by its beginnings (`東京*`), and by any piece of three
   * characters where the column is in `fragments`.
   */
  readonly text?: readonly string[] | undefined;
  /** Columns of codes that are found by a piece of them, too. Needs the extension pg_trgm. */
  readonly fragments?: readonly string[] | undefined;
  /** The column by which search prefers one match to another where there are too many: its highest values. Default: the key. */
  readonly order?: string | undefined;
  /** The column that says whose row it is: search needs to be told a tenant, and row-level security keeps them apart. */
  readonly tenant?: string | undefined;
  /** The text search configuration for `text`. Default `'simple'`: words as they are, of any language. */
  readonly language?: string | undefined;
  /**
   * Another database, where the table is then: a copy that is searched there, or that others work with. It needs the migrations of
   * Pawl. Each row arrives at least once, and none is overwritten by an older one. Default: the captured database itself.
   */
  readonly to?: PostgresEngine | undefined;
  /** The name of this consumer. Default: `into`. */
  readonly name?: string | undefined;
}

export interface RunOptions {
  /** How many batches this process works on at once. Default 1. */
  readonly concurrency?: number | undefined;
  /** Entities in one batch. Default 500. */
  readonly batch?: number | undefined;
  /** How often to look when nothing changes. While something does, it looks again at once, then ever more rarely. Default 500 ms. */
  readonly poll?: Duration | undefined;
  /** How long one batch may take; a process that hangs loses it then. Default 30 s. */
  readonly timeout?: Duration | undefined;
  /** When an entity that could not be projected is tried again. Default exponential: 1 s, doubled each time, at most 1 h. */
  readonly backoff?: BackoffOption | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Run options, checked. */
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
  /** One of these two. */
  readonly build: Build | undefined;
  readonly query: string | undefined;
  readonly to: PostgresEngine | undefined;
}

const BUILD = 'sql`…`, which builds in the database, or a function';

/** An option that is an engine, told by its shape: the program may have loaded another copy of this package. */
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
    name: optional(name),
  });
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
