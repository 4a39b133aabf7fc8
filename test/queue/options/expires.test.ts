import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

const past = (): Date => new Date(Date.now() - 1000);
const later = (): Date => new Date(Date.now() + 3_600_000);

async function rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test.rows', text, { prepare: false }), values);
}

async function expire(): Promise<number> {
  const [row] = await rows<{ n: number }>(
    'select coalesce(sum(pawl.queue_expire(d.id, 1000)), 0)::int as n from pawl.queue_definition d',
  );
  return row?.n ?? 0;
}

async function reasons(id: string): Promise<string[]> {
  const found = await rows<{ reason: string }>(
    `select reason from pawl.job_history where job = $1::bigint and reason <> 'enqueue' order by at`,
    [id],
  );
  return found.map(({ reason }) => reason);
}

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  // Invariants J3, J8.
  test('a job that no worker has begun by its expiresAt never runs, and ends as cancelled', async () => {
    nth += 1;
    const queue = createQueue(engine, `expires ${nth}`, { kinds: { job: {}, all: { coalesce: 'all' } } });
    const { id: plain } = await queue.enqueue('job', 'plain', { expiresAt: past() });
    const { id: keyed } = await queue.enqueue('job', 'keyed', { expiresAt: past(), key: 'k' });
    const { id: behind } = await queue.enqueue('job', 'behind', { key: 'k', expiresAt: later() });
    const { id: gone } = await queue.enqueue('all', 'gone', { key: 'c', expiresAt: past() });
    const { id: stays } = await queue.enqueue('all', 'stays', { key: 'c' });
    const ran: unknown[] = [];
    const handler = ({ jobs }: { jobs: readonly { payload: unknown }[] }): void =>
      void ran.push(...jobs.map(({ payload }) => payload));
    const worker = queue.work({ job: handler, all: handler }, { hold, poll: '100ms', concurrency: 3 });
    await queue.drain();
    await worker.stop();
    expect(ran.map(String).toSorted()).toEqual(['behind', 'stays']);
    for (const id of [plain, keyed, gone]) {
      const job = await queue.get(id);
      expect(job).toMatchObject({ status: 'cancelled', error: `it had not begun by ${job.expiresAt?.toISOString()}` });
      expect((await reasons(id)).at(-1)).toBe('expired');
    }
    for (const id of [behind, stays]) expect((await queue.get(id)).status).toBe('complete');
  });

  test('a job that has begun is not ended by its expiresAt, nor are its retries', async () => {
    nth += 1;
    const queue = createQueue(engine, `begun ${nth}`, {
      kinds: { job: {} },
      retry: { attempts: 2, backoff: { kind: 'fixed', min: 1 } },
    });
    const worker = queue.work(
      {
        job: async ({ job, attempt }) => {
          const passed = 'select clock_timestamp() > expires_at as passed from pawl.queue_expiry where id = $1::bigint';
          await until('its time has passed', async () => {
            const [row] = await rows<{ passed: boolean }>(passed, [job.id]);
            return row === undefined || row.passed;
          });
          await expire();
          if (attempt === 1) throw new Error('once');
        },
      },
      { hold, poll: '50ms', concurrency: 3 },
    );
    await worker.started;
    // Long enough to begin on a busy machine: the worker is there already.
    const { id } = await queue.enqueue('job', 1, { expiresAt: new Date(Date.now() + 4000) });
    await until('it is complete', async () => (await queue.get(id)).status === 'complete');
    await worker.stop();
    expect((await queue.get(id)).attempt).toBe(2);
  });
});

// Invariants J8.
test('delayed and parked jobs, and those of a paused queue, expire as soon as a worker lives', async () => {
  const queue = createQueue(engine, 'waiting', { kinds: { job: {} } });
  await queue.register();
  const given = { kind: 'job', payload: 1, expiresAt: past() } as const;
  const ids = await queue.enqueueMany([
    { ...given, delay: '1h' },
    ...Array.from({ length: 40 }, () => ({ ...given, key: 'k' })),
    given,
  ]);
  const { id: free } = await queue.enqueue('job', 1, { key: 'k' });
  await queue.pause();
  const worker = queue.work({ job: () => undefined }, { lease: '1s' });
  await until('all have expired', async () => (await queue.stats()).cancelled === ids.length);
  await queue.resume();
  await queue.drain();
  await worker.stop();
  expect((await queue.get(free)).status).toBe('complete');
  expect(await rows('select from pawl.queue_expiry e where e.queue = pawl.queue_id($1)', [queue.name])).toEqual([]);
});

test('a job that has expired runs when it is retried', async () => {
  const queue = createQueue(engine, 'again', { kinds: { job: {} } });
  const { id } = await queue.enqueue('job', 1, { expiresAt: past(), attempts: 3, meta: { a: 1 } });
  expect(await expire()).toBe(1);
  expect((await queue.get(id)).status).toBe('cancelled');
  await queue.retry(id);
  expect(await queue.get(id)).toMatchObject({ status: 'new', expiresAt: null, attempts: 3, meta: { a: 1 } });
  const worker = queue.work({ job: () => 'ran' });
  await queue.drain();
  await worker.stop();
  expect(await queue.get(id)).toMatchObject({ status: 'complete', result: 'ran' });
});

test('an update gives a waiting job another expiresAt, and other tags', async () => {
  const queue = createQueue(engine, 'updated', { kinds: { job: {} } });
  const { id } = await queue.enqueue('job', 1, { expiresAt: past(), tags: ['a', 'b'] });
  await queue.update(id, { expiresAt: later(), tags: ['b', 'c'] });
  expect(await expire()).toBe(1);
  expect((await queue.get(id)).status).toBe('new');
  const found = async (tag: string): Promise<number> => (await queue.search(`tag:${tag}`)).jobs.length;
  expect([await found('a'), await found('b'), await found('c')]).toEqual([0, 1, 1]);
  await queue.update(id, { expiresAt: past() });
  expect(await expire()).toBe(1);
  expect(await queue.get(id)).toMatchObject({ status: 'cancelled', tags: ['b', 'c'] });
});

// Invariants J8.
test('a job that is erased while expired jobs are ended does not fail the call, which a claim may have made', async () => {
  const database = await freshDatabase();
  const own = postgres(database.url, { max: 10 });
  const [sweeper, holder] = [await SqlSession.open(database.url), await SqlSession.open(database.url)];
  onTestFinished(async () => {
    await Promise.all([sweeper.end(), holder.end(), own.stop()]);
    await database.drop();
  });
  const queue = createQueue(own, 'erased', { kinds: { job: {} } });
  const { id: held } = await queue.enqueue('job', 1, { expiresAt: new Date(Date.now() - 2000), key: 'k' });
  const { id: erased } = await queue.enqueue('job', 2, { expiresAt: past() });
  // The jobs are ended in a random order: here the first one comes first, and its key is locked.
  for (let seed = 0, isFirst = false; !isFirst; seed += 0.01) {
    await sweeper.one('select setseed($1)', [seed]);
    isFirst = await sweeper.one<boolean>('select a.r < b.r from (select random() as r) a, (select random() as r) b');
    await sweeper.one('select setseed($1)', [seed]);
  }
  await holder.begin();
  await holder.client.query(`select pawl.queue_lock_key(pawl.queue_id('erased'), 0::smallint, 'k')`);
  const swept = sweeper.one<number>(`select pawl.queue_expire(pawl.queue_id('erased'), 1000)`);
  swept.catch(() => {});
  await until('it waits for the key', () =>
    holder.one<boolean>('select cardinality(pg_blocking_pids($1)) > 0', [sweeper.pid]),
  );
  await queue.erase(erased);
  await holder.commit();
  expect(await swept).toBe(2);
  expect(await queue.get(held)).toMatchObject({ status: 'cancelled' });
});
