import { describe, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, LeaseLost, LockNotAvailable, NoRetry } from '../../../src/base/errors.ts';
import { statement } from '../../../src/engine/postgres/index.ts';
import { createQueueAdmin, discard, snooze } from '../../../src/queue/index.ts';
import { eventually } from '../../support/eventually.ts';
import { DOUBLING } from '../contract/fixture.ts';
import { EXPIRE, pullStage } from './stage.ts';

const stage = pullStage('pull');

/** The same of leases that were not extended. */
const EXPIRE_SHORT = statement(
  'test.expire_short',
  `update pawl.queue_worker set expires_at = clock_timestamp() - interval '1 ms' where queue = (select id from pawl.queue_definition where name = $1)
  and lease < interval '1 minute'`,
);

describe('claim()', () => {
  test('gives jobs of a group as many as have places, without a worker that admits them', async () => {
    const queue = stage.newQueue({ kinds: { send: {} }, concurrency: { perGroup: 1 } });
    await queue.enqueueMany([1, 2].map((payload) => ({ kind: 'send', payload, group: 'acme' }) as const));
    const [first, ...others] = await queue.claim({ limit: 5, lease: '1m' });
    expect(others).toEqual([]);
    expect(first?.payload).toBe(1);
    await first?.complete();
    const [second] = await queue.claim({ limit: 5, lease: '1m' });
    expect(second?.payload).toBe(2);
    await second?.complete();
  });

  test('of one job passes over those of keys that are busy, however many', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const keys = Array.from({ length: 30 }, (_, n) => `busy ${n}`);
    await queue.enqueueMany(keys.map((key) => ({ kind: 'send', payload: 'first', key })));
    expect(await queue.claim({ limit: 30 })).toHaveLength(30);
    for (const key of [...keys, 'free']) await queue.enqueue('send', key, { key });
    expect((await queue.claim()).map(({ payload }) => payload)).toEqual(['free']);
  });

  test('gives all of its units one lease, in whatever shards they are', async () => {
    const queue = stage.newQueue({ kinds: { send: {} }, shards: 8 });
    const keys = Array.from({ length: 20 }, (_, nth) => `key ${nth}`);
    await queue.enqueueMany(keys.map((key) => ({ kind: 'send', payload: null, key })));
    const units = await queue.claim({ limit: 20, lease: '30s' });
    expect(units.length).toBe(20);
    await units[0]?.extend('1h');
    await stage.engine.query(EXPIRE_SHORT, [queue.name]);
    expect(await queue.claim({ limit: 20 })).toEqual([]);
    for (const unit of units) await unit.complete();
    expect(await createQueueAdmin(stage.engine).workers(queue.name)).toEqual([]);
  });

  test('takes what is ready, in order, and complete() ends it with its result', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'send', payload })));
    const units = await queue.claim({ limit: 2, client: 'billing' });
    expect(units.map(({ job, payload, attempt, kind, key }) => [job.id, payload, attempt, kind, key])).toEqual([
      [ids[0], 1, 1, 'send', null],
      [ids[1], 2, 1, 'send', null],
    ]);
    expect(await queue.get(ids[0] ?? '')).toMatchObject({ status: 'in-progress', processId: units[0]?.processId });
    expect(await createQueueAdmin(stage.engine).workers(queue.name)).toMatchObject([
      { host: 'billing', inProgress: 2 },
    ]);
    await units[0]?.complete({ sent: 'a\u0001b' });
    await units[1]?.complete();
    expect(await queue.get(ids[0] ?? '')).toMatchObject({ status: 'complete', result: { sent: 'a\u0001b' } });
    expect(await queue.get(ids[1] ?? '')).toMatchObject({ status: 'complete', result: null });
    // With its last unit the client is gone.
    expect(await createQueueAdmin(stage.engine).workers(queue.name)).toEqual([]);
    expect(await queue.claim({ limit: 5 })).toHaveLength(1);
    expect(await queue.claim()).toEqual([]);
  });

  test('looks at all shards, and at jobs that are due', async () => {
    const queue = stage.newQueue({ kinds: { send: {} }, shards: 5 });
    await queue.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ kind: 'send', payload: n, key: `k${n}` })));
    await queue.enqueue('send', 'due', { runAt: new Date(Date.now() - 1000) });
    await queue.enqueue('send', 'later', { runAt: new Date(Date.now() + 3_600_000) });
    const units = await queue.claim({ limit: 100 });
    expect(units).toHaveLength(21);
    for (const unit of units) await unit.complete();
    expect(await queue.stats()).toMatchObject({ delayed: 1, ready: 0, inProgress: 0 });
  });

  test('gives one job of a key at a time, to pulls and workers alike', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'send', payload, key: 'k' })));
    const [first, ...others] = await queue.claim({ limit: 10 });
    expect(others).toEqual([]);
    expect(await queue.claim({ limit: 10 })).toEqual([]);
    const ran: unknown[] = [];
    const worker = queue.work({ send: (unit) => void ran.push(unit.payload) }, { poll: '50ms' });
    onTestFinished(() => worker.stop());
    await worker.started;
    expect(ran).toEqual([]);
    const token = first?.token ?? 0n;
    await first?.complete();
    await eventually(() => expect(ran).toEqual([2, 3]));
    await queue.enqueue('send', 4, { key: 'k', runAt: new Date(Date.now() + 3_600_000) });
    expect(token).toBeGreaterThan(0n);
  });

  test('gives all jobs of a key that coalesces as one unit, which ends as one', async () => {
    const queue = stage.newQueue({
      kinds: { sync: { coalesce: 'all' }, after: { after: ['sync'], afterError: 'error' } },
    });
    const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'sync', payload, key: 'k' })));
    const [unit, ...others] = await queue.claim({ limit: 10 });
    expect(others).toEqual([]);
    expect(unit?.jobs.map(({ payload }) => payload)).toEqual([1, 2, 3]);
    expect(await unit?.fail(new Error('the other side is down'), { retryIn: 0 })).toBe('retry');
    const [again] = await queue.claim({ limit: 10 });
    expect([again?.jobs.length, again?.attempt]).toEqual([3, 2]);
    await again?.complete({ rows: 3 });
    for (const id of ids) expect(await queue.get(id)).toMatchObject({ status: 'complete', result: { rows: 3 } });
    // A predecessor in error breaks what comes after it, without its being given out.
    await queue.enqueue('sync', 4, { key: 'other' });
    const late = await queue.enqueue('after', 5, { key: 'other' });
    const [broken] = await queue.claim({ limit: 10 });
    expect(await broken?.fail(new NoRetry('never'))).toBe('error');
    expect(await queue.claim({ limit: 10 })).toEqual([]);
    expect(await queue.get(late.id)).toMatchObject({ status: 'error', error: expect.stringMatching(/predecessor/) });
  });

  test('checks the payload by the schema of its kind; what that refuses fails', async () => {
    const queue = stage.newQueue({ kinds: { send: { payload: DOUBLING } }, retry: { attempts: 1 } });
    await queue.enqueue('send', { n: 4 });
    const bad = await createQueueAdmin(stage.engine).enqueue(queue.name, 'send', { n: 'four' });
    const units = await queue.claim({ limit: 10 });
    expect(units.map(({ payload }) => payload)).toEqual([{ n: 8 }]);
    expect(await queue.get(bad.id)).toMatchObject({ status: 'error', error: expect.stringMatching(/whole number/) });
  });

  test('claims nothing of a paused queue, and refuses bad options', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    await queue.enqueue('send', 1);
    await queue.pause();
    expect(await queue.claim()).toEqual([]);
    await expect(queue.claim({ limit: 0 })).rejects.toThrow(InvalidInput);
    await expect(queue.claim({ lease: '10ms' })).rejects.toThrow(InvalidInput);
    await expect(queue.claim({ leese: '1m' } as never)).rejects.toThrow('did you mean');
  });

  test('of twenty clients at once, each job has one', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const ids = await queue.enqueueMany(
      Array.from({ length: 200 }, (_, n) => ({ kind: 'send', payload: n, ...(n % 2 ? { key: `k${n % 10}` } : {}) })),
    );
    const ran: string[] = [];
    const client = async (): Promise<void> => {
      for (let empty = 0; empty < 20; ) {
        const units = await queue.claim({ limit: 3 });
        if (units.length === 0) {
          empty += 1;
          if (ran.length === ids.length) return;
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        for (const unit of units) {
          ran.push(unit.job.id);
          await unit.complete();
        }
      }
    };
    await Promise.all(Array.from({ length: 20 }, client));
    expect(ran.toSorted()).toEqual(ids.toSorted());
  });
});

describe('a claimed unit', () => {
  test('that comes after others is given once they have ended, with their results', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const first = await queue.enqueue('send', 1);
    const second = await queue.enqueue('send', 2, { after: [first.id] });
    const [parent, ...none] = await queue.claim({ limit: 10 });
    expect(none).toEqual([]);
    await parent?.complete('sent');
    const [unit] = await queue.claim({ limit: 10 });
    expect(unit?.job.id).toBe(second.id);
    expect(await unit?.parents()).toMatchObject([{ id: first.id, result: 'sent' }]);
    await unit?.complete();
  });

  test('that fails is tried again, until its attempts are spent', async () => {
    const queue = stage.newQueue({ kinds: { send: {} }, retry: { attempts: 2, backoff: { kind: 'fixed', min: 1 } } });
    const { id } = await queue.enqueue('send', 1);
    const [first] = await queue.claim();
    expect(await first?.fail(new Error('no paper'))).toBe('retry');
    const second = await eventually(async () => {
      const [unit] = await queue.claim();
      if (unit === undefined) throw new Error('it backs off');
      return unit;
    });
    expect(second.attempt).toBe(2);
    expect(await second.fail(new Error('no ink'))).toBe('error');
    expect(await queue.get(id)).toMatchObject({ status: 'error', attempt: 2, error: expect.stringMatching(/no ink/) });
    const [third] = [await queue.retry(id), await queue.claim()].flat().slice(1);
    expect(third).toMatchObject({ attempt: 1 });
  });

  test('waits for as long as retryIn says', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const { id } = await queue.enqueue('send', 1);
    const [unit] = await queue.claim();
    await unit?.fail('busy', { retryIn: '1h' });
    const { runAt } = await queue.get(id);
    expect((runAt?.getTime() ?? 0) - Date.now()).toBeGreaterThan(3_500_000);
  });

  test('that is snoozed or discarded ends as in a handler, with the attempts and back-off of its own', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const { id } = await queue.enqueue('send', 1, { attempts: 1 });
    const [first] = await queue.claim();
    expect(await first?.fail(snooze('1ms'))).toBe('release');
    const again = await eventually(async () => {
      const [unit] = await queue.claim();
      if (unit === undefined) throw new Error('it sleeps');
      return unit;
    });
    expect(again.attempt).toBe(1);
    expect(await again.fail(new Error('once is all it has'))).toBe('error');
    expect(await queue.get(id)).toMatchObject({ status: 'error' });
    const other = await queue.enqueue('send', 2);
    const [unit] = await queue.claim();
    expect(await unit?.fail(discard('no such address'))).toBe('error');
    expect(await queue.get(other.id)).toMatchObject({ status: 'error', error: 'no such address', attempt: 1 });
  });

  test('that is released is ready again at once, uncharged', async () => {
    const queue = stage.newQueue({ kinds: { send: { attempts: 1 } } });
    await queue.enqueue('send', 1, { key: 'k' });
    for (let n = 0; n < 3; n += 1) {
      const [unit] = await queue.claim();
      expect(unit?.attempt).toBe(1);
      await unit?.release();
    }
  });

  // Invariants J11.
  test('of a client that dies is given back, charged, and what the client does later is refused', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const { id } = await queue.enqueue('send', 1, { key: 'k' });
    const [dead] = await queue.claim({ lease: '10s' });
    await stage.engine.query(EXPIRE, [queue.name]);
    // No worker lives: the next client rescues.
    const [unit] = await queue.claim();
    expect(unit).toMatchObject({ attempt: 2 });
    expect(unit?.token).toBeGreaterThan(dead?.token ?? 0n);
    for (const late of [
      () => dead?.complete('late'),
      () => dead?.fail('late'),
      () => dead?.release(),
      () => dead?.extend(),
      () => dead?.progress(1),
      () => stage.engine.transaction((tx) => dead?.guard(tx) ?? Promise.resolve()),
    ]) {
      await expect(late()).rejects.toThrow(LeaseLost);
    }
    await unit?.complete('in time');
    expect(await queue.get(id)).toMatchObject({ status: 'complete', result: 'in time' });
    await expect(unit?.complete()).rejects.toThrow(LeaseLost);
  });

  test('is kept by extend(), which says whether the job was cancelled', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const { id } = await queue.enqueue('send', 1);
    const [unit] = await queue.claim({ lease: '30s' });
    const { expiresAt, isCancelled } = (await unit?.extend('1h')) ?? {};
    expect(isCancelled).toBe(false);
    expect((expiresAt?.getTime() ?? 0) - Date.now()).toBeGreaterThan(3_500_000);
    expect(unit?.expiresAt).toEqual(expiresAt);
    expect(await queue.cancel(id, { reason: 'ordered twice' })).toBe('in-progress');
    expect(await unit?.extend('1m')).toMatchObject({ isCancelled: true, reason: 'ordered twice' });
    await unit?.progress({ done: 1 });
    expect((await queue.get(id)).progress).toEqual({ done: 1 });
    await unit?.release();
  });

  test('is extended by as long as before, unless the call says for how long', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    await queue.enqueue('send', 1);
    const [unit] = await queue.claim({ lease: '1h' });
    const left = async (): Promise<number> => Number((await unit?.extend())?.expiresAt) - Date.now();
    expect(await left()).toBeGreaterThan(3_500_000);
    await unit?.extend('2h');
    expect(await left()).toBeGreaterThan(7_100_000);
    await unit?.extend('10m');
    expect(await left()).toBeLessThan(700_000);
    await unit?.release();
  });

  test('is not settled while a transaction that guards it is open', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    const { id } = await queue.enqueue('send', 1);
    const [unit] = await queue.claim();
    await stage.engine.transaction(async (tx) => {
      await unit?.guard(tx);
      await expect(unit?.complete()).rejects.toThrow(LockNotAvailable);
    });
    await unit?.complete();
    expect(await queue.get(id)).toMatchObject({ status: 'complete' });
  });

  test('that another process has cannot be settled by a made-up handle', async () => {
    const queue = stage.newQueue({ kinds: { send: {} } });
    await queue.enqueue('send', 1);
    const [unit] = await queue.claim();
    const parts = JSON.parse(Buffer.from(unit?.handle ?? '', 'base64url').toString()) as unknown[];
    parts[4] = '00000000-0000-4000-8000-000000000000';
    const admin = createQueueAdmin(stage.engine);
    const forged = Buffer.from(JSON.stringify(parts)).toString('base64url');
    await expect(admin.complete(forged)).rejects.toThrow(LeaseLost);
    await expect(admin.complete('made up')).rejects.toThrow(InvalidInput);
    await admin.complete(unit?.handle ?? '', 'by its handle');
  });
});
