import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createQueue } from '../../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { FAULTS, openScene, WEARY } from '../../faults.ts';
import { breaches } from '../../invariants.ts';
import { type Brought, type QueueRow, SqlSession } from '../../sql-session.ts';

const N = 1000;

let database: FreshDatabase;
let session: SqlSession;
let row: QueueRow;
let worker: number;
let queues = 0;

beforeAll(async () => {
  database = await freshDatabase();
  session = await SqlSession.open(database.url);
});

beforeEach(async () => {
  queues += 1;
  row = await session.register(`mass ${queues}`, [{ name: 'send' }]);
  worker = await session.addWorker(row.queue);
});

afterAll(async () => {
  await session.end();
  await database.drop();
});

function enqueue(n: number): Promise<number[]> {
  return session.add(
    row.queue,
    Array.from({ length: n }, () => ({ kind: row.kinds.send ?? -1 })),
  );
}

const claim = (look: { limit?: number; slots?: number } = {}): Promise<Brought> =>
  session.claim(row.queue, worker, { limit: N, ...look });

/** Fails all claimed jobs with one error; they are retried at once, or after `wait`. */
async function fail({ jobs }: Brought, { wait = 0 }: { wait?: number } = {}): Promise<void> {
  const claims = [...new Set(jobs.map((job) => job.claim))];
  const all = claims.map((id) => {
    const spans = jobs.filter((job) => job.claim === id).map((job) => `[${job.id},${job.id + 1})`);
    return {
      claim: id,
      ids: `{${spans.join()}}`,
      to: 'retry' as const,
      wait,
      reason: 'failed',
      error: 'smtp 550 is down',
    };
  });
  expect(await session.settle(row.queue, worker, { fail: all })).toEqual([]);
}

const count = (table: string): Promise<number> =>
  session.one(`select count(*)::int from pawl.${table} where queue = $1`, [row.queue]);

/** Rescues the claims of a dead worker, and registers another one in its place. */
async function crash(): Promise<void> {
  await session.expire(worker);
  await session.rescue(row.queue);
  worker = await session.addWorker(row.queue);
}

describe('a mass of failures is work like any other', () => {
  test('a thousand jobs that failed are a few rows, and are claimed together like new ones', async () => {
    await enqueue(N);
    await fail(await claim());
    expect(await count('queue_ready')).toBeLessThan(10);
    expect(await count('queue_transition')).toBeLessThan(10);
    const again = await claim({ slots: 1 });
    expect(again.jobs.map(({ attempt }) => attempt)).toEqual(Array.from({ length: N }, () => 2));
    expect(await count('queue_running')).toBe(1);
    expect(await breaches(session.client)).toEqual([]);
  });

  test('jobs that wait for their retry become due together', async () => {
    await enqueue(N);
    await fail(await claim(), { wait: 3_600_000 });
    expect(await count('queue_delayed')).toBeLessThan(10);
    expect(await session.one(`select pawl.queue_stats($1, 100000) ->> 'delayed'`, [`mass ${queues}`])).toBe(String(N));
    await session.client.query('update pawl.queue_delayed set run_at = clock_timestamp()');
    expect((await claim()).jobs).toHaveLength(N);
    expect(await breaches(session.client)).toEqual([]);
  });

  test('each job has its own history, and its own error', async () => {
    const ids = await enqueue(300);
    await fail(await claim());
    await fail(await claim());
    for (const id of [ids[0], ids[255], ids[256], ids[299]]) {
      const { rows } = await session.client.query(
        `select to_status, attempt, reason, error from pawl.queue_history(0::smallint, $1) where reason = 'failed' order by at`,
        [id],
      );
      expect(rows).toEqual([
        { to_status: 'new', attempt: 1, reason: 'failed', error: 'smtp 550 is down' },
        { to_status: 'new', attempt: 2, reason: 'failed', error: 'smtp 550 is down' },
      ]);
      expect(await session.one('select error from pawl.job where id = $1', [id])).toBe('smtp 550 is down');
    }
  });

  test('failed jobs between other jobs keep their errors, too, and a search for the error finds all of them', async () => {
    const ids = await enqueue(300);
    const brought = await claim();
    const third = brought.jobs.filter(({ id }) => id % 3 === 0);
    await fail({ ...brought, jobs: third });
    const found = async (before: string | null): Promise<{ ids: string[]; next: string | null }> =>
      session.one(`select pawl.queue_search($1::json)`, [
        JSON.stringify({ queue: `mass ${queues}`, terms: ['smtp 550'], before, limit: 40, budget: 5000 }),
      ]);
    const all: string[] = [];
    for (let before: string | null = null, pages = 0; pages < 50; pages += 1) {
      const page = await found(before);
      all.push(...page.ids);
      before = page.next;
      if (before === null) break;
    }
    const wanted = ids.filter((id) => id % 3 === 0).toReversed();
    expect(all).toEqual(wanted.map(String));
    expect(await session.one('select error from pawl.job where id = $1', [wanted[5]])).toBe('smtp 550 is down');
  });

  test.each([0, 1, 299])('job %i of those that wait for their retry can be cancelled alone', async (nth) => {
    const ids = await enqueue(300);
    await fail(await claim(), { wait: 3_600_000 });
    const id = ids[nth];
    expect(await session.one('select pawl.queue_cancel_job($1, $2, null)', [`mass ${queues}`, id])).toBe('cancelled');
    expect(await breaches(session.client)).toEqual([]);
    await session.client.query('update pawl.queue_delayed set run_at = clock_timestamp()');
    const { jobs } = await claim();
    expect(jobs.map((job) => job.id).toSorted((a, b) => a - b)).toEqual(ids.filter((other) => other !== id));
    expect(new Set(jobs.map(({ attempt }) => attempt))).toEqual(new Set([2]));
  });

  test('failed and completed jobs of a claim are settled in one statement', async () => {
    const ids = await enqueue(10);
    const { jobs } = await claim();
    const [first] = jobs;
    const settled = await session.settle(row.queue, worker, {
      whole: [first?.claim ?? -1],
      fail: [{ claim: first?.claim ?? -1, id: first?.id ?? -1, to: 'retry', wait: 3_600_000 }],
    });
    expect(settled).toEqual([]);
    const receipts = 'select array_agg(r.ids::text) from pawl.queue_receipt r where r.queue = $1';
    expect(await session.one(receipts, [row.queue])).toEqual([`{[${ids[1]},${(ids[9] ?? 0) + 1})}`]);
    expect(await breaches(session.client)).toEqual([]);
  });
});

describe('a job is claimed ahead of its turn unless a crash would cost it too much', () => {
  test('of jobs in their last attempt only as many are claimed as can start at once', async () => {
    await enqueue(N);
    await fail(await claim());
    await fail(await claim());
    const last = await claim({ slots: 3 });
    expect(last.jobs.map(({ attempt }) => attempt)).toEqual([3, 3, 3]);
    expect(await breaches(session.client)).toEqual([]);
  });

  test('jobs that were lost with their worker are claimed only to start at once, until an attempt ends in order', async () => {
    await enqueue(100);
    await claim();
    await crash();
    const suspects = await claim({ slots: 4 });
    expect(suspects.jobs.map(({ attempt }) => attempt)).toEqual([2, 2, 2, 2]);
    expect(new Set(suspects.jobs.map((job) => job.claim)).size).toBe(4);
    await fail(suspects);
    expect((await claim({ slots: 0 })).jobs).toEqual([]);
    row = await session.register(`mass ${queues}`, [{ name: 'send' }], { attempts: 10 });
    expect((await claim({ slots: 0 })).jobs.map(({ id }) => id)).toEqual(suspects.jobs.map(({ id }) => id));
  });

  test('no other job is charged with one that was lost before, and of jobs lost twice one runs at a time', async () => {
    row = await session.register(`mass ${queues}`, [{ name: 'send' }], { attempts: 10 });
    const ids = await enqueue(3);
    await claim();
    await crash();
    expect((await claim({ slots: 2 })).jobs.map(({ id }) => id)).toEqual(ids.slice(0, 2));
    const [fresh = 0] = await enqueue(1);
    expect((await claim({ slots: 0 })).jobs.map(({ id }) => id)).toEqual([fresh]);
    await crash();
    const spent = (id: number | undefined): Promise<number> =>
      session.one('select attempt from pawl.job where id = $1', [id]);
    expect(await Promise.all([ids[0], ids[1], ids[2], fresh].map(spent))).toEqual([2, 2, 1, 0]);
    const twice = await claim();
    expect(twice.jobs.map(({ id }) => id).toSorted((a, b) => a - b)).toEqual([ids[0], ids[2], fresh]);
    expect((await claim()).jobs).toEqual([]);
    await crash();
    expect(await Promise.all([ids[0], ids[1], ids[2], fresh].map(spent))).toEqual([3, 2, 1, 0]);
    expect(await breaches(session.client)).toEqual([]);
  });
});

test('after its second loss a job that kills its process charges only itself, during a mass of failures, too', async () => {
  const scene = await openScene();
  const weary = Array.from({ length: 400 }, () => ({ kind: 'weary' as const, payload: {} }));
  const queue = createQueue(scene.engine, 'faults', { ...FAULTS, kinds: { ...FAULTS.kinds, weary: WEARY } });
  await queue.enqueueMany(weary.slice(0, 200));
  const poison = await scene.queue.enqueue('fragile', { dies: true });
  await queue.enqueueMany(weary);
  const isOver = async (): Promise<boolean> =>
    (await scene.one<number>('select count(*)::int from pawl.queue_dead where id = $1', [poison.id])) > 0;
  for (let deaths = 0; deaths < 10 && !(await isOver()); deaths += 1) {
    const child = await scene.child('lease', { FRAGILE: '4', CONCURRENCY: '20' });
    await Promise.race([child.exited, until('the job has ended', isOver, 60_000)]);
  }
  expect(await scene.runs(poison.id)).toMatchObject({
    attempts: [1, 2, 3, 4],
    reasons: ['worker lost', 'worker lost', 'worker lost', 'worker lost'],
  });
  const { rows } = await scene.eye.client.query(
    `select (select coalesce(sum(o.n), 0)::int from pawl.queue_transition o where o.at = t.at and o.reason = 'worker lost') as charged
      from pawl.queue_transition t where t.id = $1 order by t.at`,
    [poison.id],
  );
  expect(rows.slice(2)).toEqual([{ charged: 1 }, { charged: 1 }]);
  expect(await scene.breaches()).toEqual([]);
}, 120_000);
