import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { interleave, interleavings } from '../interleaving.ts';
import { breaches } from '../invariants.ts';
import { type ClaimedJob, type QueueRow, SqlSession } from '../sql-session.ts';

// What an open transaction that guards a job blocks, and what not. The tests call the functions as workers do.

let database: FreshDatabase;
let director: SqlSession;
let handler: SqlSession;
let other: SqlSession;
let queues = 0;

beforeAll(async () => {
  database = await freshDatabase();
  [director, handler, other] = (await Promise.all([1, 2, 3].map(() => SqlSession.open(database.url)))) as [
    SqlSession,
    SqlSession,
    SqlSession,
  ];
  // A session that waits for a lock here fails with lock_timeout, unless a busy machine lets the one that has it wait.
  await other.client.query(`set lock_timeout = '20s'`);
});

afterEach(async () => {
  await handler.client.query('rollback');
  await other.client.query('rollback');
  expect(await breaches(director.client)).toEqual([]);
});

afterAll(async () => {
  await Promise.all([director, handler, other].map((session) => session.end()));
  await database.drop();
});

/** A queue with a worker that has claimed jobs of these keys, all in one batch. */
async function claimed(
  keys: readonly (string | null)[],
): Promise<QueueRow & { worker: number; jobs: readonly ClaimedJob[] }> {
  const row = await director.register(`guards-${(queues += 1)}`, [{ name: 'work' }]);
  const worker = await director.addWorker(row.queue);
  const kind = row.kinds['work'] ?? -1;
  await director.add(
    row.queue,
    keys.map((key) => ({ kind, key })),
  );
  const { jobs } = await director.claim(row.queue, worker);
  expect(jobs).toHaveLength(keys.length);
  expect(new Set(jobs.map(({ claim }) => claim)).size).toBe(1);
  return { ...row, worker, jobs: jobs.toSorted((a, b) => a.id - b.id) };
}

function running(queue: number): Promise<number[]> {
  return director.one(
    `select coalesce(array_agg(i.id::int order by i.id), '{}') from pawl.queue_running r cross join lateral unnest(r.ids) u (span)
     cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id) where r.queue = $1`,
    [queue],
  );
}

const idsOf = (jobs: readonly ClaimedJob[]): number[] => jobs.map(({ id }) => id);

describe('a guard', () => {
  test('fails for a job that has left its claim, while other jobs of that claim are held', async () => {
    const { queue, worker, jobs } = await claimed([null, null]);
    const [late, held] = jobs as [ClaimedJob, ClaimedJob];
    await director.settle(queue, worker, { fail: [{ ...late, to: 'retry', wait: 0 }] });
    await handler.begin();
    await expect(handler.guard(late)).rejects.toMatchObject({ code: 'PW004' });
    await handler.client.query('rollback');
    await handler.begin();
    await handler.guard(held);
    expect(await running(queue)).toEqual([held.id]);
  });

  for (const isolation of ['repeatable read', 'serializable']) {
    test(`never passes for a job that was rescued, in a transaction that began before (${isolation})`, async () => {
      const { queue, worker, jobs } = await claimed([null, null]);
      await handler.client.query(`begin isolation level ${isolation}`);
      await handler.one('select count(*) from pawl.queue_job');
      await director.expire(worker);
      await director.rescue(queue);
      await expect(handler.guard(jobs[0] as ClaimedJob)).rejects.toMatchObject({
        code: expect.stringMatching(/^(PW004|40001)$/),
      });
    });
  }

  test('keeps its own job from being rescued, with its key, and nothing else of the batch', async () => {
    const { queue, worker, jobs } = await claimed(['a', 'a', 'b', 'c']);
    const [first, , b, c] = jobs as [ClaimedJob, ClaimedJob, ClaimedJob, ClaimedJob];
    await handler.begin();
    await handler.guard(first);
    await director.expire(worker);
    expect(await other.rescue(queue)).toBe(2);
    expect(await running(queue)).toEqual(idsOf(jobs.slice(0, 2)));
    const next = await director.addWorker(queue);
    // The first job of each key in a batch is charged.
    expect(idsOf((await other.claim(queue, next)).jobs)).toEqual(idsOf([b, c]));
    await handler.commit();
    expect(await other.rescue(queue)).toBe(2);
    expect(await running(queue)).toEqual(idsOf([b, c]));
  });

  test('does not keep the jobs of other lost workers from being rescued', async () => {
    const { queue, kinds, worker, jobs } = await claimed([null]);
    const second = await director.addWorker(queue);
    await director.add(queue, [{ kind: kinds['work'] ?? -1 }]);
    const [theirs] = (await director.claim(queue, second)).jobs as [ClaimedJob];
    await handler.begin();
    await handler.guard(jobs[0] as ClaimedJob);
    await director.expire(worker);
    await director.expire(second);
    expect(await other.rescue(queue)).toBe(1);
    expect(await running(queue)).toEqual(idsOf(jobs));
    expect(await director.one('select id::int from pawl.queue_ready where id = $1', [theirs.id])).toBe(theirs.id);
  });

  test('keeps its own job from being settled, and nothing else of the batch', async () => {
    const { queue, worker, jobs } = await claimed(['a', 'b', 'c', 'd']);
    const [guarded, b, failed, last] = jobs as [ClaimedJob, ClaimedJob, ClaimedJob, ClaimedJob];
    await handler.begin();
    await handler.guard(guarded);
    const { claim } = guarded;
    const timedOut = { fail: [{ ...guarded, to: 'retry', wait: 0 }], guarded: [guarded.id] } as const;
    const keys = SqlSession.keysOf([guarded]);
    expect(await other.trySettle(queue, worker, { ...timedOut, keys })).toEqual({ stale: [], guarded: [guarded.id] });
    expect(await running(queue)).toEqual(idsOf(jobs));
    const rest = { part: [{ claim, ids: [b.id] }], fail: [{ ...failed, to: 'error' }] } as const;
    expect(await other.settle(queue, worker, { ...rest, keys: SqlSession.keysOf([b, failed]) })).toEqual([]);
    expect(await running(queue)).toEqual(idsOf([guarded, last]));
    await handler.commit();
    expect(await other.trySettle(queue, worker, { ...timedOut, keys })).toEqual({ stale: [], guarded: [] });
    expect(await running(queue)).toEqual([last.id]);
  });
});

// A statement that takes a job away, and a handler that guards it: in every order the job is taken, or the handler has
// committed before.
describe.each([
  [
    'a settlement',
    (queue: number, worker: number, job: ClaimedJob): Promise<unknown> =>
      other.settle(queue, worker, { fail: [{ ...job, to: 'retry', wait: 0 }], guarded: [job.id] }),
  ],
  [
    'a rescue',
    (queue: number, worker: number): Promise<unknown> => other.expire(worker).then(() => other.rescue(queue)),
  ],
])('%s at the same time as a guard', (_what, take) => {
  for (const jobs of [1, 2]) {
    test(`never takes a job whose handler commits, of a claim of ${jobs}`, async () => {
      for (const order of interleavings([3, 2])) {
        const scene = await claimed(Array.from({ length: jobs }, () => null));
        const [job] = scene.jobs as [ClaimedJob];
        const told: string[] = [];
        await interleave(
          director,
          [
            {
              name: 'handler',
              session: handler,
              steps: [
                () => handler.begin(),
                () =>
                  handler.guard(job).then(
                    () => told.push('passes'),
                    () => told.push('fails'),
                  ),
                async () => {
                  if (told.at(-1) === 'passes' && !(await running(scene.queue)).includes(job.id)) told.push('TAKEN');
                  await handler.commit();
                },
              ],
            },
            {
              name: 'taker',
              session: other,
              steps: [() => other.begin().then(() => take(scene.queue, scene.worker, job)), () => other.commit()],
            },
          ],
          order,
        );
        expect(told, `order ${order.join(' ')}`).toEqual([expect.stringMatching(/passes|fails/)]);
        expect(await breaches(director.client)).toEqual([]);
      }
    });
  }
});
