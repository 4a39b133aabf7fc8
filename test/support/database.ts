import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';

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
    const template = migrated ? await migratedTemplate(admin, `${prefix}template`) : 'template1';
    await admin.query(`create database "${name}" template "${template}"`);
  });
  const drop = (): Promise<void> =>
    asAdmin(async (admin) => void (await admin.query(`drop database if exists "${name}" with (force)`)));
  return { url: urlOf(name), name, drop };
}

/**
 * Made by the first test file that needs it, while those of other workers wait at the advisory lock. Nobody may connect to
 * it afterwards: Postgres refuses to copy a database that somebody is in.
 */
async function migratedTemplate(admin: pg.Client, name: string): Promise<string> {
  if (await exists(admin, name)) return name;
  await admin.query('select pg_advisory_lock(hashtext($1))', [name]);
  try {
    if (await exists(admin, name)) return name;
    const building = `${name}_building`;
    await admin.query(`drop database if exists "${building}" with (force)`);
    await admin.query(`create database "${building}"`);
    await migrate(urlOf(building));
    await admin.query(`alter database "${building}" with allow_connections false is_template true`);
    await admin.query(`alter database "${building}" rename to "${name}"`);
    return name;
  } finally {
    await admin.query('select pg_advisory_unlock(hashtext($1))', [name]);
  }
}

/** Loaded here, so that tests of what lies below the engine do not need it. */
async function migrate(url: string): Promise<void> {
  const { postgres } = await import('../../src/engine/postgres/index.ts');
  const engine = postgres(url);
  try {
    await engine.migrate();
  } finally {
    await engine.stop();
  }
}

async function exists(admin: pg.Client, name: string): Promise<boolean> {
  const { rowCount } = await admin.query('select from pg_database where datname = $1', [name]);
  return rowCount === 1;
}

/** In a database that no test drops or copies. */
async function asAdmin<T>(fn: (admin: pg.Client) => Promise<T>): Promise<T> {
  const admin = new pg.Client({ connectionString: inject('serverUrl') });
  await admin.connect();
  try {
    return await fn(admin);
  } finally {
    await admin.end();
  }
}

function urlOf(database: string): string {
  const url = new URL(inject('serverUrl'));
  url.pathname = `/${database}`;
  return url.href;
}
