import pg from 'pg';
import { onTestFinished } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';

/** A database with tables of a test's own, and a session in it. */
export interface World {
  readonly engine: PostgresEngine;
  readonly query: <Row = Record<string, unknown>>(text: string) => Promise<Row[]>;
  /** Another session. */
  readonly elsewhere: (text: string) => Promise<void>;
  /** The number of the server's version. */
  readonly server: number;
}

export async function openWorld(setup: string): Promise<World> {
  const database = await freshDatabase();
  const engine = postgres(database.url, { max: 4 });
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await engine.stop();
    await database.drop();
  });
  await client.query(setup);
  return {
    engine,
    query: async <Row>(text: string): Promise<Row[]> => (await client.query(text)).rows as Row[],
    elsewhere: async (text) => {
      const other = new pg.Client({ connectionString: database.url });
      await other.connect();
      try {
        await other.query(text);
      } finally {
        await other.end();
      }
    },
    server: Number((await client.query('show server_version_num')).rows[0].server_version_num),
  };
}
