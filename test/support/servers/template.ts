import pg from 'pg';

/** The migrated database of a made cluster, for others to be copied from. */
export const TEMPLATE = 'pawl_test_template';

/** Makes a migrated database that accepts no connections: Postgres refuses to copy one that has some. */
export async function makeTemplate(serverUrl: string, name: string): Promise<void> {
  const building = `${name}_building`;
  const admin = new pg.Client({ connectionString: serverUrl });
  await admin.connect();
  try {
    await admin.query(`drop database if exists "${building}" with (force)`);
    await admin.query(`create database "${building}"`);
    await migrate(serverUrl, building);
    await admin.query(`alter database "${building}" with allow_connections false is_template true`);
    await admin.query(`alter database "${building}" rename to "${name}"`);
  } finally {
    await admin.end();
  }
}

/**
 * Has the server write what a new connection reads of a database's catalog, into the template, and so into each copy. A server removes
 * that file as it starts, and the first connection of each database makes it: 11 ms of the processor instead of 5.
 */
export async function warmTemplate(serverUrl: string, name: string): Promise<void> {
  const admin = new pg.Client({ connectionString: serverUrl });
  await admin.connect();
  try {
    await admin.query(`alter database "${name}" with allow_connections true`);
    const first = new pg.Client({ connectionString: urlOf(serverUrl, name) });
    await first.connect();
    await first.end();
    await admin.query(`alter database "${name}" with allow_connections false`);
  } finally {
    await admin.end();
  }
}

/** Has the migrated template take the place of the database `postgres`, which is empty. The server's URL stays what it is. */
export async function enterTemplate(serverUrl: string): Promise<void> {
  const admin = new pg.Client({ connectionString: urlOf(serverUrl, 'template1') });
  await admin.connect();
  try {
    await admin.query('alter database postgres rename to postgres_before');
    await admin.query(`alter database "${TEMPLATE}" with allow_connections true is_template false`);
    await admin.query(`alter database "${TEMPLATE}" rename to postgres`);
  } finally {
    await admin.end();
  }
}

/** The engine is loaded here, so that tests of what lies below it do not need it. */
export async function migrate(serverUrl: string, database: string): Promise<void> {
  const { postgres } = await import('../../../src/engine/postgres/index.ts');
  await using engine = postgres(urlOf(serverUrl, database));
  await engine.migrate();
}

function urlOf(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}
