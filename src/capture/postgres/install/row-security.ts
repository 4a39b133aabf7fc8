import { id, statement } from '../../../engine/postgres/index.ts';
import type { Difference } from '../../declare/definition.ts';
import type { Definition } from '../../declare/source.ts';
import type { Reader } from '../catalog.ts';

const HIDDEN = statement(
  'capture.hidden',
  'select u.name from pg_catalog.unnest($1::text[]) with ordinality u (name, n) where row_security_active(to_regclass(u.name)::oid) order by u.n',
);

/**
 * The captured tables of which this role is shown some rows only. A worker stops at them, rather than take what it cannot see for
 * gone. No reason for `apply()` to refuse: whoever installs a capture need not be who reads it.
 */
export async function compareRowSecurity(db: Reader, { sources }: Definition): Promise<Difference[]> {
  const rows = await db.query<{ name: string }>(HIDDEN, [sources.map(({ schema, name }) => id(schema, name))]);
  const problem =
    'row-level security hides rows of it from this role: a worker that runs as this role stops at them, and needs BYPASSRLS';
  return rows.map(({ name }) => ({ kind: 'policy', object: name, problem, sql: [] }));
}
