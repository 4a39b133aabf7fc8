import { afterAll, beforeAll, expect, test } from 'vitest';
import { Conflict, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type QueueOptions } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { gate } from '../contract/fixture.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let session: SqlSession;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 12, logger: recordLog() });
  session = await SqlSession.open(url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
});

function newQueue(options: Omit<QueueOptions, 'kinds'> = {}): Queue<{ job: object }> {
  nth += 1;
  return createQueue(engine, `finish ${nth}`, { kinds: { job: { attempts: 1 } }, ...options });
}

async function failed(queue: Queue<{ job: object }>, key?: string): Promise<string> {
  const { id } = await queue.enqueue('job', 'fails', { key });
  const [unit] = await queue.claim();
  await unit?.fail(new Error('no'));
  expect((await queue.get(id)).status).toBe('error');
  return id;
}

test('a job that waits is complete with its result, and never runs; its history says that it was by hand', async () => {
  const queue = newQueue();
  const ids = await queue.enqueueMany(
    (['0s', '1h', '0s'] as const).map((delay) => ({ kind: 'job', payload: 1, delay })),
  );
  for (const id of ids) expect(await queue.finish(id, { result: { by: 'hand' } })).toBe('complete');
  expect(await queue.claim({ limit: 5 })).toEqual([]);
  const [first = ''] = ids;
  expect(await queue.get(first)).toMatchObject({ status: 'complete', attempt: 0, result: { by: 'hand' }, error: null });
  expect(await queue.get(first)).toMatchObject({ claimedAt: null, processId: null, settledAt: expect.any(Date) });
  const moves = (await queue.history(first)).map(({ from, to, reason }) => `${from} ${to} ${reason}`);
  expect(moves).toEqual(['null new enqueue', 'new complete complete by hand']);
  expect(await queue.waitFor(first)).toEqual({ by: 'hand' });
  expect((await queue.search('status:complete')).jobs).toHaveLength(3);
  expect(await breaches(session.client)).toEqual([]);
});

test('a job that ended in error or was cancelled is complete; one that is complete or runs is a Conflict', async () => {
  const queue = newQueue();
  const error = await failed(queue);
  const { id: cancelled } = await queue.enqueue('job', 1);
  await queue.cancel(cancelled);
  for (const id of [error, cancelled]) {
    await queue.finish(id);
    expect(await queue.get(id)).toMatchObject({ status: 'complete', result: null });
    await expect(queue.finish(id)).rejects.toThrow(Conflict);
  }
  await queue.enqueue('job', 2);
  const [unit] = await queue.claim();
  await expect(queue.finish(unit?.job.id ?? '')).rejects.toThrow(/in progress/);
  await unit?.complete();
  await expect(queue.finish('999999')).rejects.toThrow(NotFound);
});

test('what comes after it runs, its key goes on, and a batch counts it as complete', async () => {
  const queue = newQueue();
  const { id: parent } = await queue.enqueue('job', 'parent', { delay: '1h' });
  const { id: child } = await queue.enqueue('job', 'child', { after: [parent] });
  await queue.finish(parent);
  expect((await queue.claim()).map(({ job }) => job.id)).toEqual([child]);

  await queue.enqueueMany(['head', 'next'].map((payload) => ({ kind: 'job', payload, key: 'k' })));
  const { id: head } = (await queue.search('head')).jobs[0] ?? {};
  await queue.finish(head ?? '');
  expect((await queue.claim({ limit: 3 })).map(({ payload }) => payload)).toEqual(['next']);

  const batch = await queue.batch({ onDone: { kind: 'job', payload: 'done' } });
  const member = await batch.enqueue({ kind: 'job', payload: 'member' });
  await batch.seal();
  await queue.finish(member);
  expect(await batch.progress()).toMatchObject({ errors: 0, cancelled: 0, outstanding: 0, doneAt: expect.any(Date) });
  expect((await queue.claim({ limit: 3 })).map(({ payload }) => payload)).toEqual(['done']);
});

test('a key that it blocks goes on', async () => {
  const queue = newQueue({ keyOnError: 'block' });
  const id = await failed(queue, 'k');
  await queue.enqueue('job', 'next', { key: 'k' });
  expect(await queue.claim()).toEqual([]);
  await createQueueAdmin(engine).finish(id);
  expect((await queue.claim()).map(({ payload }) => payload)).toEqual(['next']);
  expect((await queue.stats()).blockedKeys).toBe(0);
});

test('in a transaction that is rolled back it stays as it was', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  const undone = engine.transaction(async (tx) => {
    await queue.finish(id, { tx, result: 1 });
    expect((await queue.get(id, { tx })).status).toBe('complete');
    throw new Error('no');
  });
  await expect(undone).rejects.toThrow('no');
  expect(await queue.get(id)).toMatchObject({ status: 'new', result: null });
});

test('one that a transaction holds is in progress', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  const [begun, work] = [gate(), gate()];
  const job = async (): Promise<void> => {
    begun.open();
    await work.opened;
  };
  const worker = queue.work({ job }, { hold: 'transaction', concurrency: 1 });
  await begun.opened;
  await expect(queue.finish(id)).rejects.toThrow(/in progress/);
  work.open();
  await queue.drain();
  await worker.stop();
});
