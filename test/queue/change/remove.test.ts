import { afterAll, beforeAll, expect, test } from 'vitest';
import { Cancelled, Conflict, LockNotAvailable, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, createTopic, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { spawnChild } from '../../support/process.ts';
import { gate } from '../contract/fixture.ts';
import { breaches } from '../invariants.ts';
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

const kinds = { job: {}, once: { unique: 'key' } } as const;
type Any = Queue<typeof kinds>;

function newQueue(name = `remove ${(nth += 1)}`): Any {
  return createQueue(engine, name, { kinds, retry: { attempts: 3 } });
}

async function run(queue: Any, handler: (unit: Unit) => unknown = () => 'done'): Promise<void> {
  const worker = queue.work({ job: handler, once: handler });
  await queue.drain();
  await worker.stop();
}

/** How many rows each table has that name this queue, or a job of it. */
async function rowsOf(queue: number): Promise<Record<string, number>> {
  const { rows } = await session.client.query<{ name: string }>(
    `select c.relname as name from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'queue' and not a.attisdropped
    where c.relnamespace = 'pawl'::regnamespace and c.relkind = 'r' and a.atttypid = 'int2'::regtype order by 1`,
  );
  const found: Record<string, number> = {};
  for (const { name } of rows) {
    const n = Number(await session.one(`select count(*) from pawl.${name} t where t.queue = $1`, [queue]));
    if (n > 0) found[name] = n;
  }
  return found;
}

async function idOf(queue: Any): Promise<number> {
  await queue.register();
  return Number(await session.one('select pawl.queue_id($1)', [queue.name]));
}

test('an abandoned queue goes with all its rows, and the answer counts them; others are untouched', async () => {
  const [queue, other] = [newQueue(), newQueue()];
  const id = await idOf(queue);
  await queue.enqueueMany(Array.from({ length: 3000 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  await queue.enqueueMany([1, 2].map((n) => ({ kind: 'once', payload: n, key: `k${n}` }) as const));
  await queue.enqueue('job', 1, { tags: ['blue'], key: 'k', meta: { a: 1 } });
  await other.enqueue('job', 1);
  await run(queue);
  await queue.schedule('nightly', { cron: '0 4 * * *', kind: 'job' });
  await createTopic(engine, 'news').subscribe(queue.name, 'job');
  const cancelled = await queue.enqueue('job', 'no');
  await queue.cancel(cancelled.id);
  const admin = createQueueAdmin(engine);
  expect(await admin.remove(queue.name)).toEqual({
    queue: queue.name,
    jobs: 3004,
    cancelled: 0,
    moves: 1,
    schedules: 1,
    subscriptions: 1,
    batches: 0,
    workers: 0,
  });
  expect(await rowsOf(id)).toEqual({ queue_kind: 2 });
  expect(await session.one(`select count(*)::int from pawl.queue_output`)).toBe(0);
  expect((await admin.list()).map(({ name }) => name)).not.toContain(queue.name);
  await expect(admin.stats(queue.name)).rejects.toBeInstanceOf(NotFound);
  await expect(admin.remove(queue.name)).rejects.toBeInstanceOf(NotFound);
  await expect(admin.enqueue(queue.name, 'job', 1)).rejects.toBeInstanceOf(NotFound);
  expect(await other.stats()).toMatchObject({ ready: 1 });
});

test('what had only jobs that are unique for ever is gone, too, after its history', async () => {
  const queue = newQueue();
  const id = await idOf(queue);
  await queue.enqueueMany([1, 2].map((n) => ({ kind: 'once', payload: n, key: `k${n}` }) as const));
  await run(queue);
  await session.client.query('delete from pawl.queue_receipt where queue = $1', [id]);
  // What a worker has left that was lost while it offered.
  await session.client.query(
    `insert into pawl.queue_offer (queue, worker, number, channel) values ($1, -1, 1, 'lost')`,
    [id],
  );
  expect(await createQueueAdmin(engine).remove(queue.name)).toMatchObject({ jobs: 2 });
  expect(await rowsOf(id)).toEqual({ queue_kind: 2 });
});

test('of jobs with an onError of their own nothing is left, and one that is enqueued meanwhile leaves its letter', async () => {
  const queue = newQueue();
  const id = await idOf(queue);
  const admin = createQueueAdmin(engine);
  const options = { attempts: 1, onError: 'job' } as const;
  await queue.enqueue('job', 1, options);
  await run(queue);
  await engine.transaction(async (tx) => {
    await queue.enqueue('job', 2, { ...options, tx });
    await admin.remove(queue.name);
    expect(await rowsOf(id)).toEqual({ queue_kind: 2 });
  });
  const told: unknown[] = [];
  await run(queue, ({ payload }) => {
    told.push(payload);
    if (payload === 2) throw new Error('down');
  });
  expect(told).toEqual([2, expect.objectContaining({ payload: 2, error: expect.stringContaining('down') })]);
});

test('its paused parts go with it, and a queue that comes back works on all of its jobs', async () => {
  const queue = newQueue();
  const admin = createQueueAdmin(engine);
  await queue.register();
  await admin.pause(queue.name, { kind: 'job' });
  await queue.enqueue('job', 1);
  await admin.remove(queue.name, { force: true });
  await queue.enqueue('job', 2);
  expect(await admin.stats(queue.name)).toMatchObject({ pausedParts: [], ready: 1 });
  await run(queue);
  expect(await queue.stats()).toMatchObject({ new: 0, inProgress: 0 });
});

test('a queue with a job that waits, a worker that lives or an open batch is refused, and nothing is touched', async () => {
  const queue = newQueue();
  const admin = createQueueAdmin(engine);
  await queue.enqueue('job', 1);
  await run(queue);
  const later = await queue.enqueue('job', 2, { delay: '1h' });
  await expect(admin.remove(queue.name)).rejects.toBeInstanceOf(Conflict);
  await expect(admin.remove(queue.name)).rejects.toThrow(/1 jobs wait or are in progress, 0 workers live, 0 batches/);
  await queue.cancel(later.id);
  const worker = queue.work({ job: () => undefined, once: () => undefined });
  await eventually(async () => expect((await queue.stats()).workers).toBe(1));
  await expect(admin.remove(queue.name)).rejects.toThrow(/0 jobs wait or are in progress, 1 workers live/);
  await worker.stop();
  const batch = await queue.batch();
  await expect(admin.remove(queue.name)).rejects.toThrow(/0 workers live, 1 batches are open/);
  await batch.seal();
  expect(await admin.remove(queue.name)).toMatchObject({ jobs: 2, batches: 1 });
});

test('force cancels what waits, takes what runs away, and tells those who wait for it', async () => {
  const [queue, other] = [newQueue(), newQueue()];
  const id = await idOf(queue);
  const work = gate();
  const ended: unknown[] = [];
  const worker = queue.work(
    {
      job: async ({ signal }) => {
        signal.addEventListener('abort', () => ended.push(signal.reason));
        await work.opened;
      },
      once: () => undefined,
    },
    { concurrency: 1, prefetch: 0 },
  );
  const running = await queue.enqueue('job', 'runs');
  await eventually(async () => expect((await queue.get(running.id)).status).toBe('in-progress'));
  const waiting = await queue.enqueue('job', 'waits', { key: 'k' });
  await queue.enqueue('job', 'waits', { key: 'k' });
  const child = await other.enqueue('job', 'child', { after: [waiting.id], afterCancel: 'run' });
  const parent = await other.enqueue('job', 'parent');
  await queue.enqueue('job', 'comes after', { after: [parent.id] });
  const batch = await queue.batch({ onDone: { queue: other, kind: 'job', payload: 'done' } });
  await batch.enqueue({ kind: 'job', payload: 'member' });
  const waited = queue.waitFor(waiting.id, { timeout: '20s' });
  waited.catch(() => undefined);
  await eventually(async () =>
    expect(await session.one(`select count(*)::int from pawl.queue_watch where sort = 'process'`)).toBe(1),
  );
  expect(await createQueueAdmin(engine).remove(queue.name, { force: true })).toMatchObject({
    jobs: 5,
    cancelled: 5,
    workers: 1,
    batches: 1,
  });
  // Told that it was cancelled, it may find that the job is gone already when it reads the reason.
  await expect(waited).rejects.toSatisfy((error) => error instanceof Cancelled || error instanceof NotFound);
  await eventually(() => expect(ended).toHaveLength(1));
  work.open();
  await worker.stop();
  expect(await rowsOf(id)).toEqual({ queue_kind: 2 });
  expect((await other.get(child.id)).status).toBe('new');
  expect(await other.stats()).toMatchObject({ ready: 3, delayed: 0 });
  expect(
    await session.one(
      'select count(*)::int from pawl.queue_child c where not exists (select from pawl.queue_watch w where w.id = c.watch)',
    ),
  ).toBe(0);
  await run(other);
  expect((await other.get(parent.id)).status).toBe('complete');
});

test('a job that an open transaction holds is not lost: the removal says so, and goes on with the next call', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 1);
  await session.client.query('begin');
  await session.client.query('select from pawl.queue_ready where id = $1 for update', [id]);
  const admin = createQueueAdmin(engine);
  await expect(admin.remove(queue.name, { force: true })).rejects.toBeInstanceOf(LockNotAvailable);
  await session.client.query('rollback');
  expect(await queue.get(id)).toMatchObject({ status: 'new' });
  expect(await admin.remove(queue.name, { force: true })).toMatchObject({ jobs: 1, cancelled: 1 });
});

test('a program that still has the queue brings it back: no job that it enqueues is lost', async () => {
  const queue = newQueue();
  await queue.register();
  const admin = createQueueAdmin(engine);
  await admin.remove(queue.name);
  const { id } = await queue.enqueue('job', 'late');
  expect((await admin.list()).map(({ name }) => name)).toContain(queue.name);
  expect(await admin.stats(queue.name)).toMatchObject({ ready: 1 });
  await run(queue);
  expect(await queue.get(id)).toMatchObject({ status: 'complete', result: 'done' });
  await admin.remove(queue.name, { force: true });
  await newQueue(queue.name).register();
  expect(await admin.stats(queue.name)).toMatchObject({ new: 0 });
});

test('a job after another one that is enqueued while the queue is removed runs after it, and expires', async () => {
  const queue = newQueue();
  const other = newQueue();
  await queue.register();
  const parent = await other.enqueue('job', 'before');
  await queue.schedule('nightly', { cron: '0 3 * * *', kind: 'job' });
  // The removal has found no job, and waits for the row of a schedule.
  await session.client.query('begin');
  await session.client.query('select from pawl.queue_schedule where queue = $1 for update', [await idOf(queue)]);
  const removed = createQueueAdmin(engine).remove(queue.name);
  removed.catch(() => {});
  const waiting = statement(
    'test.waiting',
    'select 1 from pg_locks where not granted and $1::int = any (pg_blocking_pids(pid))',
  );
  await eventually(async () => expect(await engine.query(waiting, [session.pid])).not.toEqual([]));
  const { id } = await queue.enqueue('job', 'after', { after: [parent.id] });
  const { id: expiring } = await queue.enqueue('job', 'never', { delay: '1d', expiresAt: new Date(Date.now() + 1000) });
  await session.client.query('rollback');
  await expect(removed).rejects.toBeInstanceOf(Conflict);
  const workers = [queue, other].map((one) => one.work({ job: () => 'done', once: () => 'done' }));
  await eventually(async () => {
    expect(await queue.get(id)).toMatchObject({ status: 'complete' });
    expect(await queue.get(expiring)).toMatchObject({ status: 'cancelled' });
  });
  for (const worker of workers) await worker.stop();
});

// Invariants J16.
test('producers that enqueue while a queue is removed by force: each job is gone whole or runs', async () => {
  const queue = newQueue();
  const id = await idOf(queue);
  await queue.enqueueMany(Array.from({ length: 5000 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  let isOver = false;
  const producers = Array.from({ length: 5 }, async (_, n) => {
    while (!isOver)
      await queue.enqueueMany([
        { kind: 'job', payload: n },
        { kind: 'job', payload: n, key: `k${n}` },
      ]);
  });
  const admin = createQueueAdmin(engine);
  const removing = admin.remove(queue.name, { force: true, signal: AbortSignal.timeout(60_000) });
  await eventually(async () =>
    expect(await session.one('select count(*)::int from pawl.queue_job where queue = $1', [id])).toBeLessThan(5000),
  );
  isOver = true;
  await Promise.all(producers);
  await removing;
  await newQueue(queue.name).resume();
  await run(queue);
  expect(
    await session.one(
      `select count(*)::int from pawl.queue_job j where j.queue = $1 and pawl.queue_status(j.shard, j.id) = 'complete'
      and not exists (select from pawl.queue_receipt r where r.ids @> j.id)`,
      [id],
    ),
  ).toBe(0);
});

// Invariants J16.
test('a removal whose process is killed in the middle goes on with the next call, and loses nothing half', async () => {
  const queue = newQueue();
  const id = await idOf(queue);
  await queue.enqueueMany(Array.from({ length: 6000 }, (_, n) => ({ kind: 'job', payload: n }) as const));
  const child = spawnChild('queue/change/remove.child.ts', [url, queue.name], {
    PAWL_FAULT: 'queue.removed_some:kill',
  });
  expect((await child.exited).signal).toBe('SIGKILL');
  const { ready, paused } = await queue.stats();
  expect(paused).toBe(true);
  expect(ready).toBeLessThan(6000);
  expect(await session.one('select count(*)::int from pawl.queue_job where queue = $1', [id])).toBe(ready);
  expect(await createQueueAdmin(engine).remove(queue.name, { force: true })).toMatchObject({ jobs: ready });
  expect(await rowsOf(id)).toEqual({ queue_kind: 2 });
});

test('keys go on after a removal by force that was not finished, as far as their jobs are left', async () => {
  const queue = newQueue();
  const id = await idOf(queue);
  const jobs = (key: string, n: number) =>
    Array.from({ length: n }, () => ({ kind: 'job', payload: key, key }) as const);
  await queue.enqueueMany([...jobs('retried', 4), ...jobs('parked', 40), ...jobs('b', 2), ...jobs('c', 1)]);
  // The first job of a key waits for its next attempt, and the others behind it.
  for (const unit of await queue.claim({ limit: 3 })) await unit.fail(new Error('no'), { retryIn: '1h' });
  await session.one(`select pawl.queue_remove_begin($1, true)`, [queue.name]);
  for (let step = 0; step < 20; step += 1) {
    await session.one(`select pawl.queue_remove_step($1::smallint, true, 5)`, [id]);
    expect(await breaches(session.client)).toEqual([]);
  }
});
