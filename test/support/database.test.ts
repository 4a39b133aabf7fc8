import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from './database.ts';

async function connect(connectionString: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

test('databases made at once share nothing', async () => {
  const databases = await Promise.all([1, 2, 3].map(() => freshDatabase({ migrated: false })));
  for (const { url, name } of databases) {
    const client = await connect(url);
    expect((await client.query('select current_database() as name')).rows).toEqual([{ name }]);
    await client.query('create table mine (id int)');
  }
  expect(new Set(databases.map((database) => database.name)).size).toBe(3);
});

test('a dropped database is gone, connections or not', async () => {
  const database = await freshDatabase({ migrated: false });
  const { url } = database;
  const client = await connect(url);
  const broken = new Promise<void>((resolve) => client.on('end', resolve));
  await database.drop();
  await broken;
  await expect(connect(url)).rejects.toMatchObject({ code: '3D000' });
});
