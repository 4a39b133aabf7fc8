import { DatabaseError, NotSupported } from '../../../base/errors.ts';
import type { SchemaName } from '../schema/name.ts';
import { type Statement, statement } from '../sql.ts';

const RIGHTS = statement(
  'engine.migrate_rights',
  `
select pg_catalog.quote_ident(current_user) as role, pg_catalog.quote_ident(pg_catalog.current_database()::text) as database,
  (select pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(n.nspowner)::text) from pg_catalog.pg_namespace n where n.nspname = 'pawl'::name) as owner`,
);

interface Rights {
  readonly role: string;
  readonly database: string;
  /** The owner of the schema; null if there is no schema. */
  readonly owner: string | null;
}

/** If a migration failed because a privilege is missing, an error that says what to grant; every other error unchanged. */
export async function nameMissingRight(
  session: { readonly schema: SchemaName; query<Row>(sql: Statement): Promise<Row[]> },
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof DatabaseError) || error.sqlState !== '42501') return error;
  // If even this query fails, the first error says more.
  const [rights] = await session.query<Rights>(RIGHTS).catch(() => []);
  return rights === undefined ? error : new NotSupported(advice(rights, session.schema.name), { cause: error });
}

function advice({ role, database, owner }: Rights, schema: string): string {
  if (owner === null) {
    return (
      `the role ${role} may not make the schema ${schema}: run "create schema ${schema} authorization ${role}" as an administrator, ` +
      `or "grant create on database ${database} to ${role}"`
    );
  }
  return `the schema ${schema} belongs to ${owner}, and the role ${role} may not change it: migrate as ${owner}, or run "grant ${owner} to ${role}"`;
}
