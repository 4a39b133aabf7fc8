import { expect, onTestFinished, test } from 'vitest';
import { sql } from '../../../src/capture/index.ts';
import { openScene } from '../scene.ts';

test('the batches of a worker together lock at most half of the keys that the server has room for', async () => {
  const { capture, projection, client, query } = await openScene({
    into: 'order_status',
    columns: { status: 'text' },
    text: [],
    build: sql`select id, status from orders where id = any ($1::bigint[])`,
  });
  const [server] = await query<{ room: number }>(
    `select current_setting('max_locks_per_transaction')::int
      * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) as room`,
  );
  const concurrency = 8;
  const share = Math.floor((server?.room ?? 0) / 2 / concurrency);
  await capture.apply();
  await client.query('insert into orders select 1000 + i, 1 from generate_series(1, $1::int) i', [share + 500]);
  const sizes: number[] = [];
  projection.events.on('projected', ({ keys }) => sizes.push(keys));
  const worker = projection.run({ batch: 10_000, concurrency });
  onTestFinished(() => worker.stop());
  await projection.settled();
  expect(Math.max(...sizes)).toBeLessThanOrEqual(share);
  expect(Math.max(...sizes)).toBeGreaterThan(0);
});
