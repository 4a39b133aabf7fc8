import { id, statement } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import type { Definition } from '../../declare/source.ts';
import type { Reader } from '../catalog.ts';

const HIDDEN = statement(
  'capture.hidden',
  'select u.name from pg_catalog.unnest($1::text[]) with ordinality u (name, n) where row_security_active(to_regclass(u.name)::oid) order by u.n',
);

/**
 * Finds captured tables whose rows row-level security hides from this role. A worker stops at such a table, because it would
 * take a hidden row for a deleted one. `apply()` does not refuse the table, because the role that installs a capture need not
 * be the role of its workers.
 */
export async function compareRowSecurity(db: Reader, { sources }: Definition): Promise<Difference[]> {
  const rows = await db.query<{ name: string }>(HIDDEN, [sources.map(({ schema, name }) => id(schema, name))]);
  const problem =
    'row-level security hides rows of it from this role: a worker that runs as this role stops at them, and needs BYPASSRLS';
  return rows.map(({ name }) => ({ kind: 'policy', object: name, problem, sql: [] }));
}
