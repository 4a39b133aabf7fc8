import { describe, expect, onTestFinished, test } from 'vitest';
import { NoRetry, SchemaMismatch, TimedOut } from '../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue, type Kinds, type Queue, type Unit } from '../../src/queue/index.ts';
import { type TestQueue, type TestQueueOptions, testQueue } from '../../src/testing/index.ts';
import { freshDatabase } from '../support/database.ts';

async function freshEngine({ migrated = true } = {}): Promise<PostgresEngine> {
  const { url } = await freshDatabase({ migrated });
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  return engine;
}

async function open<K extends Kinds>(queue: Queue<K>, options: TestQueueOptions<K>): Promise<TestQueue<K>> {
  const opened = await testQueue(queue, options);
  onTestFinished(() => opened.stop());
  return opened;
}

/** A queue whose only handler notes what it was called with. */
async function diary(options: { readonly attempts?: number; readonly fails?: boolean } = {}) {
  const queue = createQueue(await freshEngine(), 'diary', {
    kinds: { note: { attempts: options.attempts ?? 1 } },
    retry: { backoff: { min: '1h', max: '1h' } },
  });
  const seen: unknown[] = [];
  const handlers = {
    note: ({ payload, attempt }: { readonly payload: unknown; readonly attempt: number }) => {
      seen.push(payload);
      if (options.fails === true) throw new Error(`attempt ${attempt} failed`);
    },
  };
  return { queue, seen, opened: await open(queue, { handlers }) };
}

describe('a queue under test', () => {
  test('has come to rest when all that is due has run, in every hold', async () => {
    const engine = await freshEngine();
    for (const hold of ['lease', 'transaction'] as const) {
      const queue = createQueue(engine, hold, { kinds: { note: {} } });
      let ran = 0;
      const work = { hold, concurrency: 4 };
      const opened = await open(queue, { handlers: { note: () => void (ran += 1) }, work });
      await queue.enqueueMany(Array.from({ length: 25 }, (_, n) => ({ kind: 'note' as const, payload: n })));
      await opened.settle();
      expect(ran).toBe(25);
      expect((await opened.jobs('note')).map(({ status }) => status)).toEqual(Array(25).fill('complete'));
    }
  });

  test('runs a delayed job when its time has passed, and not before', async () => {
    const { queue, seen, opened } = await diary();
    await queue.enqueue('note', 'later', { runAt: new Date(Date.now() + 86_400_000) });
    await opened.advance('23h');
    expect(seen).toEqual([]);
    await opened.advance('2h');
    expect(seen).toEqual(['later']);
  });

  test('makes the next attempts of a job one after another, and ends it in error after the last', async () => {
    const { queue, seen, opened } = await diary({ attempts: 3, fails: true });
    const { id } = await queue.enqueue('note', 'x');
    await opened.settle();
    expect(await queue.get(id)).toMatchObject({
      status: 'new',
      attempt: 1,
      error: expect.stringContaining('attempt 1 failed'),
    });
    await opened.drain();
    expect(await queue.get(id)).toMatchObject({
      status: 'error',
      attempt: 3,
      error: expect.stringContaining('attempt 3 failed'),
    });
    expect(seen).toHaveLength(3);
  });

  test('is at rest while a key waits for the next attempt of its first job', async () => {
    const { queue, seen, opened } = await diary({ attempts: 2, fails: true });
    await queue.enqueue('note', 'first', { key: 'k' });
    await queue.enqueue('note', 'second', { key: 'k' });
    await opened.settle();
    expect(seen).toEqual(['first']);
    await opened.drain();
    expect(seen).toEqual(['first', 'first', 'second', 'second']);
  });

  test('is at rest while a job in error blocks its key', async () => {
    const queue = createQueue(await freshEngine(), 'ledger', { kinds: { book: { attempts: 1 } }, keyOnError: 'block' });
    const seen: unknown[] = [];
    const book = ({ payload }: Unit): void => {
      seen.push(payload);
      if (payload === 1) throw new Error('no such account');
    };
    const opened = await open(queue, { handlers: { book } });
    const { id } = await queue.enqueue('book', 1, { key: 'k' });
    await queue.enqueue('book', 2, { key: 'k' });
    await opened.drain();
    expect(seen).toEqual([1]);
    await queue.skip(id);
    await opened.settle();
    expect(seen).toEqual([1, 2]);
  });

  test('runs the jobs of a group as its places allow, and comes to rest when the last one has run', async () => {
    const queue = createQueue(await freshEngine(), 'groups', { kinds: { step: {} }, concurrency: { perGroup: 1 } });
    const seen: unknown[] = [];
    const opened = await open(queue, { handlers: { step: ({ payload }) => void seen.push(payload) } });
    for (const n of [1, 2, 3]) await queue.enqueue('step', n, { group: 'acme', ...(n === 3 && { delay: '1h' }) });
    await opened.settle();
    expect(seen).toEqual([1, 2]);
    await opened.advance('2h');
    expect(seen).toEqual([1, 2, 3]);
  });

  test('runs the jobs of a group as its rate allows by the time that has passed', async () => {
    const rate = { perGroup: { limit: 2, per: '1h' } } as const;
    const queue = createQueue(await freshEngine(), 'rates', { kinds: { step: {} }, rate });
    const seen: unknown[] = [];
    const opened = await open(queue, { handlers: { step: ({ payload }) => void seen.push(payload) } });
    for (const n of [1, 2, 3, 4, 5]) await queue.enqueue('step', n, { group: 'acme' });
    await opened.settle();
    expect(seen).toEqual([1, 2]);
    await opened.advance('31m');
    expect(seen).toEqual([1, 2, 3]);
    await opened.drain();
    expect(seen).toEqual([1, 2, 3, 4, 5]);
  });

  test('runs what comes due in its order, what a handler adds included', async () => {
    const queue = createQueue(await freshEngine(), 'chain', { kinds: { step: {} } });
    const hours: unknown[] = [];
    const inHours = (n: number): Date => new Date(Date.now() + n * 3_600_000);
    const opened = await open(queue, {
      handlers: {
        step: async ({ payload }) => {
          hours.push(payload);
          // Four hours after the second: before the seventh, which was there first.
          if (payload === 2) await queue.enqueue('step', 6, { runAt: inHours(4) });
        },
      },
    });
    for (const n of [7, 2]) await queue.enqueue('step', n, { runAt: inHours(n) });
    await opened.advance('8h');
    expect(hours).toEqual([2, 6, 7]);
  });

  test('ticks at each time of a schedule that passes, and tells the job the time of the pattern', async () => {
    const queue = createQueue(await freshEngine(), 'nights', { kinds: { report: {} } });
    const nights: Date[] = [];
    const report = ({ schedule }: Unit): void => void nights.push(schedule?.at ?? new Date(0));
    const opened = await open(queue, { handlers: { report } });
    await queue.schedule('nightly', { cron: '0 3 * * *', timezone: 'UTC', kind: 'report' });
    for (let day = 1; day <= 3; day += 1) {
      await opened.advance('24h');
      expect(nights).toHaveLength(day);
    }
    expect(nights.map((at) => at.toISOString().slice(11))).toEqual(Array(3).fill('03:00:00.000Z'));
    const [first = 0, second = 0, third = 0] = nights.map(Number);
    expect([second - first, third - second]).toEqual([86_400_000, 86_400_000]);
    expect(first).toBeGreaterThan(Date.now());
    const [schedule] = await queue.schedules();
    const untilNext = (schedule?.nextAt?.getTime() ?? 0) - Date.now();
    expect(untilNext).toBeGreaterThan(0);
    expect(untilNext).toBeLessThanOrEqual(86_400_000);
  });

  test('drains past delays of days, and lets schedules be', async () => {
    const { queue, seen, opened } = await diary();
    // Its next tick is half a day away: none comes while this test runs.
    const cron = `0 ${(new Date().getUTCHours() + 12) % 24} * * *`;
    await queue.schedule('daily', { cron, timezone: 'UTC', kind: 'note', payload: 'tick' });
    for (const days of [1, 30]) {
      await queue.enqueue('note', days, { runAt: new Date(Date.now() + days * 86_400_000) });
    }
    await opened.drain();
    expect(seen).toEqual([1, 30]);
  });

  test('lets a job that comes after another one wait for it, however much time passes', async () => {
    const queue = createQueue(await freshEngine(), 'flow', {
      kinds: { step: { attempts: 2 } },
      retry: { backoff: { min: '1h', max: '1h', jitter: 0 } },
    });
    const seen: unknown[] = [];
    const step = ({ payload, attempt }: Unit): void => {
      if (payload === 'never' || (payload === 'first' && attempt === 1)) throw new Error('not yet');
      seen.push(payload);
    };
    const opened = await open(queue, { handlers: { step } });
    const { id: first } = await queue.enqueue('step', 'first');
    await queue.enqueue('step', 'second', { after: [first] });
    await queue.enqueue('step', 'third', { after: [first], delay: '3h' });
    await opened.advance('59m');
    expect(seen).toEqual([]);
    await opened.advance('2m');
    expect(seen).toEqual(['first', 'second']);
    await opened.advance('2h');
    expect(seen).toEqual(['first', 'second', 'third']);
    const { id: never } = await queue.enqueue('step', 'never');
    const { id: last } = await queue.enqueue('step', 'last', { after: [never] });
    await opened.drain();
    expect(await queue.get(last)).toMatchObject({ status: 'error' });
    expect(seen).not.toContain('last');
  });

  test('gives back the jobs of a paused part when it is resumed, however much time has passed', async () => {
    const { queue, seen, opened } = await diary();
    await queue.pause({ kind: 'note' });
    const { id } = await queue.enqueue('note', 'x');
    await opened.settle();
    await opened.advance('2h');
    await opened.drain();
    expect(await queue.get(id)).toMatchObject({ status: 'new' });
    await queue.resume({ kind: 'note' });
    await opened.waitForJob('note', 'complete');
    expect(seen).toEqual(['x']);
  });

  test('forgets a unique job, and cancels one that has expired, by the time that has passed', async () => {
    const queue = createQueue(await freshEngine(), 'once', {
      kinds: { note: { attempts: 2, unique: { by: 'payload', while: 'ever', per: '30m' } } },
      retry: { backoff: { min: '1h', max: '1h', jitter: 0 } },
    });
    const seen: unknown[] = [];
    const note = ({ payload }: Unit): void => {
      seen.push(payload);
      throw new Error('not yet');
    };
    const opened = await open(queue, { handlers: { note } });
    const { id } = await queue.enqueue('note', 'a', { key: 'k' });
    const { id: late } = await queue.enqueue('note', 'b', { key: 'k', expiresAt: new Date(Date.now() + 1_800_000) });
    await opened.advance('29m');
    expect(await queue.enqueue('note', 'a', { key: 'k' })).toMatchObject({ id, duplicate: true });
    await opened.advance('2m');
    expect(await queue.enqueue('note', 'a', { key: 'k' })).toMatchObject({ duplicate: false });
    await opened.advance('1h');
    expect(await queue.get(late)).toMatchObject({
      status: 'cancelled',
      error: expect.stringContaining('had not begun'),
    });
    expect(seen).not.toContain('b');
  });

  test('lets the jobs of a tick wait for their jitter', async () => {
    const queue = createQueue(await freshEngine(), 'spread', { kinds: { note: {} } });
    let ran = 0;
    const opened = await open(queue, { handlers: { note: () => void (ran += 1) } });
    const names = Array.from({ length: 8 }, (_, n) => `s${n}`);
    // Half a day away, which is longer than the jitter.
    const cron = `0 ${(new Date().getUTCHours() + 12) % 24} * * *`;
    for (const name of names) await queue.schedule(name, { cron, kind: 'note', jitter: '10h' });
    const [schedule] = await queue.schedules();
    await opened.advance((schedule?.nextAt?.getTime() ?? 0) - Date.now() + 1000);
    expect(await opened.jobs()).toHaveLength(names.length);
    // That all of them fell into the first second of ten hours is out of the question.
    expect(ran).toBeLessThan(names.length);
    await opened.drain();
    expect(ran).toBe(names.length);
  });

  test('moves no other queue', async () => {
    const engine = await freshEngine();
    const [mine, other] = ['mine', 'other'].map((name) => createQueue(engine, name, { kinds: { note: {} } }));
    if (mine === undefined || other === undefined) throw new Error('two queues');
    const runAt = new Date(Date.now() + 3_600_000);
    const { id } = await other.enqueue('note', 1, { runAt });
    await (await open(mine, { handlers: { note: () => {} } })).advance('2h');
    expect(await other.get(id)).toMatchObject({ status: 'new', runAt });
  });

  test('says what is left when it does not come to rest', async () => {
    const queue = createQueue(await freshEngine(), 'stuck', { kinds: { note: {} } });
    const opened = await open(queue, { patience: '20ms' });
    await queue.enqueue('note', 1);
    await expect(opened.settle()).rejects.toThrow(
      new TimedOut(
        'queue "stuck" did not become idle within 20ms: 1 ready, 0 behind others of their key, 0 in progress, 0 delayed; ' +
          'testQueue() was given no handlers',
      ),
    );
  });

  test('refuses a database that was not migrated at once', async () => {
    const queue = createQueue(await freshEngine({ migrated: false }), 'early', { kinds: { note: {} } });
    await expect(testQueue(queue, { handlers: { note: () => {} } })).rejects.toThrow(SchemaMismatch);
  });
});

describe('a job that is waited for', () => {
  test('is found whether it came there before or after the call', async () => {
    const { queue, opened } = await diary();
    const wait = opened.waitForJob('note', 'complete');
    const { id } = await queue.enqueue('note', 'a');
    expect(await wait).toMatchObject({ id, status: 'complete', payload: 'a' });
    expect(await opened.waitForJob('note', 'complete')).toMatchObject({ id });
    expect(await opened.waitForJob('note', 'in-progress')).toMatchObject({ id, status: 'complete' });
  });

  test('is only one that fits', async () => {
    const queue = createQueue(await freshEngine(), 'two', { kinds: { note: {}, other: {} } });
    const opened = await open(queue, {});
    await queue.enqueue('other', 2);
    await queue.enqueue('note', 1);
    const { id } = await queue.enqueue('note', 2);
    const where = ({ payload }: { readonly payload: unknown }): boolean => payload === 2;
    expect(await opened.waitForJob('note', 'new', { where })).toMatchObject({ id });
  });

  test('is none from before the test, and none that was rolled back', async () => {
    const engine = await freshEngine();
    const queue = createQueue(engine, 'late', { kinds: { note: {} } });
    await queue.enqueue('note', 'before');
    const opened = await open(queue, {});
    await engine
      .transaction(async (tx) => {
        await queue.enqueue('note', 'never', { tx });
        throw new NoRetry('roll back');
      })
      .catch(() => {});
    await expect(opened.waitForJob('note', 'new', { timeout: '50ms' })).rejects.toThrow(
      'no job of kind "note" in queue "late" was new within 50ms; no job of this kind was enqueued',
    );
    expect(await opened.jobs()).toEqual([]);
  });

  test('is told about when it went another way', async () => {
    const { queue, opened } = await diary({ fails: true });
    const { id } = await queue.enqueue('note', 'a');
    await opened.waitForJob('note', 'error');
    await expect(opened.waitForJob('note', 'complete', { timeout: '20ms' })).rejects.toThrow(
      `no job of kind "note" in queue "diary" was complete within 20ms; job ${id} is error (Error: attempt 1 failed)`,
    );
  });

  test('is seen when another worker ran it', async () => {
    const queue = createQueue(await freshEngine(), 'elsewhere', { kinds: { note: {} } });
    const opened = await open(queue, {});
    const worker = queue.work({ note: () => 'done' });
    onTestFinished(() => worker.stop());
    await queue.enqueue('note', 1);
    expect(await opened.waitForJob('note', 'complete')).toMatchObject({ result: 'done' });
  });
});

test('a stopped test queue leaves no worker', async () => {
  const { queue, opened } = await diary();
  await opened.stop();
  expect(await queue.stats()).toMatchObject({ workers: 0 });
  const [row] = await queue.engine.query(statement('test.workers', 'select count(*)::int as n from pawl.queue_worker'));
  expect(row).toEqual({ n: 0 });
});
