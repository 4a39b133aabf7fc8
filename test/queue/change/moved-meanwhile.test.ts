import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

// Changes of a job that wait for a transaction, which moves the job to another queue, or erases it.

let database: FreshDatabase;
let engine: PostgresEngine;
let mover: SqlSession;
let other: SqlSession;
let nth = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 10, logger: recordLog() });
  mover = await SqlSession.open(database.url);
  other = await SqlSession.open(database.url);
});

afterAll(async () => {
  expect(await breaches(mover.client)).toEqual([]);
  await Promise.all([mover.end(), other.end()]);
  await engine.stop();
  await database.drop();
});

const kinds = { job: {}, latest: { unique: { while: 'waiting', replace: true } } } as const;
type Any = Queue<typeof kinds>;

async function newQueues(): Promise<[from: Any, to: Any]> {
  nth += 1;
  const queues = ['from', 'to'].map((name) => createQueue(engine, `${name} ${nth}`, { kinds }));
  for (const queue of queues) await queue.register();
  return queues as [Any, Any];
}

/** Begins `call` while the first session has changed the job and has not committed; then it commits. */
async function meanwhile<T>(change: 'move' | 'erase', request: object, call: () => Promise<T>): Promise<T> {
  await mover.begin();
  await mover.one(`select pawl.${change}($1::jsonb)`, [JSON.stringify(request)]);
  const called = call();
  called.catch(() => {});
  const waits = 'select exists (select from pg_stat_activity a where $1::int = any (pg_blocking_pids(a.pid)))';
  await until('the call waits', () => other.one<boolean>(waits, [mover.pid]));
  await mover.commit();
  return called;
}

const WHERE = `select array[j.queue, coalesce(d.queue, x.queue)]::int[] from pawl.queue_job j
  left join pawl.queue_delayed d on d.id = j.id left join pawl.queue_dead x on x.id = j.id where j.id = $1`;

test('an update of a delayed job that is just moved leaves it in its new queue', async () => {
  const [from, to] = await newQueues();
  const { id } = await from.enqueue('job', 1, { delay: '1h' });
  const session = await SqlSession.open(database.url);
  const updated = await meanwhile('move', { id, to: to.name }, () =>
    session.one('select pawl.update($1::jsonb)', [JSON.stringify({ id, delay: '2 hours' })]),
  );
  await session.end();
  expect(updated).toEqual({ id, status: 'new' });
  const [ofJob, ofPlace] = await other.one<[number, number]>(WHERE, [id]);
  expect(ofPlace).toBe(ofJob);
  await to.retry(id);
  expect(await from.claim()).toEqual([]);
  const [unit] = await to.claim();
  expect(unit?.job.id).toBe(id);
  await unit?.complete();
});

test('a cancellation of a delayed job that is just moved is one of its new queue', async () => {
  const [from, to] = await newQueues();
  const { id } = await from.enqueue('job', 1, { delay: '1h' });
  const session = await SqlSession.open(database.url);
  await meanwhile('move', { id, to: to.name }, () =>
    session.one('select pawl.cancel($1::jsonb)', [JSON.stringify({ id })]),
  );
  await session.end();
  expect(await to.get(id)).toMatchObject({ status: 'cancelled' });
  const [ofJob, ofPlace] = await other.one<[number, number]>(WHERE, [id]);
  expect(ofPlace).toBe(ofJob);
});

for (const change of ['move', 'erase'] as const) {
  test(`an enqueue that would replace a job enqueues its own after a concurrent ${change}`, async () => {
    const [from, to] = await newQueues();
    const { id } = await from.enqueue('latest', 'old', { key: 'k' });
    const request = change === 'move' ? { id, to: to.name } : { id };
    const enqueued = await meanwhile(change, request, () => from.enqueue('latest', 'new', { key: 'k' }));
    expect(enqueued).toMatchObject({ duplicate: false, status: 'new' });
    const [unit] = await from.claim();
    expect(unit?.payload).toBe('new');
    await unit?.complete();
    if (change === 'erase') return;
    const [moved] = await to.claim();
    expect(moved?.payload).toBe('old');
    await moved?.complete();
  });
}

test('a job that was set aside for a paused part is due in the queue to which it is moved', async () => {
  const [from, to] = await newQueues();
  const { id } = await from.enqueue('job', 1);
  await from.pause({ kind: 'job' });
  expect(await from.claim()).toEqual([]);
  await mover.one('select pawl.move($1::jsonb)', [JSON.stringify({ id, to: to.name })]);
  const [unit] = await to.claim();
  expect(unit?.job.id).toBe(id);
  await unit?.complete();
});

test('above read committed, no payload is given to a job that has begun since the snapshot', async () => {
  const [from] = await newQueues();
  const { id } = await from.enqueue('job', 'old', { key: 'k' });
  await mover.client.query('begin isolation level repeatable read');
  await mover.one('select count(*) from pawl.queue_job');
  const [unit] = await from.claim();
  const updated = mover.one('select pawl.update($1::jsonb)', [JSON.stringify({ id, payload: 'new' })]);
  await expect(updated).rejects.toMatchObject({ code: '40001' });
  await mover.client.query('rollback');
  expect((await from.get(id)).payload).toBe('old');
  await unit?.complete();
  // A job that still waits is changed, and no lock of its row is kept.
  const waiting = await from.enqueue('job', 'old', { key: 'k' });
  await mover.client.query('begin isolation level repeatable read');
  await mover.one('select pawl.update($1::jsonb)', [JSON.stringify({ id: waiting.id, payload: 'new' })]);
  await other.client.query('select from pawl.queue_ready r where r.id = $1 for update nowait', [waiting.id]);
  await mover.commit();
  const [changed] = await from.claim();
  expect(changed?.payload).toBe('new');
  await changed?.complete();
});
