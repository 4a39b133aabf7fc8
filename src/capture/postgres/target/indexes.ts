import { id, statement } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import type { Reader, Table } from '../catalog.ts';
import { quoted, type TargetOptions, TENANT_SETTING, WORDS } from './declared.ts';

interface Index {
  readonly name: string;
  readonly sql: string;
}

function wantedIndexes(on: string, options: TargetOptions, key: string): Index[] {
  const base = (options.into.split('.').at(-1) ?? '').replaceAll('"', '').slice(0, 40);
  const make = (name: string, rest: string): Index => ({
    name: `${base}_pawl_${name}`,
    sql: `create index ${id(`${base}_pawl_${name}`)} on ${on} ${rest}`,
  });
  // Without fastupdate=off, a search would sometimes read a list of 4 MB of entries that are not yet in the index proper.
  const gin = (what: string): string => `using gin (${what}) with (fastupdate = off)`;
  const { order, tenant, distribute } = options;
  return [
    ...(options.text.length === 0 ? [] : [make('words', gin(WORDS))]),
    ...(order === undefined ? [] : [make('order', `(${id(order)}, ${id(key)})`)]),
    ...(tenant === undefined ? [] : [make('tenant', `(${id(tenant)}, ${id(order ?? key)})`)]),
    // The primary key then begins with the tenant, but rows are written and removed by the entity's key.
    ...(distribute?.by === 'tenant' ? [make('key', `(${id(key)})`)] : []),
    ...options.fragments.map((column) => make(`part_${column}`, gin(`${id(column)} gin_trgm_ops`))),
  ];
}

function indexes(
  on: string | undefined,
  options: TargetOptions,
  key: string,
  there: readonly string[] = [],
): Difference[] {
  const missing = wantedIndexes(on ?? quoted(options.into), options, key).filter(({ name }) => !there.includes(name));
  return [
    ...missing.map(({ name, sql }) => ({
      kind: 'index',
      object: name,
      problem: 'it is missing',
      sql: sql.includes('gin_trgm_ops') ? ['create extension if not exists pg_trgm', sql] : [sql],
    })),
    ...policy(on ?? quoted(options.into), options, there),
  ];
}

/** A session sees the rows of the tenant that it has set (set_config('pawl.tenant', …)); the table's owner sees all. */
function policy(on: string, { tenant, into }: TargetOptions, there: readonly string[]): Difference[] {
  if (tenant === undefined || there.includes('pawl_tenant')) return [];
  const sees = `${id(tenant)}::text = nullif(current_setting('${TENANT_SETTING}', true), '')`;
  return [
    {
      kind: 'policy',
      object: into,
      problem: 'tenants are not kept apart by row-level security',
      sql: [`alter table ${on} enable row level security`, `create policy pawl_tenant on ${on} using (${sees})`],
    },
  ];
}

const THERE = statement(
  'capture.target_indexes',
  `
select c.relname::text as name from pg_index i join pg_class c on c.oid = i.indexrelid where i.indrelid = $1::oid
union all
select p.polname::text from pg_policy p join pg_class c on c.oid = p.polrelid where p.polrelid = $1::oid and c.relrowsecurity`,
);

/** The indexes, and the policy of tenants, that the table lacks; all of them if there is no table. */
export async function missingIndexes(
  db: Reader,
  table: Table | undefined,
  options: TargetOptions,
  key: string,
): Promise<Difference[]> {
  if (table === undefined) return indexes(undefined, options, key);
  const there = await db.query<{ name: string }>(THERE, [table.oid]);
  return indexes(
    id(table.schema, table.name),
    options,
    key,
    there.map(({ name }) => name),
  );
}
