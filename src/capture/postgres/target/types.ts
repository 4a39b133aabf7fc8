import { statement } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import type { Source } from '../../declare/source.ts';
import type { Reader, Table } from '../catalog.ts';

interface TargetDeclaration {
  readonly root: Source;
  /** The column with the key of the entity, if the primary key has one. */
  readonly key: string | undefined;
  readonly into: string;
  readonly columns: Readonly<Record<string, string>>;
}

const OTHERS = statement(
  'capture.target_types',
  `
select a.attname::text as name, pg_catalog.format_type(a.atttypid, a.atttypmod) as there
from rows from (pg_catalog.unnest($2::text[]), pg_catalog.unnest($3::text[])) d (name, type)
join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) $1::oid and a.attname::text operator(pg_catalog.=) d.name
where a.atttypid operator(pg_catalog.<>) pg_catalog.to_regtype(d.type)::oid`,
);

/**
 * A key of another type could not hold every entity, and a column of another type not every value. The table is not rewritten
 * for that: a person has to decide.
 */
export async function compareTypes(
  db: Reader,
  table: Table,
  { root, key, into, columns }: TargetDeclaration,
): Promise<Difference[]> {
  const found: Difference[] = [];
  const differ = (problem: string): void => void found.push({ kind: 'target', object: into, problem, sql: [] });
  const there = table.columns.find(({ name }) => name === key)?.type;
  if (there !== undefined && !takes(bare(there), bare(root.type))) {
    differ(
      `its key ${key} is of type ${there}, and the key of the entity of type ${root.type}; give both the same type`,
    );
  }
  const names = Object.keys(columns).filter((name) => name !== key);
  const types = names.map((name) => typeOf(columns[name] ?? ''));
  for (const other of await db.query<{ name: string; there: string }>(OTHERS, [table.oid, names, types])) {
    differ(
      `its column ${other.name} is of type ${other.there}, and declared as ${columns[other.name]}; give both the same type`,
    );
  }
  return found;
}

const INTEGERS = ['smallint', 'integer', 'bigint'];
const TEXTS = ['text', 'character varying', 'character', 'citext'];

/** Whether a column of one type holds every key of another; true for types that are not in the table. */
function takes(there: string, root: string): boolean {
  if (INTEGERS.includes(root)) return INTEGERS.indexOf(there) >= INTEGERS.indexOf(root);
  if (TEXTS.includes(root)) return TEXTS.includes(there);
  return root !== 'uuid' || there === 'uuid';
}

function bare(type: string): string {
  return type.replace(/\(.*\)/, '');
}

/** The type alone: in a declaration `not null` and the like may follow it. */
export function typeOf(declared: string): string {
  return declared.replace(/\s+(not|null|default|check|collate|constraint|unique|references|generated)\b.*$/is, '');
}
