import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

const QUEUES = 40;
const DELAYED = 2000;
const BATCHES = 10;

test('the figures of many queues read waiting and running jobs once, and not once per queue', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  const client = new pg.Client(url);
  await client.connect();
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  onTestFinished(async () => {
    end();
    await client.end();
    await engine.stop();
  });
  const deep = createQueue(engine, 'deep', { kinds: { one: {} } });
  const runAt = new Date('2100-01-01');
  await deep.enqueueMany(Array.from({ length: DELAYED }, (_, n) => ({ kind: 'one', payload: n, runAt })));
  let running = 0;
  const worker = deep.work({
    one: async () => {
      running += 1;
      await ended;
    },
  });
  for (let n = 1; n <= BATCHES; n += 1) {
    await deep.enqueue('one', n);
    await until('it runs', () => running === n);
  }
  // The table statistics describe one queue that has all jobs.
  await client.query('analyze');
  await client.query(
    `insert into pawl.queue_definition (name) select 'queue-' || n from generate_series(1, ${QUEUES}) n`,
  );
  await client.query('begin');
  const { rows } = await client.query(
    "select f.stats from pawl.queue_figures(null, 10000) f join pawl.queue_definition d on d.id = f.queue order by d.name = 'deep' desc",
  );
  const read = await client.query<{ relname: string; n: string }>(
    'select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as n from pg_stat_xact_user_tables',
  );
  await client.query('rollback');
  expect(rows).toHaveLength(QUEUES + 1);
  expect(rows[0].stats).toMatchObject({ delayed: DELAYED, inProgress: BATCHES, ready: 0 });
  expect(rows[1].stats).toMatchObject({ delayed: 0, inProgress: 0, ready: 0 });
  const readOf = (table: string): number => Number(read.rows.find(({ relname }) => relname === table)?.n);
  expect(readOf('queue_delayed')).toBeLessThanOrEqual(DELAYED);
  expect(readOf('queue_running')).toBeLessThanOrEqual(BATCHES);
  end();
  await worker.stop();
});
