import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { hasPooler, startPooler } from '../../support/servers/pooler.ts';
import { FAULTS, Scene } from '../faults.ts';

if (!hasPooler) console.warn('SKIPPED: pgbouncer is not installed; queues behind a pooler are not tested in this run');

test.skipIf(!hasPooler).for([
  ['lease', 'without'],
  ['lease', 'with'],
  ['transaction', 'without'],
] as const)(
  'behind PgBouncer in transaction mode, hold: %s works, %s a direct URL for LISTEN',
  async ([hold, direct]) => {
    const database = await freshDatabase();
    onTestFinished(() => database.drop());
    const pooler = await startPooler(database.url, 8);
    onTestFinished(() => pooler.stop());
    const scene = await Scene.open(database.url);
    const log = recordLog();
    const behind = { url: pooler.url, prepare: false, logger: log };
    await scene.worker(hold, { lease: '20s' }, direct === 'with' ? { ...behind, directUrl: database.url } : behind);
    await scene.worker(hold, { lease: '20s' }, behind);
    const producer = postgres(pooler.url, { prepare: false, logger: recordLog() });
    onTestFinished(() => producer.stop());
    const queue = createQueue(producer, 'faults', FAULTS);
    const ids = await queue.enqueueMany(
      Array.from({ length: 200 }, (_, n) => ({
        kind: 'job',
        payload: {},
        ...(n % 2 === 0 ? { key: `k${n % 16}` } : {}),
      })),
    );
    await producer.transaction(async (tx) => void ids.push((await queue.enqueue('job', {}, { tx })).id));
    await scene.drained();
    expect(await scene.breaches()).toEqual([]);
    expect(await scene.disorder()).toEqual([]);
    expect(await scene.one('select count(*)::int from test_run')).toBe(201);
    expect(await scene.one('select max(attempt) from test_run')).toBe(1);
  },
);
