import { afterAll, beforeAll, expect, test } from 'vitest';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { spawnChild } from '../../support/process.ts';
import { gate } from '../contract/fixture.ts';
import { SqlSession } from '../sql-session.ts';

let url: string;
let engine: PostgresEngine;
let session: SqlSession;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20, logger: recordLog() });
  session = await SqlSession.open(url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
});

const kinds = { job: {}, other: {}, once: { unique: 'key' }, digest: { unique: { by: 'payload' } } } as const;
type Any = Queue<typeof kinds>;

function newQueue(shards = 1): Any {
  nth += 1;
  return createQueue(engine, `move ${nth}`, { kinds, retry: { attempts: 1 }, shards });
}

async function run(queue: Any, handler: (unit: Unit) => unknown = () => 'done'): Promise<void> {
  const worker = queue.work({ job: handler, other: handler, once: handler, digest: handler });
  await queue.drain();
  await worker.stop();
}

test('what waits, and what ended in error, moves with its id, payload, options and history, and runs there', async () => {
  const [from, to] = [newQueue(), newQueue(4)];
  await to.register();
  const failed = await from.enqueue('job', 'fails', { key: 'k', tags: ['blue'], meta: { a: 1 }, priority: 3 });
  await run(from, () => {
    throw new Error('no printer');
  });
  const done = await from.enqueue('job', 'done');
  await run(from);
  const delayed = await from.enqueue('job', 'later', { delay: '1h' });
  const ids = await from.enqueueMany(Array.from({ length: 300 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const keyed = await from.enqueueMany([1, 2, 3].map((n) => ({ kind: 'job', payload: n, key: 'line' }) as const));
  expect(await from.move('', to)).toEqual({ done: 305, left: 1 });
  expect(await from.get(done.id)).toMatchObject({ status: 'complete' });
  expect(await to.get(failed.id)).toMatchObject({
    status: 'new',
    key: 'k',
    tags: ['blue'],
    meta: { a: 1 },
    priority: 3,
    attempt: 0,
  });
  expect((await to.history(failed.id)).map(({ reason }) => reason)).toEqual([
    'enqueue',
    'claim',
    'attempts exhausted',
    'moved',
  ]);
  expect((await to.history(failed.id))[2]?.error).toContain('no printer');
  expect((await to.get(delayed.id)).runAt?.getTime()).toBeGreaterThan(Date.now() + 3_000_000);
  await expect(from.get(failed.id)).rejects.toBeInstanceOf(NotFound);
  expect((await to.search('tag:blue')).jobs.map(({ id }) => id)).toEqual([failed.id]);
  expect(await from.stats()).toMatchObject({ new: 0, error: 0 });
  const seen: unknown[] = [];
  await run(to, ({ payload }) => seen.push(payload));
  expect(seen).toHaveLength(304);
  expect(seen.filter((one) => [1, 2, 3].includes(one as number)).length).toBe(6);
  expect(await to.get(ids[7] ?? '')).toMatchObject({ status: 'complete', queue: to.name });
  expect(await to.get(keyed[2] ?? '')).toMatchObject({ status: 'complete' });
});

test('jobs get another kind where one is named; a kind that does not take them leaves them', async () => {
  const [from, to] = [newQueue(), newQueue()];
  await to.register();
  const { id } = await from.enqueue('job', 1);
  expect(await from.move('', to, { toKind: 'once' })).toEqual({ done: 0, left: 1 });
  expect(await from.move('', to.name, { toKind: 'other' })).toEqual({ done: 1, left: 0 });
  expect(await to.get(id)).toMatchObject({ kind: 'other', status: 'new' });
  await expect(from.move('', to, { toKind: 'othr' })).rejects.toBeInstanceOf(NotFound);
  await expect(from.move('', 'nowhere')).rejects.toBeInstanceOf(NotFound);
  await expect(from.move('', from)).rejects.toBeInstanceOf(InvalidInput);
  await expect(from.move('status:nwe', to)).rejects.toBeInstanceOf(InvalidInput);
});

test('a unique job stays where the other queue has the one of its key or payload, and makes room for a new one', async () => {
  const [from, to] = [newQueue(), newQueue()];
  for (const queue of [from, to]) {
    await queue.enqueue('once', 1, { key: 'k' });
    await queue.enqueue('digest', 'same');
  }
  expect(await from.move('', to)).toEqual({ done: 0, left: 2 });
  const other = await from.enqueue('digest', 'other');
  expect(await from.move('', to)).toEqual({ done: 1, left: 2 });
  expect(await to.enqueue('digest', 'other')).toMatchObject({ id: other.id, duplicate: true });
  expect(await from.enqueue('digest', 'other')).toMatchObject({ duplicate: false });
});

test('what is in progress stays; jobs behind one that left their key go on', async () => {
  const [from, to] = [newQueue(), newQueue()];
  await to.register();
  const work = gate();
  const seen: unknown[] = [];
  const ids = await from.enqueueMany([1, 2, 3].map((n) => ({ kind: 'job', payload: n, key: 'k' }) as const));
  const handler = async ({ payload }: Unit): Promise<void> => {
    seen.push(payload);
    await work.opened;
  };
  const worker = from.work({ job: handler, other: handler, once: handler, digest: handler }, { prefetch: 0 });
  await eventually(() => expect(seen).toEqual([1]));
  await expect(
    engine.query({ name: 'test.move', text: 'select pawl.move($1::jsonb)', prepare: true } as never, [
      JSON.stringify({ id: ids[0], to: to.name }),
    ]),
  ).rejects.toBeInstanceOf(Conflict);
  expect(await session.one('select pawl.move($1)', [JSON.stringify({ id: ids[1], to: to.name })])).toEqual({
    id: ids[1],
    status: 'new',
  });
  work.open();
  await from.drain();
  await worker.stop();
  expect(seen).toEqual([1, 3]);
  expect(await to.get(ids[1] ?? '')).toMatchObject({ status: 'new' });
});

test('a job of a batch, and one that another comes after, are still waited for', async () => {
  const [from, to] = [newQueue(), newQueue()];
  await to.register();
  const batch = await from.batch({ onDone: { kind: 'other', payload: 'batch is done' } });
  const member = await batch.enqueue({ kind: 'job', payload: 'member' });
  await batch.seal();
  const child = await from.enqueue('job', 'child', { after: [member] });
  expect(await from.move('', to)).toEqual({ done: 1, left: 1 });
  await run(to);
  await eventually(async () => expect((await batch.progress()).doneAt).not.toBeNull());
  await run(from);
  expect(await from.get(child.id)).toMatchObject({ status: 'complete' });
});

// Invariants J15.
test('a move whose process is killed goes on with the next call: each job is in one of the queues, and runs once', async () => {
  const [from, to] = [newQueue(), newQueue()];
  await to.register();
  await from.enqueueMany(Array.from({ length: 450 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const child = spawnChild('queue/change/remove.child.ts', [url, from.name, to.name], {
    PAWL_FAULT: 'queue.changed_some:kill#2',
  });
  expect((await child.exited).signal).toBe('SIGKILL');
  const [{ new: left }, { new: moved }] = [await from.stats(), await to.stats()];
  expect([left, moved]).toEqual([250, 200]);
  expect(await from.move('status:new', to)).toEqual({ done: 250, left: 0 });
  const seen = new Set<unknown>();
  await run(to, ({ payload }) => seen.add(payload));
  expect(seen.size).toBe(450);
});

// Invariants J15.
test('enqueues and workers while jobs move: every job runs once, in one of the two queues', async () => {
  const [from, to] = [newQueue(), newQueue()];
  await to.register();
  const seen: unknown[] = [];
  const handler = ({ payload }: Unit): void => void seen.push(payload);
  const all = { job: handler, other: handler, once: handler, digest: handler };
  const workers = [from.work(all, { concurrency: 2 }), to.work(all, { concurrency: 2 })];
  const producer = (async () => {
    for (let n = 0; n < 40; n += 1)
      await from.enqueueMany(
        [0, 1, 2, 3, 4].map((k) => ({ kind: 'job', payload: n * 5 + k, ...(k > 2 && { key: `k${k}` }) }) as const),
      );
  })();
  for (let n = 0; n < 10; n += 1) await from.move('status:new', to);
  await producer;
  await Promise.all([from.drain(), to.drain()]);
  await Promise.all(workers.map((one) => one.stop()));
  expect([...seen].toSorted((a, b) => Number(a) - Number(b))).toEqual(Array.from({ length: 200 }, (_, n) => n));
});
