import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { SqlSession } from '../sql-session.ts';

// Jobs and batches that wait for a job that was erased, or whose queue was removed, where the decision about them is left to a worker.

let database: FreshDatabase;
let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 10, logger: recordLog() });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

const kinds = { job: {} } as const;
const KEYS = Array.from({ length: 12 }, (_, n) => `key ${n}`);

function newQueue(): Queue<typeof kinds> {
  nth += 1;
  return createQueue(engine, `erased parent ${nth}`, { kinds });
}

const LEFT = statement(
  'test.left',
  `select count(*)::int as n from pawl.queue_dead d
   where not exists (select from pawl.queue_job j where j.shard = d.shard and j.id = d.id)`,
);

/** Runs a worker while `check` is repeated; at the end nothing is left of the erased jobs. */
async function decided(queue: Queue<typeof kinds>, check: () => Promise<void>): Promise<void> {
  const worker = queue.work({ job: () => 'it ran' });
  try {
    await eventually(check);
    await eventually(async () => expect(await engine.query(LEFT)).toEqual([{ n: 0 }]));
  } finally {
    await worker.stop();
  }
}

test('a job after one that a transaction erases is cancelled, as after one that was cancelled', async () => {
  const queue = newQueue();
  const parent = await queue.enqueue('job', 1);
  const cancelled = await queue.enqueue('job', 2, { after: [parent.id] });
  const runs = await queue.enqueue('job', 3, { after: [parent.id], afterCancel: 'run' });
  await engine.transaction((tx) => queue.erase(parent.id, { tx }));
  await decided(queue, async () => {
    expect(await queue.get(cancelled.id)).toMatchObject({ status: 'cancelled' });
    expect(await queue.get(runs.id)).toMatchObject({ status: 'complete', result: 'it ran' });
  });
});

test('a batch counts a job that a transaction erases as cancelled', async () => {
  const queue = newQueue();
  const batch = await queue.batch({});
  const id = await batch.enqueue({ kind: 'job', payload: 1 });
  await batch.seal();
  await engine.transaction((tx) => queue.erase(id, { tx }));
  await decided(queue, async () => {
    expect(await batch.progress()).toMatchObject({ total: 1, outstanding: 0, cancelled: 1, complete: 0 });
  });
});

test('nodes of a flow that share a row of their waits are cancelled with a node that is erased', async () => {
  const queue = newQueue();
  const node = (name: string, after: string[] = []) => ({ name, kind: 'job', payload: name, after }) as const;
  const ids = await queue.flow([node('a'), node('x'), node('b', ['a']), node('c', ['a', 'x'])]);
  await queue.erase(ids['a'] ?? '');
  await decided(queue, async () => {
    for (const name of ['b', 'c']) expect(await queue.get(ids[name] ?? '')).toMatchObject({ status: 'cancelled' });
    expect(await queue.get(ids['x'] ?? '')).toMatchObject({ status: 'complete' });
  });
});

test('a job after one that was cancelled in a queue that was removed since is cancelled, and nothing of that queue is left', async () => {
  const [queue, other] = [newQueue(), newQueue()];
  const parent = await queue.enqueue('job', 1);
  const cancelled = await other.enqueue('job', 2, { after: [parent.id] });
  const runs = await other.enqueue('job', 3, { after: [parent.id], afterCancel: 'run' });
  await engine.transaction((tx) => queue.cancel(parent.id, { tx }));
  await createQueueAdmin(engine).remove(queue.name);
  await decided(other, async () => {
    expect(await other.get(cancelled.id)).toMatchObject({ status: 'cancelled' });
    expect(await other.get(runs.id)).toMatchObject({ status: 'complete', result: 'it ran' });
  });
});

test('a removal leaves nothing of jobs for which only jobs of the same queue wait', async () => {
  const queue = newQueue();
  const parent = await queue.enqueue('job', 1);
  await queue.enqueue('job', 2, { after: [parent.id] });
  await engine.transaction((tx) => queue.cancel(parent.id, { tx }));
  expect(await createQueueAdmin(engine).remove(queue.name, { force: true })).toMatchObject({ jobs: 2, cancelled: 1 });
  await eventually(async () => expect(await engine.query(LEFT)).toEqual([{ n: 0 }]));
});

test('a removal waits for no waiter of a second shard, and that waiter learns that its job was cancelled', async () => {
  const [queue, other] = [createQueue(engine, `shards ${(nth += 1)}`, { kinds, shards: 2 }), newQueue()];
  const parents = await queue.enqueueMany(KEYS.map((key) => ({ kind: 'job', payload: key, key }) as const));
  const children: string[] = [];
  for (const parent of parents) children.push((await other.enqueue('job', parent, { after: [parent] })).id);
  const holder = await SqlSession.open(database.url);
  onTestFinished(() => holder.end());
  await holder.begin();
  // As a settlement does that ends one of the jobs: it may wait for what the removal has locked.
  await holder.client.query('select from pawl.queue_watch_part where shard = 1 for update');
  await createQueueAdmin(engine).remove(queue.name, { force: true });
  await holder.commit();
  await decided(other, async () => {
    for (const id of children) expect(await other.get(id)).toMatchObject({ status: 'cancelled' });
  });
});
