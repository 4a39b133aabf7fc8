import { createHash } from 'node:crypto';
import type { SchemaName } from '../schema/name.ts';
import type { FunctionSet, Migration } from '../schema.gen.ts';
import { MAKE_BOTH } from '../server/citus.ts';
import { type Statement, statement } from '../sql.ts';
import { instant } from '../types.ts';
import { noteObjects, REMEMBER } from './catalog.ts';
import { PIN, PINNED_PATH } from './pin.ts';

/** A numbered file that was applied. */
export interface MigrationRow {
  readonly line: string;
  readonly number: number;
  readonly name: string;
  readonly checksum: string;
  readonly applied_at: Date;
}

/** The functions of a line, as they were applied last. */
export interface FunctionsRow {
  readonly line: string;
  /** Null: a numbered file of the line was applied after them. */
  readonly checksum: string | null;
  /** The version of the package that applied them. */
  readonly version: string;
  readonly applied_at: Date;
  /** Signatures that an earlier version defined, and that still exist for its processes. */
  readonly retired: string[];
}

/** sha256 of the file with Unix line ends, so that a checkout on Windows has the same checksum. */
export function checksum(sql: string): string {
  return createHash('sha256').update(sql.replaceAll('\r\n', '\n')).digest('hex');
}

// Any number will do if no other program uses it: the bytes of "pawl", and 1 for migrations.
const LOCK = 'select pg_advisory_xact_lock(1885435756, 1)';

/**
 * The wait for other processes may take as long as their migrations do. The wait for a table in use must end. A migration runs
 * with the rights of the owner of everything, so it searches for no name in a schema where others may create. It is at read
 * committed, whatever the default of the database is: a snapshot from before the wait would not show what the others have applied.
 */
const OPEN = `begin isolation level read committed;
set local search_path = ${PINNED_PATH};
set local lock_timeout = 0;
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
${LOCK};
set local lock_timeout = '30s';
set local standard_conforming_strings = on;
set local client_min_messages = warning`;

// CREATE SCHEMA IF NOT EXISTS needs the right to create even if the schema exists.
const FOUNDATION = `do $$
begin
  if current_setting('server_encoding') not in ('UTF8', 'SQL_ASCII') then
    raise exception 'database "%" is encoded in %, which cannot hold every text; Pawl needs one in UTF8: create database NAME template template0 encoding ''UTF8''',
      current_database(), current_setting('server_encoding') using errcode = 'PW006';
  end if;
  if not exists (select from pg_namespace where nspname = 'pawl'::name) then
    create schema pawl;
  end if;
  if to_regclass('pawl.migration') is null then
    create table pawl.migration (
      line text not null,
      number integer not null,
      name text not null,
      checksum text not null,
      applied_at timestamptz not null default clock_timestamp(),
      primary key (line, number)
    );
  end if;
  if to_regclass('pawl.migration_functions') is null then
    create table pawl.migration_functions (
      line text primary key,
      checksum text,
      version text not null,
      signatures text[] not null,
      retired text[] not null,
      applied_at timestamptz not null
    );
  end if;
  if to_regclass('pawl.migration_object') is null then
    create table pawl.migration_object (
      kind text not null,
      name text not null,
      line text not null,
      relation text,
      definition text not null,
      server integer not null,
      primary key (kind, name)
    );
  end if;
end
$$`;

/** Begins the transaction of one step, and waits for the steps of other processes. */
export function begin(schema: SchemaName): string {
  return [OPEN, FOUNDATION, ...(schema.isDefault ? [] : [ownHash(schema)]), MAKE_BOTH, REMEMBER].join(';\n');
}

/**
 * Transactions lock hashes of names and keys, and these hashes share one space of numbers in the whole database. So a schema of
 * another name has a hash function of its own. Postgres writes that function into its callers.
 */
function ownHash({ name, salt }: SchemaName): string {
  return `do $$
begin
  if to_regprocedure('${name}.hashtextextended(text, bigint)') is null then
    create function ${name}.hashtextextended(text, bigint) returns bigint language sql immutable strict parallel safe
    as $hash$select pg_catalog.hashtextextended($1, $2 operator(pg_catalog.#) '${salt}'::bigint)$hash$;
  end if;
end
$$`;
}

export const IS_FOUNDED: Statement = statement(
  'migrate.is_founded',
  `
select pg_catalog.to_regclass('pawl.migration') is not null as tables,
  pg_catalog.to_regclass('pawl.migration_functions') is not null as functions`,
  { prepare: false },
);

export const READ_MIGRATIONS: Statement = statement(
  'migrate.read_migrations',
  `
select line, number, name, checksum, ${instant('applied_at')} as applied_at
from pawl.migration
order by line, number`,
  { prepare: false },
);

export const READ_FUNCTIONS: Statement = statement(
  'migrate.read_functions',
  `
select line, checksum, version, ${instant('applied_at')} as applied_at,
  array(select s from pg_catalog.unnest(retired) s where pg_catalog.to_regprocedure(s) is not null) as retired
from pawl.migration_functions
order by line`,
  { prepare: false },
);

/** Applies a numbered file and notes it. The functions of its line may depend on it, so they are applied once more. */
export function applyTables(migration: Migration): { run: string; note: string } {
  const { line, number, name, sql } = migration;
  return {
    run: `-- migrate.apply ${line}/${number}\n${sql.trim()}`,
    note: `${PIN};
insert into pawl.migration (line, number, name, checksum) values (${quote(line)}, ${number}, ${quote(name)}, ${quote(checksum(sql))});
update pawl.migration_functions set checksum = null where line = ${quote(line)};
${noteObjects(quote(line))}`,
  };
}

/**
 * Applies the functions and views of a line, in whatever order they call each other. Notes the signatures of the functions:
 * those that were made in this transaction. A function that the previous version defined stays, because that version's
 * processes may call it, and is noted as retired.
 */
export function applyFunctions({ line, sql }: FunctionSet, version: string): { run: string; note: string } {
  return {
    run: `set local check_function_bodies = off;\n-- migrate.apply ${line}\n${sql.trim()}`,
    note: `${PIN};
insert into pawl.migration_functions as f (line, checksum, version, signatures, retired, applied_at)
select ${quote(line)}, ${quote(checksum(sql))}, ${quote(version)}, array(
    select p.oid::regprocedure::text from pg_proc p
    where p.pronamespace = 'pawl'::regnamespace and p.xmin = pg_current_xact_id()::xid order by 1
  ), '{}', clock_timestamp()
on conflict (line) do update
set checksum = excluded.checksum, version = excluded.version, signatures = excluded.signatures, applied_at = excluded.applied_at,
  retired = array(
    select s from unnest(f.signatures || f.retired) s where s <> all (excluded.signatures) and to_regprocedure(s) is not null order by s
  );
${noteObjects(quote(line))}`,
  };
}

/** One step as a script for psql. */
export function script({ run, note }: { run: string; note: string }, schema: SchemaName): string {
  return schema.text(`${begin(schema)};\n\n${run}\n\n${note};\ncommit;\n`);
}

function quote(value: string): string {
  return `'${value.replaceAll("'", "''")}'`;
}
