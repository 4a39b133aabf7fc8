// A queue whose jobs are only pulled: no worker lives that would do the chores.
import { expect, onTestFinished, test } from 'vitest';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { startProxy } from '../../support/proxy.ts';
import { gate } from '../contract/fixture.ts';
import { EXPIRE, pullStage } from './stage.ts';

const stage = pullStage('alone');

// Invariants J11.
test('a job that was guarded when its lease was over is given back by a later claim', async () => {
  const queue = stage.newQueue({ kinds: { send: {} } });
  await queue.enqueue('send', 1);
  const [unit] = await queue.claim();
  await stage.engine.transaction(async (tx) => {
    await unit?.guard(tx);
    await stage.engine.query(EXPIRE, [queue.name]);
    expect(await queue.claim()).toEqual([]);
  });
  const [again] = await queue.claim();
  expect(again?.attempt).toBe(2);
  await again?.complete();
  expect(await createQueueAdmin(stage.engine).workers(queue.name)).toEqual([]);
});

test.each(['release', 'fail', 'lose'] as const)('a job that somebody cancelled does not run again: %s', async (how) => {
  const queue = stage.newQueue({ kinds: { send: {} } });
  const { id } = await queue.enqueue('send', 1, { key: 'k' });
  const [unit] = await queue.claim();
  expect(await queue.cancel(id, { reason: 'ordered twice' })).toBe('in-progress');
  if (how === 'release') expect(await unit?.release()).toBe('cancelled');
  else if (how === 'fail') expect(await unit?.fail(new Error('stopped'), { retryIn: 0 })).toBe('cancelled');
  else await stage.engine.query(EXPIRE, [queue.name]);
  expect(await queue.claim()).toEqual([]);
  expect(await queue.get(id)).toMatchObject({ status: 'cancelled', error: expect.stringContaining('ordered twice') });
});

test('each job of a unit has its own attempts, and one that is cancelled ends alone', async () => {
  const queue = stage.newQueue({ kinds: { sync: { coalesce: 'all' } } });
  const once = await queue.enqueue('sync', 1, { key: 'k', attempts: 1 });
  const more = await queue.enqueue('sync', 2, { key: 'k' });
  const [unit] = await queue.claim();
  expect(await unit?.fail(new Error('down'), { retryIn: 0 })).toBe('error');
  expect(await queue.get(once.id)).toMatchObject({ status: 'error', error: expect.stringContaining('down') });
  expect(await queue.get(more.id)).toMatchObject({ status: 'new' });
  const last = await queue.enqueue('sync', 3, { key: 'k' });
  const [again] = await queue.claim();
  expect(again?.jobs.map(({ id }) => id)).toEqual([more.id, last.id]);
  await queue.cancel(more.id, { reason: 'twice' });
  expect(await again?.extend()).toMatchObject({ isCancelled: true, reason: 'twice' });
  expect(await again?.release()).toBe('cancelled');
  expect(await queue.get(more.id)).toMatchObject({ status: 'cancelled' });
  const [end] = await queue.claim();
  expect(end?.jobs.map(({ id, attempt }) => [id, attempt])).toEqual([[last.id, 1]]);
  await end?.complete();
});

test('a process that has claimed before looks at all shards that another version has declared since', async () => {
  const queue = stage.newQueue({ kinds: { send: {} } });
  const admin = createQueueAdmin(stage.engine);
  await queue.enqueue('send', 1);
  for (const unit of await admin.claim(queue.name)) await unit.complete();
  await using other = postgres(stage.url, { logger: recordLog() });
  const next = createQueue(other, queue.name, { kinds: { send: {} }, shards: 8 });
  await next.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ kind: 'send', payload: n, key: `k${n}` }) as const));
  expect(await admin.claim(queue.name, { limit: 100 })).toHaveLength(20);
});

test('an error of the chores keeps no unit from its caller', async () => {
  const proxy = await startProxy(stage.url);
  onTestFinished(() => proxy.stop());
  await using broken = postgres(proxy.url, { logger: recordLog() });
  const queue = stage.newQueue({ kinds: { send: {} } });
  await queue.enqueueMany([1, 2].map((payload) => ({ kind: 'send', payload }) as const));
  await queue.claim();
  await stage.engine.query(EXPIRE, [queue.name]);
  proxy.loseRequest('queue.rescue_for_pull');
  const [unit] = await createQueueAdmin(broken).claim(queue.name);
  expect(unit?.payload).toBe(2);
  await createQueueAdmin(stage.engine).complete(unit?.handle ?? '');
  // With nothing claimed, it is thrown.
  await stage.engine.query(EXPIRE, [queue.name]);
  await expect(createQueueAdmin(broken).claim(queue.name)).rejects.toThrow(ConnectionFailed);
});

test('a job of a part that is resumed while a claim sets it aside is not left lying', async () => {
  const queue = stage.newQueue({ kinds: { send: {} } });
  await queue.enqueue('send', 1);
  await queue.pause({ kind: 'send' });
  await stage.eye.client.query('begin');
  // The resuming transaction is about to commit when the claim, which has read that the part is paused, sets the job aside.
  await stage.eye.client.query(`select pawl.queue_resume_part($1, 'send', null, null, 1000)`, [queue.name]);
  const claim = queue.claim();
  await until('the claim waits for it', async () => {
    const waiting = statement(
      'test.waiting',
      'select 1 from pg_locks where not granted and $1::int = any (pg_blocking_pids(pid))',
    );
    return (await stage.engine.query(waiting, [stage.eye.pid])).length > 0;
  });
  await stage.eye.client.query('commit');
  expect((await claim).map(({ payload }) => payload)).toEqual([1]);
});

test('a job whose parents have ended is claimed, though no worker lives that would free it', async () => {
  const queue = stage.newQueue({ kinds: { send: {} } });
  const other = stage.newQueue({ kinds: { send: {} } });
  const parent = await other.enqueue('send', 1);
  await queue.enqueue('send', 2, { after: [parent.id], afterCancel: 'run' });
  // By hand, in a transaction that might stay open: the jobs after it are left to the next check.
  await stage.engine.transaction((tx) => other.cancel(parent.id, { tx }));
  const [unit] = await createQueueAdmin(stage.engine).claim(queue.name);
  expect(unit?.payload).toBe(2);
  await unit?.complete();
});

test('the callback of a batch that could not be enqueued at once is claimed, though no worker lives', async () => {
  const unique = { while: 'outstanding' } as const;
  const queue = stage.newQueue({ kinds: { send: {}, called: { unique } } });
  const batch = await queue.batch({ onComplete: { kind: 'called', key: 'k', payload: 'of the batch' } });
  await batch.enqueue({ kind: 'send', payload: 1 });
  await batch.seal();
  await stage.eye.begin();
  const request = { queue: queue.name, kind: 'called', key: 'k', payload: 'of the transaction', unique };
  await stage.eye.one('select pawl.enqueue($1::jsonb)', [JSON.stringify(request)]);
  await (await queue.claim())[0]?.complete();
  await stage.eye.client.query('rollback');
  const unit = await until('it is claimed', async () => (await queue.claim())[0]);
  expect(unit.payload).toBe('of the batch');
  await unit.complete();
});

// Invariants J4.
test('a claim does not take the jobs of a worker of its own process, which only stood still', async () => {
  const queue = stage.newQueue({ kinds: { send: {} } });
  const over = gate();
  let began = false;
  const worker = queue.work(
    {
      send: () => {
        began = true;
        return over.opened;
      },
    },
    { lease: '1m', concurrency: 1 },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  const { id } = await queue.enqueue('send', 1);
  await until('it runs', () => began);
  // As if no heartbeat had been sent for a minute: the next one is on its way.
  await stage.engine.query(EXPIRE, [queue.name]);
  expect(await queue.claim()).toEqual([]);
  over.open();
  await queue.drain();
  expect(await queue.get(id)).toMatchObject({ status: 'complete', attempt: 1 });
  await worker.stop();
});
