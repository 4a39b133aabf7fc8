import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { startBouncer } from '../support/bouncer.ts';
import { freshDatabase } from '../support/database.ts';
import { recordLog } from '../support/log.ts';
import { FAULTS, Scene } from './faults.ts';

test.for([
  ['lease', 'without'],
  ['lease', 'with'],
  ['transaction', 'without'],
] as const)(
  'behind PgBouncer in transaction mode, hold: %s works, %s a direct URL for LISTEN',
  async ([hold, direct], context) => {
    const database = await freshDatabase();
    onTestFinished(() => database.drop());
    const bouncer = await startBouncer(database.url);
    if (bouncer === undefined) {
      console.warn('SKIPPED: there is no pgbouncer here; apt-get install pgbouncer');
      return context.skip();
    }
    onTestFinished(() => bouncer.stop());
    const scene = await Scene.open(database.url);
    const log = recordLog();
    const behind = { url: bouncer.url, prepare: false, logger: log };
    await scene.worker(hold, {}, direct === 'with' ? { ...behind, directUrl: database.url } : behind);
    await scene.worker(hold, {}, behind);
    const producer = postgres(bouncer.url, { prepare: false, logger: recordLog() });
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
