import { expect, test } from 'vitest';
import { eventually, until } from '../../support/eventually.ts';
import { LONG } from '../../support/long.ts';
import { AT_ONCE, type Fixture, gate, type Lacks, start } from './fixture.ts';

/** For five keys on twelve slots. */
const MANY = LONG ? 200 : 60;

export function keyPromises(open: () => Promise<Fixture>, lacks: Lacks = {}): void {
  // Invariant P3.
  test('the jobs of a key run one at a time and in order, on two workers', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { a: {}, b: {} } });
    const ran = new Map<string, number[]>();
    const busy = new Set<string>();
    let overlaps = 0;
    const handler = async (unit: { key: string | null; payload: unknown }): Promise<void> => {
      const key = String(unit.key);
      if (busy.has(key)) overlaps += 1;
      busy.add(key);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 4));
      ran.set(key, [...(ran.get(key) ?? []), Number(unit.payload)]);
      busy.delete(key);
    };
    for (let n = 0; n < 2; n += 1) await start(fixture, queue, { a: handler, b: handler }, { concurrency: 6 });
    const jobs = Array.from({ length: MANY }, (_, n) => ({
      kind: n % 2 === 0 ? ('a' as const) : ('b' as const),
      payload: n,
      key: `k${n % 5}`,
      priority: n % 3,
    }));
    await queue.enqueueMany(jobs);
    await eventually(() => expect([...ran.values()].flat()).toHaveLength(MANY));
    expect(overlaps).toBe(0);
    for (const order of ran.values()) expect(order).toEqual(order.toSorted((a, b) => a - b));
  });

  test('a long backlog of one key that was enqueued at once runs in order, even if some of it is cancelled', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const backlog = (n: number) =>
      Array.from({ length: n }, (_, at) => ({ kind: 'send' as const, payload: at, key: 'k' }));
    const [first, second] = LONG ? [100, 50] : [60, 30];
    const ids = [...(await queue.enqueueMany(backlog(first))), ...(await queue.enqueueMany(backlog(second)))];
    const cancelled = new Set([...ids.slice(0, 16), ...ids.slice(36, 40)]);
    for (const id of cancelled) expect(await queue.cancel(id)).toBe('cancelled');
    const ran: string[] = [];
    await start(fixture, queue, { send: (unit) => void ran.push(unit.job.id) });
    await eventually(() => expect(ran).toHaveLength(ids.length - cancelled.size));
    expect(ran).toEqual(ids.filter((id) => !cancelled.has(id)));
  });

  test('a key with many jobs takes one slot of a worker, and leaves the others to other keys', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const ran: unknown[] = [];
    const long = gate();
    await queue.enqueueMany(
      Array.from({ length: 30 }, () => ({ kind: 'send' as const, payload: 'long', key: 'long' })),
    );
    await start(
      fixture,
      queue,
      {
        send: async (unit) => {
          ran.push(unit.payload);
          if (unit.payload === 'long') await long.opened;
        },
      },
      { concurrency: 3 },
    );
    await eventually(() => expect(ran).toEqual(['long']));
    await queue.enqueue('send', 'short', { key: 'short' });
    await eventually(() => expect(ran).toEqual(['long', 'short']));
    long.open();
    await eventually(() => expect(ran).toHaveLength(31));
  });

  test('a retried job keeps its place, and delays no job outside of its key', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { send: {} },
      retry: { attempts: 3, backoff: { kind: 'fixed', min: '300ms' } },
    });
    const ran: unknown[] = [];
    await queue.enqueueMany(
      ['a1', 'a2', 'b1', 'a3', 'b2'].map((name) => ({ kind: 'send', payload: name, key: name[0] })),
    );
    await start(fixture, queue, {
      send: (unit) => {
        if (unit.payload === 'a1' && unit.attempt < 3) throw new Error('not yet');
        ran.push(unit.payload);
      },
    });
    await eventually(() => expect(ran).toHaveLength(5));
    expect(ran).toEqual(['b1', 'b2', 'a1', 'a2', 'a3']);
  });

  test('a job of a key that was enqueued for later, and is due, has its place in the order of the enqueues', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { job: {} } });
    const seen: unknown[] = [];
    await queue.enqueue('job', 'first', { key: 'k' });
    const runAt = new Date(Date.now() + 50);
    await queue.enqueue('job', 'second', { key: 'k', runAt });
    await queue.enqueue('job', 'third', { key: 'k' });
    await until('its time has come', () => Date.now() > runAt.getTime() + 1);
    await start(fixture, queue, { job: ({ payload }) => void seen.push(payload) }, { concurrency: 1 });
    await queue.drain({ delayed: true });
    expect(seen).toEqual(['first', 'second', 'third']);
  });

  test('the next jobs of a key run after one of them has ended in error', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: { ...AT_ONCE, attempts: 2 } });
    const ran: unknown[] = [];
    const [first = ''] = await queue.enqueueMany([1, 2].map((payload) => ({ kind: 'send', payload, key: 'k' })));
    await start(fixture, queue, {
      send: (unit) => {
        ran.push(unit.payload);
        if (unit.payload === 1) throw new Error('never');
      },
    });
    await eventually(() => expect(ran).toEqual([1, 1, 2]));
    await eventually(async () => expect((await fixture.job(first)).status).toBe('error'));
  });

  test('all outstanding jobs of a kind that coalesces are one unit', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { sync: { coalesce: 'all' }, other: {} } });
    const units: unknown[][] = [];
    const ids = await queue.enqueueMany(Array.from({ length: 50 }, (_, n) => ({ kind: 'sync', payload: n, key: 'k' })));
    await start(fixture, queue, {
      sync: (unit) => {
        units.push(unit.jobs.map((job) => job.payload));
        expect(unit.payload).toBe(49);
        return 'done';
      },
      other: () => {},
    });
    await eventually(async () => {
      for (const id of ids) expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: 'done' });
    });
    expect(units).toEqual([Array.from({ length: 50 }, (_, n) => n)]);
  });

  const arrivals = [
    ['complete', 'together'],
    ['fail for good', 'together'],
    ...(lacks.oneStepClaims ? [] : [['complete', 'one by one'] as const, ['fail for good', 'one by one'] as const]),
  ] as const;
  test.for(arrivals)(
    'jobs that arrive while a unit runs become one more unit (it will %s, they come %s)',
    async ([ending, coming]) => {
      const fixture = await open();
      const queue = fixture.queue({ kinds: { sync: { coalesce: 'all', attempts: 1 } } });
      const units: unknown[][] = [];
      const running = gate();
      const goOn = gate();
      await start(fixture, queue, {
        sync: async (unit) => {
          units.push(unit.jobs.map((job) => job.payload));
          if (units.length > 1) return;
          running.open();
          await goOn.opened;
          if (ending !== 'complete') throw new Error('no');
        },
      });
      await queue.enqueue('sync', 'first', { key: 'k' });
      await running.opened;
      const jobs = [0, 1, 2, 3, 4].map((payload) => ({ kind: 'sync' as const, payload, key: 'k' }));
      for (const some of coming === 'together' ? [jobs] : jobs.map((job) => [job])) await queue.enqueueMany(some);
      goOn.open();
      await eventually(() => expect(units.flat()).toHaveLength(6));
      expect(units).toEqual([['first'], [0, 1, 2, 3, 4]]);
    },
  );

  test("a handler of a kind with coalesce 'latest' gets the newest job, and all jobs are complete", async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { sync: { coalesce: 'latest' } } });
    const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'sync', payload, key: 'k' })));
    const seen: unknown[] = [];
    await start(fixture, queue, { sync: (unit) => void seen.push([unit.payload, unit.jobs.length]) });
    await eventually(async () => {
      for (const id of ids) expect((await fixture.job(id)).status).toBe('complete');
    });
    expect(seen).toEqual([[3, 1]]);
  });

  test('when a part of a unit fails, only the failed jobs are tried again', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { sync: { coalesce: 'all' } }, retry: AT_ONCE });
    const ids = await queue.enqueueMany([0, 1, 2, 3].map((payload) => ({ kind: 'sync', payload, key: 'k' })));
    const units: unknown[][] = [];
    await start(fixture, queue, {
      sync: (unit) => {
        units.push(unit.jobs.map((job) => [job.payload, job.attempt]));
        for (const job of unit.jobs)
          if (Number(job.payload) % 2 === 1 && job.attempt < 3) unit.fail(job, new Error('odd'));
      },
    });
    await eventually(async () => {
      for (const id of ids) expect((await fixture.job(id)).status).toBe('complete');
    });
    expect(units).toEqual([
      [
        [0, 1],
        [1, 1],
        [2, 1],
        [3, 1],
      ],
      [
        [1, 2],
        [3, 2],
      ],
      [
        [1, 3],
        [3, 3],
      ],
    ]);
    expect((await fixture.job(ids[0] ?? '')).reasons).toEqual([]);
    expect((await fixture.job(ids[1] ?? '')).reasons).toEqual(['failed', 'failed']);
  });

  test.skipIf(lacks.after)('a job waits for its predecessors: delayed, failing and late ones, too', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: { create: {}, update: { after: ['create'], coalesce: 'all' } },
      retry: { attempts: 3, backoff: { kind: 'fixed', min: '100ms' } },
    });
    const ran: string[] = [];
    await queue.enqueue('update', 1, { key: 'delayed' });
    await queue.enqueue('create', 0, { key: 'delayed', runAt: new Date(Date.now() + 500) });
    await queue.enqueue('create', 0, { key: 'failing' });
    await queue.enqueue('update', 1, { key: 'failing' });
    await queue.enqueue('update', 1, { key: 'none' });
    await start(fixture, queue, {
      create: (unit) => {
        if (unit.key === 'failing' && unit.attempt < 3) throw new Error('not yet');
        ran.push(`create ${unit.key}`);
      },
      update: (unit) => void ran.push(`update ${unit.key}`),
    });
    await eventually(() => expect(ran).toHaveLength(5));
    expect(ran).toContain('update none');
    for (const key of ['delayed', 'failing']) {
      expect(ran.indexOf(`create ${key}`)).toBeLessThan(ran.indexOf(`update ${key}`));
    }
  });

  test.skipIf(lacks.after)('when a predecessor ends in error, its successors run anyway, or fail with it', async () => {
    const fixture = await open();
    const queue = fixture.queue({
      kinds: {
        create: { attempts: 1 },
        update: { after: ['create'] },
        strict: { after: ['create'], afterError: 'error' },
      },
    });
    const ran: string[] = [];
    const [create, update, strict] = await queue.enqueueMany(
      (['create', 'update', 'strict'] as const).map((kind) => ({ kind, payload: null, key: 'k' })),
    );
    await start(fixture, queue, {
      create: () => {
        throw new Error('out of paper');
      },
      update: () => void ran.push('update'),
      strict: () => void ran.push('strict'),
    });
    await eventually(async () => expect((await fixture.job(strict ?? '')).status).toBe('error'));
    await eventually(async () => expect((await fixture.job(update ?? '')).status).toBe('complete'));
    expect((await fixture.job(create ?? '')).status).toBe('error');
    expect((await fixture.job(strict ?? '')).error).toMatch(/predecessor/);
    expect(ran).toEqual(['update']);
  });

  test.skipIf(lacks.after)(
    'with several predecessors, the one that was settled last decides whether a successor fails',
    async () => {
      const fixture = await open();
      const queue = fixture.queue({
        kinds: {
          create: { attempts: 1 },
          other: { attempts: 1 },
          strict: { after: ['create', 'other'], afterError: 'error' },
        },
      });
      const ran: unknown[] = [];
      const orFail = (unit: { payload: unknown }): void => {
        if (unit.payload === 'fail') throw new Error('out of paper');
      };
      await start(fixture, queue, { create: orFail, other: orFail, strict: (unit) => void ran.push(unit.payload) });
      const successor = async (name: string): Promise<string> => {
        const { id } = await queue.enqueue('strict', name, { key: 'k' });
        await queue.drain();
        return (await fixture.job(id)).status;
      };
      expect(await successor('none before')).toBe('complete');
      const failed = await queue.enqueue('create', 'fail', { key: 'k' });
      expect(await successor('one failed')).toBe('error');
      await queue.enqueue('other', 'succeed', { key: 'k' });
      expect(await successor('another succeeded')).toBe('complete');
      await queue.enqueue('create', 'fail', { key: 'k' });
      await queue.enqueue('create', 'succeed', { key: 'elsewhere' });
      const again = await queue.enqueue('strict', 'the last failed', { key: 'k' });
      await queue.drain();
      expect(await fixture.job(again.id)).toMatchObject({ status: 'error' });
      // Retried by hand, and settled after all others: now this one decides.
      await queue.retry(failed.id);
      expect(await successor('the first failed again')).toBe('error');
      expect(ran).toEqual(['none before', 'another succeeded']);
    },
  );

  test('with perKey: Infinity a key is only a label: its jobs run at the same time', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, concurrency: { perKey: Infinity } });
    let most = 0;
    let now = 0;
    const all = gate();
    await start(
      fixture,
      queue,
      {
        send: async () => {
          now += 1;
          most = Math.max(most, now);
          if (now === 4) all.open();
          await all.opened;
          now -= 1;
        },
      },
      { concurrency: 4 },
    );
    await queue.enqueueMany(Array.from({ length: 4 }, (_, payload) => ({ kind: 'send', payload, key: 'k' })));
    await eventually(() => expect(most).toBe(4));
  });

  test('tokens of a key rise with every claim', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: { ...AT_ONCE, attempts: 4 } });
    const tokens: bigint[] = [];
    await start(fixture, queue, {
      send: (unit) => {
        tokens.push(unit.token);
        if (unit.attempt < 4) throw new Error('again');
      },
    });
    await queue.enqueue('send', {}, { key: 'k' });
    await eventually(() => expect(tokens).toHaveLength(4));
    expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => Number(a - b)));
  });

  test('the order of a key holds in a queue of several shards', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {}, create: { unique: 'key' } }, shards: 4 });
    const ran = new Map<string | null, unknown[]>();
    const note = (unit: { key: string | null; payload: unknown }): void =>
      void ran.set(unit.key, [...(ran.get(unit.key) ?? []), unit.payload]);
    await start(fixture, queue, { send: note, create: note });
    for (let key = 0; key < 8; key += 1) await queue.enqueue('create', -1, { key: `k${key}` });
    await queue.enqueueMany(Array.from({ length: 80 }, (_, n) => ({ kind: 'send', payload: n, key: `k${n % 8}` })));
    await queue.enqueueMany(Array.from({ length: 9 }, (_, n) => ({ kind: 'send', payload: n })));
    await eventually(() => expect([...ran.values()].flat()).toHaveLength(97));
    ran.delete(null);
    for (const order of ran.values()) expect(order).toEqual(order.toSorted((a, b) => Number(a) - Number(b)));
  });
}
