import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';

// Jobs that end in the transaction that enqueues them, because a job that they come after had failed before.

let database: FreshDatabase;
let engine: PostgresEngine;
let queue: Queue<{ job: { attempts: number } }>;
let failed: string;
let done: string;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 10, logger: recordLog() });
  queue = createQueue(engine, 'jobs', { kinds: { job: { attempts: 1 } } });
  failed = (await queue.enqueue('job', 'fails')).id;
  done = (await queue.enqueue('job', 'runs')).id;
  for (const unit of await queue.claim({ limit: 2 })) {
    await (unit.job.id === failed ? unit.fail(new Error('it fails')) : unit.complete());
  }
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

test('a node of a flow after one that ended at once, and after a job outside, ends as well', async () => {
  const ids = await queue.flow([
    { name: 'a', kind: 'job', payload: 'a', after: [failed] },
    { name: 'b', kind: 'job', payload: 'b', after: ['a', done] },
    { name: 'c', kind: 'job', payload: 'c', after: ['b'] },
    { name: 'd', kind: 'job', payload: 'd', after: ['a', 'c', done], afterError: 'run' },
  ]);
  const statuses = await Promise.all(
    ['a', 'b', 'c', 'd'].map(async (name) => (await queue.get(ids[name] ?? '')).status),
  );
  expect(statuses).toEqual(['error', 'error', 'error', 'new']);
  const [unit] = await queue.claim();
  expect(unit?.payload).toBe('d');
  await unit?.complete();
});

test('a batch counts a job that ended at once, and ends', async () => {
  const admin = createQueueAdmin(engine);
  const id = await admin.newBatch('jobs', {}, [
    { kind: 'job', payload: 1, after: [failed] },
    { kind: 'job', payload: 2 },
  ]);
  await admin.addToBatch(id, [{ kind: 'job', payload: 3, after: [failed], afterError: 'cancel' }]);
  await admin.sealBatch(id);
  expect(await admin.batch(id)).toMatchObject({ total: 3, outstanding: 1, errors: 1, cancelled: 1, doneAt: null });
  const [unit] = await queue.claim();
  await unit?.complete();
  expect(await admin.batch(id)).toMatchObject({
    total: 3,
    outstanding: 0,
    complete: 1,
    doneAt: expect.any(Date) as Date,
  });
});
