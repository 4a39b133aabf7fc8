import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { makeTemplate, TEMPLATE } from './servers/template.ts';

/** A database of a test's own. */
export interface FreshDatabase {
  readonly url: string;
  readonly name: string;
  /** Removes it, breaking the connections that are left. The end of the run does so, too. */
  drop(): Promise<void>;
}

/** A new database on the run's server: a copy of the migrated template, or an empty one with `migrated: false`. */
export async function freshDatabase({ migrated = true }: { migrated?: boolean } = {}): Promise<FreshDatabase> {
  const prefix = `pawl_${inject('runId')}_`;
  const name = prefix + randomBytes(6).toString('hex');
  await asAdmin(async (admin) => {
    const template = migrated ? await (migratedOnce ??= migratedTemplate(admin, `${prefix}template`)) : 'template1';
    await admin.query(`create database "${name}" template "${template}" ${await (copyingOnce ??= copying(admin))}`);
  });
  return { url: urlOf(name), name, drop: () => asAdmin((admin) => dropDatabase(admin, name)) };
}

/** The server ends the sessions that are left, and waits five seconds for them: longer than that, a busy machine may not run one. */
async function dropDatabase(admin: pg.ClientBase, name: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await admin.query(`drop database if exists "${name}" with (force)`);
      return;
    } catch (error) {
      const isInUse = error instanceof pg.DatabaseError && error.code === '55006';
      if (!isInUse || tries === 6) throw error;
    }
  }
}

let migratedOnce: Promise<string> | undefined;

/** That of the run's cluster. On a server that is given, the first test file that needs it makes it, while others wait at the lock. */
async function migratedTemplate(admin: pg.ClientBase, name: string): Promise<string> {
  if (inject('cluster') !== '') return TEMPLATE;
  await admin.query('select pg_advisory_lock(hashtext($1))', [name]);
  try {
    if (!(await exists(admin, name))) await makeTemplate(inject('serverUrl'), name);
    return name;
  } finally {
    await admin.query('select pg_advisory_unlock(hashtext($1))', [name]);
  }
}

async function exists(admin: pg.ClientBase, name: string): Promise<boolean> {
  const { rowCount } = await admin.query('select from pg_database where datname = $1', [name]);
  return rowCount === 1;
}

let copyingOnce: Promise<string> | undefined;

/**
 * Copying the template's files takes the server 19 ms of the processor for a database made and dropped; writing them to the
 * log, which Postgres 15 and later do unless told otherwise, 50 ms.
 */
async function copying(admin: pg.ClientBase): Promise<string> {
  const { rows } = await admin.query<{ known: boolean }>(
    "select current_setting('server_version_num')::integer >= 150000 as known",
  );
  return rows[0]?.known ? 'strategy file_copy' : '';
}

let admins: pg.Pool | undefined;

/**
 * In a database that no test drops or copies. The connections are kept, since two new ones for each test are 20 ms of the
 * processor, and do not keep the process alive.
 */
async function asAdmin<T>(fn: (admin: pg.ClientBase) => Promise<T>): Promise<T> {
  admins ??= new pg.Pool({
    connectionString: inject('serverUrl'),
    max: 2,
    idleTimeoutMillis: 0,
    allowExitOnIdle: true,
  }).on('error', () => {});
  const admin = await admins.connect();
  try {
    return await fn(admin);
  } finally {
    admin.release();
  }
}

function urlOf(database: string): string {
  const url = new URL(inject('serverUrl'));
  url.pathname = `/${database}`;
  return url.href;
}
