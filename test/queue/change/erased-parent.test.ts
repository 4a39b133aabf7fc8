import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

// Jobs and batches that wait for an erased job, where the erase leaves the decision about them to a worker.

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
