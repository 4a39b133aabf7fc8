import { id, only, type Statement, statement, type Transaction, VERBATIM } from '../../../engine/postgres/index.ts';
import type { Source } from '../../declare/source.ts';
import { differs, operator } from '../operators.ts';
import type { Target, TargetColumn } from './target.ts';

/** Statements on one target. They are made once per target, since their text depends on its columns. */
export class TargetStatements {
  /** The columns that are written. */
  readonly columns: ReadonlySet<string>;
  readonly upsert: Statement;
  /** If distributed by tenant: removes the rows of the keys in `$1` that are at none of the places in `$2`. */
  readonly remove: Statement;
  /**
   * If distributed by tenant: the places of rows. If the tenant of an entity has changed, its old row is on another node.
   * Undefined otherwise.
   */
  readonly places: Statement | undefined;
  /**
   * Makes and writes the rows, and removes the rows of keys for which the query returns none; all in the database. Undefined if
   * the program makes the rows.
   */
  readonly project: Statement | undefined;
  readonly differing: Statement;
  readonly strays: Statement;

  /** @param query  makes the rows of the keys in `$1`; undefined if the program makes them */
  constructor(target: Target, root: Source, query?: string) {
    const { key, keyType, keyOperators, tenant, columns } = target;
    this.columns = new Set(columns.map(({ name }) => name));
    const equal = operator('=', keyOperators);
    const on = id(target.schema, target.name);
    const names = columns.map(({ name }) => id(name)).join(', ');
    const rest = columns.filter(({ name }) => name !== key);
    const unique = tenant === undefined ? id(key) : `${id(tenant)}, ${id(key)}`;
    const rows =
      query === undefined ? `pg_catalog.json_populate_recordset(null::${on}, $1::json) n` : `(\n${query}\n) n`;
    // Some types, json among them, have no comparison; their texts have one.
    const differsFrom = (row: string): string => rest.map((column) => differing(column, row)).join(' or ');
    const differs = differsFrom('n');
    const changed = rest.filter(({ name }) => name !== tenant);
    const set = changed.map(({ name }) => `${id(name)} = excluded.${id(name)}`).join(', ');
    // Citus accepts only immutable functions there, and the function that makes the text of these types is not immutable.
    const isPlain = target.isDistributed && changed.some(({ type }) => /^(json|xml)\b/.test(type));
    const where = isPlain ? '' : ` where ${differsFrom('excluded')}`;
    const conflict = changed.length === 0 ? 'nothing' : `update set ${set}${where}`;
    const name = `${target.schema}.${target.name}`;
    this.upsert = statement(
      `capture.upsert ${name}`,
      `insert into ${on} as t (${names}) select ${columns.map((c) => `n.${id(c.name)}`).join(', ')} from pg_catalog.json_populate_recordset(null::${on}, $1::json) n where $2::text[] is null or n.${id(key)}::text = any ($2::text[]) on conflict (${unique}) do ${conflict}`,
      VERBATIM,
    );
    this.project =
      query === undefined
        ? undefined
        : statement(
            `capture.project ${name}`,
            `
with made as materialized (
${query}
), written as (
  insert into ${on} as t (${names}) select ${columns.map((c) => `m.${id(c.name)}`).join(', ')} from made m
  where m.${id(key)}::text = any ($1::text[]) on conflict (${unique}) do ${conflict}
)
delete from ${on} t where t.${id(key)} ${equal} any ($1::text[]::${keyType}[]) and not exists (select from made m where m.${id(key)} ${equal} t.${id(key)})`,
            VERBATIM,
          );
    // The length shows where the key ends.
    const place = (row: string): string =>
      `pg_catalog.length(${row}.${id(key)}::text)::text || ':' || ${row}.${id(key)}::text || ${row}.${id(tenant ?? key)}::text`;
    this.places =
      tenant === undefined
        ? undefined
        : statement(
            `capture.places ${name}`,
            `select coalesce(pg_catalog.array_agg(${place('n')}), '{}') as places from pg_catalog.json_populate_recordset(null::${on}, $1::json) n`,
            VERBATIM,
          );
    const elsewhere = tenant === undefined ? '' : ` and ${place('t')} <> all ($2::text[])`;
    this.remove = statement(
      `capture.remove ${name}`,
      `delete from ${on} t where t.${id(key)} ${equal} any ($1::text[]::${keyType}[])${elsewhere}`,
      VERBATIM,
    );
    this.differing = statement(
      `capture.differing ${name}`,
      `
with there as materialized (
  select ${columns.map((c) => `t.${id(c.name)}`).join(', ')} from ${on} t where t.${id(key)} ${equal} any (${query === undefined ? '$2' : '$1'}::text[]::${keyType}[])
)
select ${tenant === undefined ? '' : 'distinct '}coalesce(n.${id(key)}, t.${id(key)})::text as key
from ${rows} full join there t on t.${id(key)} ${equal} n.${id(key)}
where n.${id(key)} is null or t.${id(key)} is null${differs === '' ? '' : ` or ${differs}`}`,
      VERBATIM,
    );
    this.strays = statement(
      `capture.strays ${name}`,
      `
with page as materialized (select t.${id(key)} as key from ${on} t where $1::text is null or t.${id(key)} ${operator('>', keyOperators)} $1::text::${keyType} order by 1 limit $2::int)
select p.key::text as key, not exists (select from ${id(root.schema, root.name)} r where r.${id(root.column)} ${operator('=', root.operators)} p.key::text::${root.type}) as stray
from page p order by p.key`,
      VERBATIM,
    );
  }
}

function differing({ name, type, operators }: TargetColumn, row: string): string {
  const cast = /^(json|xml|point|line|lseg|box|path|polygon|circle)\b/.test(type) ? '::text' : '';
  return differs(`t.${id(name)}${cast}`, `${row}.${id(name)}${cast}`, cast === '' ? operators : 'pg_catalog');
}

/** The rows to write for the entities with some keys. */
export interface RowsToWrite {
  /** A JSON array of objects; it may contain rows of other entities, too. */
  readonly json: string;
  /** The keys that have a row. */
  readonly found: ReadonlySet<string>;
}

/**
 * Writes the rows of these keys, and removes the rows of keys for which there is none.
 * @param isAll  `json` has rows of no other keys
 */
export async function writeRows(
  tx: Transaction,
  statements: TargetStatements,
  { json, found }: RowsToWrite,
  { keys, isAll }: { keys: readonly string[]; isAll: boolean },
): Promise<void> {
  if (statements.places !== undefined) {
    const { places } = only(await tx.query<{ places: string[] }>(statements.places, [json]));
    await tx.query(statements.remove, [keys, places]); // before the insert: a key that is a text may be equal and look different
  } else {
    const gone = keys.filter((key) => !found.has(key));
    if (gone.length > 0) await tx.query(statements.remove, [gone]);
  }
  if (json !== '[]') await tx.query(statements.upsert, [json, isAll ? null : keys]);
}
