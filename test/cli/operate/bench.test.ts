import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { pawl, startPawl } from '../pawl.ts';

test('bench prints its figures and leaves no jobs', async () => {
  const { url } = await freshDatabase();
  const { code, stdout } = await pawl(['bench', '--jobs', '1500', '--pickups', '5', '-o', 'json'], { url });
  expect(code).toBe(0);
  const figures = JSON.parse(stdout);
  expect(figures).toMatchObject({ jobs: 1500, concurrency: 10, node: process.versions.node });
  for (const name of ['enqueuePerSecond', 'drainPerSecond', 'pickupP50Ms', 'pickupP95Ms'])
    expect(figures[name]).toBeGreaterThan(0);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  expect((await client.query('select from pawl.queue_job')).rowCount).toBe(0);
});

test('two benches on one database would measure each other: the second is 5', async () => {
  const { url } = await freshDatabase();
  const first = startPawl(['bench', '--jobs', '1', '--pickups', '100000'], { url });
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  const admin = createQueueAdmin(engine);
  await until('it works', async () => (await admin.workers()).length > 0);
  expect(await pawl(['bench'], { url })).toMatchObject({ code: 5, stdout: '' });
  first.signal('SIGINT');
  expect((await first.ended).code).toBe(130);
});

test('--dry-run measures nothing', async () => {
  expect(await pawl(['bench', '--dry-run'], { url: 'postgres://127.0.0.1:1/none' })).toMatchObject({
    code: 0,
    stdout: '',
  });
});
