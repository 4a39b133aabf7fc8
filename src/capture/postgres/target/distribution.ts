import { NotSupported } from '../../../base/errors.ts';
import { id, only, statement, VERBATIM } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import { literal } from '../../declare/sql-text.ts';
import type { Reader, Table } from '../catalog.ts';
import { quoted, type TargetOptions } from './declared.ts';
import { typeOf } from './types.ts';

/** What Citus knows about a table. */
interface Placement {
  readonly citus: boolean;
  /** How its rows are spread: 'h' by a hash, 'n' not at all. Null for a table that Citus does not know. */
  readonly method: string | null;
  readonly by: string | null;
  readonly shards: number | null;
  /** Its rows are on other nodes, too. */
  readonly elsewhere: boolean;
}

const HAS_CITUS = statement(
  'capture.has_citus',
  "select exists (select from pg_catalog.pg_extension x where x.extname = 'citus'::name) as citus",
);

/** Sent only if Citus is installed: other databases have none of the objects that it names. */
const PLACE = `
select d.partmethod::text as method, case when d.partmethod = 'h' then pg_catalog.column_to_column_name(d.logicalrelid, d.partkey) end as by,
  (select count(*)::int from pg_catalog.pg_dist_shard s where s.logicalrelid::oid = d.logicalrelid::oid) as shards,
  d.partmethod <> 'n' or d.repmodel <> 's' or d.colocationid <> 0 as elsewhere
from pg_catalog.pg_dist_partition d where d.logicalrelid::oid = $1::oid`;

/** Types whose texts depend on a setting, a list of labels or a constraint: dates, enums, domains, arrays. */
const CHANGING = statement(
  'capture.changing_types',
  `
select c.name, pg_catalog.format_type(t.oid, null) as type
from rows from (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[])) c (name, type)
join pg_catalog.pg_type t on t.oid operator(pg_catalog.=) pg_catalog.to_regtype(c.type)::oid
join pg_catalog.pg_proc i on i.oid operator(pg_catalog.=) t.typinput::oid join pg_catalog.pg_proc o on o.oid operator(pg_catalog.=) t.typoutput::oid
where i.provolatile <> 'i' or o.provolatile <> 'i'`,
);

async function readPlace(db: Reader, table: Table | undefined): Promise<Placement> {
  const { citus } = only(await db.query<{ citus: boolean }>(HAS_CITUS));
  const nowhere = { citus, method: null, by: null, shards: null, elsewhere: false };
  if (!citus || table === undefined) return nowhere;
  const [place] = await db.query<Placement>(statement('capture.target_place', PLACE, VERBATIM), [table.oid]);
  return { ...nowhere, ...place };
}

/**
 * Compares where the rows are with where they should be. A table that only this server has is distributed; any other change moves
 * rows between nodes, and a person decides on that.
 * @param key  the column with the key of the entity
 * @throws NotSupported  a distributed table in a database without Citus
 */
export async function compareDistribution(
  db: Reader,
  table: Table | undefined,
  key: string,
  options: TargetOptions,
): Promise<Difference[]> {
  const { distribute, into, tenant, columns } = options;
  const place = await readPlace(db, table);
  const differ = (problem: string, sql: string[] = []): Difference[] => [
    { kind: 'target', object: into, problem, sql },
  ];
  if (distribute === undefined) {
    if (!place.elsewhere) return [];
    return differ(
      `Citus keeps its rows on other nodes${place.by === null ? '' : `, by ${place.by}`}; declare it with distribute, or run undistribute_table`,
    );
  }
  if (!place.citus) {
    throw new NotSupported(
      `option "distribute" for project needs Citus, and the database of "${into}" does not have the extension; leave it out, or give the coordinator of a cluster in option "to"`,
    );
  }
  const { by, shards } = distribute;
  if (by === 'tenant' && table === undefined && !(tenant !== undefined && tenant in columns)) {
    return differ(`it has no column ${tenant}, by which it is to be distributed; name it in columns, with its type`);
  }
  const column = by === 'tenant' && tenant !== undefined ? tenant : key;
  if (by === 'tenant') {
    const changing = await compareChanging(db, table, [key, column], options);
    if (changing.length > 0) return changing;
  }
  const on = table === undefined ? quoted(into) : id(table.schema, table.name);
  if (!place.elsewhere) return differ('its rows are all on this node', distributeText(on, column, shards));
  if (place.method !== 'h' || place.by !== column) {
    const is = place.method === 'h' ? `distributed by ${place.by}` : 'kept by Citus in another way';
    return differ(`it is ${is}, and declared as distributed by ${column}; run undistribute_table, and apply() again`);
  }
  if (shards === undefined || place.shards === shards) return [];
  return differ(
    `it has ${place.shards} shards, and is declared with ${shards}; run alter_distributed_table, or declare ${place.shards}`,
  );
}

/**
 * If the rows are distributed by tenant, a text names the one node of a search, and a text is compared with each row that is to
 * be removed. Citus does neither if the type reads its texts by a function that is not immutable.
 */
async function compareChanging(
  db: Reader,
  table: Table | undefined,
  names: readonly string[],
  { into, columns }: TargetOptions,
): Promise<Difference[]> {
  const types = names.map((name) => {
    const declared = columns[name];
    // Null for the key of a table that does not exist yet: before Postgres 16, `to_regtype` refuses an empty text.
    return table?.columns.find((one) => one.name === name)?.type ?? (declared === undefined ? null : typeOf(declared));
  });
  const found = await db.query<{ name: string; type: string }>(CHANGING, [names, types]);
  return found.map(({ name, type }) => ({
    kind: 'target',
    object: into,
    problem: `its column ${name} is of type ${type}, whose values Citus does not find a node by; make it an integer, a uuid or a text, or distribute by 'id'`,
    sql: [],
  }));
}

/**
 * Uses one connection to each node. Citus refuses some statements, such as those on extensions, in a transaction that has used
 * several in parallel.
 */
function distributeText(on: string, column: string, shards: number | undefined): string[] {
  const count = shards === undefined ? '' : `, shard_count => ${shards}`;
  return [
    "set local citus.multi_shard_modify_mode = 'sequential'",
    `select pg_catalog.create_distributed_table(${literal(on)}, ${literal(column)}${count})`,
  ];
}
