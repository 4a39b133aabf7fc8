import { InvalidInput } from '../../base/errors.ts';
import { checkOptions, custom, duration, oneOf, optional, record, text } from '../../base/options/options.ts';
import { type OptionPath, refusal } from '../../base/options/refusal.ts';
import { isObject, readShape, within } from '../../base/options/shape.ts';
import type { Duration } from '../../base/time/duration.ts';
import { Sql } from './sql-text.ts';

/** One object in the database that differs from the declaration, and the statements that repair it. */
export interface Difference {
  /** `trigger`, `function`, `line`… */
  readonly kind: string;
  /** The name of the table, the function, the role. */
  readonly object: string;
  readonly problem: string;
  /** Empty if no statement repairs it. */
  readonly sql: readonly string[];
}

/** The declaration of a capture: it captures every change of the rows that make up one entity. */
export interface CaptureOptions {
  /**
   * The name of the entity: lower-case letters, digits and `_`, at most 30. Programs that use the same name share one
   * capture.
   */
  readonly entity: string;
  /** The table with one row for each entity: `'orders'` or `'sales.orders'`. It needs a primary key of one column, or `key`. */
  readonly root: string;
  /** The column of `root` that is the entity's key. Default: its primary key. */
  readonly key?: string | undefined;
  /** The other tables; for each, how its rows lead to the entity. */
  readonly via?: Readonly<Record<string, Via>> | undefined;
  /** Which tables have a history, and of which columns. Default: none. */
  readonly history?: Readonly<Record<string, HistoryOption>> | undefined;
  /**
   * How long changes are kept, at least a day. The workers drop whole months of changes. They wait until no capture wants the
   * month any longer and every follower has received it. Default: for ever.
   */
  readonly keep?: Duration | undefined;
}

/**
 * How a row of a table leads to the entities that it is a part of:
 * - `'order_id'`: the column holds the entity's key.
 * - `{ column: 'id', to: 'orders.customer_id' }`: the entities whose row in `orders` has this value there. The table of `to` is
 *   the root, or one of `via` that holds the key in a column.
 * - `` sql`select o.id from orders o join changed c on c.id = o.customer_id` ``: what the query returns. `changed` has one
 *   column, the table's primary key, or `column` in `{ column, keys: sql`…` }`. The tables that it reads must be captured, too.
 */
export type Via = string | ColumnVia | LinkVia | QueryVia | Sql;

export interface ColumnVia {
  readonly column: string;
  /** Rows without a key belong to no entity and are ignored. Default: `apply()` fails while there are such rows. */
  readonly nulls?: 'ignore' | undefined;
}

export interface LinkVia extends ColumnVia {
  /** `table.column` or `schema.table.column`. */
  readonly to: string;
}

export interface QueryVia extends ColumnVia {
  readonly keys: Sql;
}

/** What the history holds of each change of a table. Columns that are not listed are stored nowhere. */
export type HistoryOption =
  | 'keys'
  | {
      /** `'after'`: the row after the change, and for a delete the row before it. `'both'`: the row before and after. */
      readonly rows: 'after' | 'both';
      readonly columns: readonly string[];
    };

/** A declared source; only its form has been checked. */
export interface DeclaredSource {
  readonly table: string;
  readonly column: string | undefined;
  readonly to: string | undefined;
  readonly keys: string | undefined;
  readonly nulls: 'ignore' | undefined;
  readonly history: DeclaredHistory | undefined;
}

export interface DeclaredHistory {
  readonly rows: 'keys' | 'after' | 'both';
  readonly columns: readonly string[];
}

/** A declared capture. The first source is the root. */
export interface Declaration {
  readonly entity: string;
  readonly key: string | undefined;
  readonly sources: readonly DeclaredSource[];
  readonly keepMs: number | undefined;
}

const name = text({ min: 1, max: 200 });

const history = custom("'keys' or { rows, columns }", (value, place): DeclaredHistory => {
  if (value === 'keys') return { rows: 'keys', columns: [] };
  if (!isObject(value)) throw refusal(place, value, "'keys' or { rows: 'after' | 'both', columns: […] }");
  const columns = custom('a list of columns', (given, at): readonly string[] => {
    if (!Array.isArray(given) || given.length === 0) throw refusal(at, given, 'a list of at least one column');
    return given.map((column: unknown, index) => name.given(column, within(at, index)));
  });
  return readShape(value, { rows: oneOf(['after', 'both']), columns }, place);
});

const via = custom<Omit<DeclaredSource, 'table' | 'history'>>(
  "a column, { column, to: 'table.column' } or sql`…`",
  (value, place) => readVia(value, place),
);

const shape = {
  entity: text({ pattern: [/^[a-z][a-z0-9_]{0,29}$/, 'a name of lower-case letters, digits and _, at most 30'] }),
  root: name,
  key: optional(name),
  via: record(via, { default: {} }),
  history: record(history, { default: {} }),
  keep: optional(duration({ min: '1d', max: '36500d' })),
};

/** @throws InvalidInput when the declaration contradicts itself. Whether the tables exist is checked later. */
export function declare(options: CaptureOptions): Declaration {
  const given = checkOptions('createCapture', options, shape);
  const tables = [given.root, ...Object.keys(given.via)];
  for (const table of Object.keys(given.history)) {
    if (tables.includes(table)) continue;
    throw new InvalidInput(
      `history names the table "${table}", which is not captured; there are ${tables.join(', ')}`,
      {
        field: `history.${table}`,
      },
    );
  }
  const root = { table: given.root, column: given.key, to: undefined, keys: undefined, nulls: undefined };
  const others = Object.entries(given.via).map(([table, rest]) => ({ table, ...rest }));
  return {
    entity: given.entity,
    key: given.key,
    keepMs: given.keep,
    sources: [root, ...others].map((source) => ({ ...source, history: given.history[source.table] })),
  };
}

function readVia(value: unknown, place: OptionPath): Omit<DeclaredSource, 'table' | 'history'> {
  const none = { to: undefined, keys: undefined, nulls: undefined };
  if (typeof value === 'string') return { ...none, column: name.given(value, place) };
  if (value instanceof Sql) return { ...none, column: undefined, keys: requireText(value, place) };
  if (!isObject(value)) throw refusal(place, value, "a column, { column, to: 'table.column' } or sql`…`");
  const given = readShape(
    value,
    {
      column: name,
      to: optional(name),
      keys: custom('sql`…`', asSql, { default: new Sql('') }),
      nulls: optional(oneOf(['ignore'])),
    },
    place,
  );
  const keys = given.keys === '' ? undefined : given.keys;
  if (given.to !== undefined && keys !== undefined) {
    throw new InvalidInput(`option "${place.field}" for createCapture has both to and keys; leave one out`, {
      field: place.field,
    });
  }
  if (given.to !== undefined && !given.to.includes('.')) {
    throw refusal(within(place, 'to'), given.to, "a column with its table, such as 'orders.customer_id'");
  }
  return { ...given, keys };
}

function asSql(value: unknown, place: OptionPath): string {
  if (!(value instanceof Sql)) throw refusal(place, value, 'sql`…`');
  return value.text;
}

function requireText(value: Sql, place: OptionPath): string {
  if (value.text === '') throw refusal(place, '', 'a query');
  return value.text;
}
