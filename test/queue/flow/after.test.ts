import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type Unit } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20, logger: recordLog() });
});

afterAll(() => engine.stop());

const kinds = { job: { attempts: 1 } } as const;
type Jobs = Queue<typeof kinds>;

function newQueue(shards = 1): Jobs {
  nth += 1;
  return createQueue(engine, `after ${nth}`, { kinds, shards });
}

/** Runs a worker of each queue while `body` runs. */
async function working<T>(
  queues: readonly Jobs[],
  run: (unit: Unit) => unknown,
  body: () => Promise<T>,
  hold: 'lease' | 'transaction' = 'lease',
): Promise<T> {
  const workers = queues.map((queue) => queue.work({ job: run }, { hold, concurrency: 5 }));
  try {
    return await body();
  } finally {
    for (const worker of workers) await worker.stop();
  }
}

const fails = (unit: Unit): unknown => {
  if (unit.payload === 'fails') throw new Error('it fails');
  return unit.payload;
};

async function count(table: string): Promise<number> {
  const [row] = await engine.query<{ n: number }>(
    statement(`test.count_${table}`, `select count(*)::int as n from pawl.${table}`),
  );
  return row?.n ?? -1;
}

for (const hold of ['lease', 'transaction'] as const) {
  test(`a job runs once all jobs that it comes after have ended, and reads their results, hold ${hold}`, async () => {
    const first = newQueue();
    const second = newQueue(4);
    const third = newQueue();
    const order: unknown[] = [];
    const a = await first.enqueue('job', 'a');
    const b = await second.enqueue('job', 'b', { key: 'k' });
    const c = await third.enqueue('job', 'c', { after: [a.id, b.id, a.id] });
    const d = await first.enqueue('job', 'd', { after: [c.id], key: 'k' });
    expect(c).toMatchObject({ status: 'new', duplicate: false });
    const result = await working(
      [third, second, first],
      async (unit) => {
        order.push(unit.payload);
        return (await unit.parents()).map(({ id, queue, status, result }) => [id, queue, status, result]);
      },
      () => first.waitFor(d.id),
      hold,
    );
    expect(order.slice(2)).toEqual(['c', 'd']);
    expect(result).toEqual([
      [
        c.id,
        third.name,
        'complete',
        [
          [a.id, first.name, 'complete', []],
          [b.id, second.name, 'complete', []],
        ],
      ],
    ]);
    await until('nothing is watched', async () => (await count('queue_watch_part')) === 0);
  });
}

test('a waiting job says what it waits for, and is found, listed and counted', async () => {
  const queue = newQueue();
  const parents = [await queue.enqueue('job', 'a'), await queue.enqueue('job', 'b')];
  const ids = parents.map(({ id }) => id);
  const { id } = await queue.enqueue('job', 'needle', { after: ids });
  expect(await queue.get(id)).toMatchObject({ status: 'new', runAt: null, attempt: 0 });
  expect((await queue.explain(id)).reasons[0]).toMatchObject({
    code: 'waits_for_jobs',
    job: ids[0],
    text: `it comes after job ${ids[0]}, and 1 more, which have not ended; explain('${ids[0]}') says why`,
  });
  expect(await queue.stats()).toMatchObject({ ready: 2, delayed: 1 });
  expect((await queue.search('needle status:new')).jobs.map((job) => job.id)).toEqual([id]);
  expect((await queue.history(id)).map(({ reason }) => reason)).toEqual(['enqueue']);
});

test('parents that have ended count at once', async () => {
  const queue = newQueue();
  const a = await queue.enqueue('job', 'a');
  const bad = await queue.enqueue('job', 'fails');
  const gone = await queue.enqueue('job', 'gone');
  await queue.cancel(gone.id);
  await working([queue], fails, async () => {
    await queue.drain();
    const late = await queue.enqueue('job', 'late', { after: [a.id] });
    expect(await queue.waitFor(late.id)).toBe('late');
    const statuses = await Promise.all(
      [[bad.id], [gone.id], [a.id, bad.id, gone.id]].map(async (after) => {
        const { id, status } = await queue.enqueue('job', 'no', { after });
        expect((await queue.get(id)).status).toBe(status);
        return status;
      }),
    );
    expect(statuses).toEqual(['error', 'cancelled', 'error']);
    const all = await queue.enqueue('job', 'all', { after: [bad.id, gone.id], afterError: 'run', afterCancel: 'run' });
    expect(await queue.waitFor(all.id)).toBe('all');
  });
});

test.for([
  [{}, 'error', 'cancelled'],
  [{ afterError: 'run', afterCancel: 'run' }, 'complete', 'complete'],
  [{ afterError: 'cancel', afterCancel: 'error' }, 'cancelled', 'error'],
] as const)(
  'what becomes of a job whose parent fails or is cancelled is said by %o',
  async ([options, failed, cancelled]) => {
    const queue = newQueue();
    const bad = await queue.enqueue('job', 'fails');
    const gone = await queue.enqueue('job', 'gone');
    const ofBad = await queue.enqueue('job', 'child', { after: [bad.id], ...options });
    const ofGone = await queue.enqueue('job', 'child', { after: [gone.id], ...options });
    const below = await queue.enqueue('job', 'below', {
      after: [ofBad.id, ofGone.id],
      afterError: 'run',
      afterCancel: 'run',
    });
    await queue.cancel(gone.id);
    await working([queue], fails, () => queue.waitFor(below.id));
    expect((await queue.get(ofBad.id)).status).toBe(failed);
    expect((await queue.get(ofGone.id)).status).toBe(cancelled);
    if (failed !== 'complete') {
      expect((await queue.get(ofBad.id)).error).toBe('1 of the jobs that it comes after ended in error');
      expect((await queue.history(ofBad.id)).map(({ reason }) => reason)).toEqual(['enqueue', 'parents']);
    }
  },
);

test('a job that ends in error with its parent leaves one dead letter', async () => {
  nth += 1;
  const letters = createQueue(engine, `after ${nth}`, {
    kinds: { job: { attempts: 1, onError: 'letter' }, letter: {} },
  });
  const bad = await letters.enqueue('job', 'fails');
  const child = await letters.enqueue('job', 'child', { after: [bad.id] });
  const seen: unknown[] = [];
  const worker = letters.work({
    job: fails,
    letter: ({ payload }) => void seen.push((payload as { job: string }).job),
  });
  await letters.drain();
  await worker.stop();
  expect(seen, 'one for each').toHaveLength(2);
  expect(new Set(seen)).toEqual(new Set([bad.id, child.id]));
});

test('a chain of a hundred jobs ends with its first one', async () => {
  const queue = newQueue();
  let last = await queue.enqueue('job', 0);
  const first = last.id;
  await engine.transaction(async (tx) => {
    for (let n = 1; n < 100; n += 1) last = await queue.enqueue('job', n, { after: [last.id], tx });
  });
  await queue.cancel(first, { reason: 'all of it' });
  expect((await queue.get(last.id)).status).toBe('cancelled');
  expect((await queue.stats()).delayed).toBe(0);
});

test('a waiting job can be cancelled, and what waits for it ends', async () => {
  const queue = newQueue();
  const a = await queue.enqueue('job', 'a');
  const b = await queue.enqueue('job', 'b', { after: [a.id] });
  const c = await queue.enqueue('job', 'c', { after: [b.id] });
  expect(await queue.cancel(b.id)).toBe('cancelled');
  expect((await queue.get(c.id)).status).toBe('cancelled');
  await working([queue], fails, () => queue.drain());
  expect((await queue.get(b.id)).status).toBe('cancelled');
  expect((await queue.get(a.id)).status).toBe('complete');
});

test('a waiting job that is updated, or cancelled and retried, goes on waiting', async () => {
  const queue = newQueue();
  const a = await queue.enqueue('job', 'a');
  const b = await queue.enqueue('job', 'b', { after: [a.id] });
  await queue.update(b.id, { payload: 'new', priority: 5, runAt: new Date() });
  expect(await queue.retry(b.id)).toBe('new');
  await queue.cancel(b.id);
  await queue.retry(b.id);
  expect((await queue.explain(b.id)).reasons[0]).toMatchObject({ code: 'waits_for_jobs', job: a.id });
  expect(await working([queue], fails, () => queue.waitFor(b.id))).toBe('new');
  const c = await queue.enqueue('job', 'c', { after: [a.id] });
  const gone = await queue.enqueue('job', 'gone');
  const d = await queue.enqueue('job', 'd', { after: [c.id, gone.id] });
  await queue.cancel(gone.id);
  await working([queue], fails, () => queue.waitFor(c.id));
  expect((await queue.get(d.id)).status).toBe('cancelled');
  await queue.retry(d.id);
  expect(await working([queue], fails, () => queue.waitFor(d.id))).toBe('d');
});

test('a job that comes after others is delayed as it was asked to be', async () => {
  const queue = newQueue();
  const runAt = new Date(Date.now() + 3_600_000);
  const a = await queue.enqueue('job', 'a');
  const b = await queue.enqueue('job', 'b', { after: [a.id], runAt });
  expect((await queue.get(b.id)).runAt).toEqual(runAt);
  await working([queue], fails, () => queue.waitFor(a.id));
  expect((await queue.explain(b.id)).reasons[0]).toMatchObject({ code: 'scheduled', until: runAt });
});

test('jobs of a key take their turn when what they come after has ended', async () => {
  const queue = newQueue();
  const a = await queue.enqueue('job', 'a');
  const waits = await queue.enqueue('job', 'waits', { after: [a.id], key: 'k' });
  const passes = await queue.enqueue('job', 'passes', { key: 'k' });
  const order: unknown[] = [];
  await queue.pause();
  await working(
    [queue],
    (unit) => void order.push(unit.payload),
    async () => {
      await queue.resume();
      await queue.waitFor(waits.id);
      await queue.waitFor(passes.id);
    },
  );
  expect(new Set(order)).toEqual(new Set(['a', 'passes', 'waits']));
  expect(order).toHaveLength(3);
});

test('what cannot be waited for is refused, and nothing is written', async () => {
  const queue = newQueue();
  await queue.register();
  const [before] = await engine.query<{ n: number }>(
    statement('test.jobs', 'select count(*)::int as n from pawl.queue_job'),
  );
  const wrong = (options: object): Promise<unknown> => queue.enqueue('job', 1, options);
  await expect(wrong({ after: ['987654321'] })).rejects.toThrow(NotFound);
  await expect(wrong({ after: ['987654321'] })).rejects.toThrow('there is no job 987654321 to come after');
  await expect(wrong({ after: ['x'] })).rejects.toThrow(InvalidInput);
  await expect(wrong({ after: '1' })).rejects.toThrow(InvalidInput);
  await expect(wrong({ after: ['1'], afterError: 'stop' })).rejects.toThrow(InvalidInput);
  await expect(queue.enqueueMany([{ kind: 'job', payload: 1, after: ['1'] }])).rejects.toThrow(
    'use flow() or enqueue()',
  );
  const [after] = await engine.query<{ n: number }>(
    statement('test.jobs', 'select count(*)::int as n from pawl.queue_job'),
  );
  expect(after).toEqual(before);
});

test('SQL enqueues a job that comes after another one', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('job', 'a');
  const [row] = await engine.query<{ answer: { id: string } }>(
    statement('test.sql', 'select pawl.enqueue($1::jsonb) as answer'),
    [JSON.stringify({ queue: queue.name, kind: 'job', payload: 'b', after: [id] })],
  );
  const child = row?.answer.id ?? '';
  expect((await queue.get(child)).status).toBe('new');
  expect(await working([queue], fails, () => queue.waitFor(child))).toBe('b');
});

test('a parent that ends while the child is not yet committed releases it soon after the commit', async () => {
  const queue = newQueue();
  await working([queue], fails, async () => {
    const a = await queue.enqueue('job', 'a', { runAt: new Date(Date.now() + 3_600_000) });
    const child = await engine.transaction(async (tx) => {
      const added = await queue.enqueue('job', 'b', { after: [a.id], tx });
      await queue.cancel(a.id);
      return added;
    });
    await until('the child is cancelled', async () => (await queue.get(child.id)).status === 'cancelled');
  });
});

test('children that are enqueued while their parents end all run', async () => {
  const queue = newQueue();
  for (const hold of ['lease', 'transaction'] as const) {
    await working(
      [queue],
      fails,
      async () => {
        const pair = async (n: number): Promise<unknown> => {
          const { id } = await queue.enqueue('job', n);
          const child = await queue.enqueue('job', -n, { after: [id] });
          return queue.waitFor(child.id);
        };
        const results: unknown[] = [];
        for (let n = 1; n <= 100; n += 5) results.push(...(await Promise.all([0, 1, 2, 3, 4].map((m) => pair(n + m)))));
        expect(results).toEqual(Array.from({ length: 100 }, (_, n) => -(n + 1)));
      },
      hold,
    );
  }
});
