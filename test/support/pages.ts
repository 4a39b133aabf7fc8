import { expect } from 'vitest';

interface Client {
  query(text: string): Promise<{ rows: unknown[] }>;
}

/**
 * Pages of Pawl's tables and indexes that one call reads, including all statements inside it; the least of several calls, each
 * rolled back. Not the "buffers" of `explain`: these count the catalogs, too. A session reads a thousand of their pages again
 * whenever others make tables so fast that the server empties its caches.
 */
export async function pagesRead(client: Client, call: string): Promise<number> {
  const read = async (): Promise<number> => {
    const { rows } = await client.query(
      `select sum(pg_stat_get_xact_blocks_fetched(oid))::int as n from pg_class where relnamespace = 'pawl'::regnamespace`,
    );
    return (rows as { n: number }[])[0]?.n ?? 0;
  };
  let least = Infinity;
  for (let n = 0; n < 4; n += 1) {
    await client.query('begin');
    const before = await read();
    await client.query(call);
    least = Math.min(least, (await read()) - before);
    await client.query('rollback');
  }
  expect(least).toBeGreaterThan(0);
  return least;
}
