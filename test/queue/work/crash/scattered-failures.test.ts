import { expect, onTestFinished, test } from 'vitest';
import { freshDatabase } from '../../../support/database.ts';
import { type Settle, SqlSession } from '../../sql-session.ts';

/** What a settlement leaves of the jobs of a queue, in numbers that do not depend on their ids. */
const LEFT = `
with job as (select j.id, row_number() over (order by j.id) - 1 as nth from pawl.queue_job j where j.queue = $1)
select json_build_object(
  'delayed', (select json_agg(json_build_array(j.nth, d.n, d.priority, d.attempt, d.lost, d.run_at > clock_timestamp()) order by j.nth)
    from pawl.queue_delayed d join job j using (id) where d.queue = $1),
  'ready', (select json_agg(json_build_array(j.nth, r.n, r.attempt) order by j.nth) from pawl.queue_ready r join job j using (id) where r.queue = $1),
  'parked', (select json_agg(json_build_array(j.nth, p.attempt, p.key) order by j.nth) from pawl.queue_parked p join job j using (id) where p.queue = $1),
  'dead', (select json_agg(json_build_array(j.nth, d.status, d.error) order by j.nth) from pawl.queue_dead d join job j using (id) where d.queue = $1),
  'moves', (select json_agg(json_build_array(j.nth, t.n, t.attempt, t.to_status, t.reason, t.error, o.nth, t.worker = $2, t.claimed_at < t.at) order by j.nth)
    from pawl.queue_transition t join job j using (id) left join job o on o.id = t.error_of where t.queue = $1),
  'receipts', (select json_agg(json_build_array(r.attempt, r.unit, r.key_hash, (select json_agg(j.nth order by j.nth) from job j where r.ids @> j.id)) order by lower(r.ids))
    from pawl.queue_receipt r where r.queue = $1),
  'running', (select count(*) from pawl.queue_running r where r.queue = $1))`;

type Failure = NonNullable<Settle['fail']>[number];

interface Case {
  readonly what: string;
  /** The failed jobs by their place, and how each fails. */
  readonly failures: readonly (Pick<Failure, 'to' | 'wait' | 'error'> & { readonly at: readonly number[] })[];
  readonly key?: string;
  /** What happens between the claim and the settlement. */
  readonly meanwhile?: string;
  readonly stale?: number;
}

const RETRY = { to: 'retry', wait: 60_000 } as const;
const TAKE_OUT =
  'update pawl.queue_running r set ids = r.ids - int8multirange(int8range($1::bigint, $1::bigint + 1)) where r.id = $2::bigint';
const CASES: readonly Case[] = [
  { what: 'one', failures: [{ ...RETRY, at: [4], error: 'one' }] },
  {
    what: 'some of two errors, and one without a text',
    failures: [
      { ...RETRY, at: [4, 7, 9], error: 'one' },
      { ...RETRY, at: [2], error: 'two' },
      { ...RETRY, at: [0] },
    ],
  },
  {
    what: 'all',
    failures: [
      { ...RETRY, at: [0, 2, 4, 6, 8, 10], error: 'one' },
      { ...RETRY, at: [1, 3, 5, 7, 9, 11] },
    ],
  },
  { what: 'neighbours, which are a run', failures: [{ ...RETRY, at: [4, 5, 8], error: 'one' }] },
  { what: 'at once', failures: [{ ...RETRY, at: [4], wait: 0 }] },
  {
    what: 'for good',
    failures: [
      { ...RETRY, at: [2] },
      { to: 'error', at: [4], error: 'one' },
    ],
  },
  { what: 'of a key', failures: [{ ...RETRY, at: [0] }], key: 'a' },
  {
    what: 'one that was taken out of the claim meanwhile, the first of its error',
    failures: [{ ...RETRY, at: [4, 7], error: 'one' }],
    meanwhile: TAKE_OUT,
  },
  {
    what: 'only the one that was taken out',
    failures: [{ ...RETRY, at: [4], error: 'one' }],
    meanwhile: TAKE_OUT,
    stale: 1,
  },
  {
    what: 'one of a claim that was given to another worker',
    failures: [{ ...RETRY, at: [4], error: 'one' }],
    meanwhile: 'delete from pawl.queue_running where $1::bigint > 0 and id = $2::bigint',
    stale: 1,
  },
];

test('a claim that is settled whole leaves the same of its failed jobs as one that is settled in part', async () => {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const session = await SqlSession.open(database.url);
  onTestFinished(() => session.end());

  const settled = async ({ what, failures, key, meanwhile }: Case, isWhole: boolean): Promise<object> => {
    const { queue, kinds } = await session.register(`${what} ${isWhole}`, [{ name: 'k', attempts: 5 }]);
    const worker = await session.addWorker(queue);
    await session.add(
      queue,
      Array.from({ length: 12 }, () => ({ kind: kinds['k'] ?? 0, key: key ?? null, priority: 3 })),
    );
    const { jobs } = await session.claim(queue, worker, { limit: 20 });
    const claim = jobs[0]?.claim ?? 0;
    expect(new Set(jobs.map((job) => job.claim))).toEqual(new Set([claim]));
    const ids = jobs.map(({ id }) => id).sort((a, b) => a - b);
    const spans = (at: readonly number[]): string => `{${at.map((n) => `[${ids[n]},${(ids[n] ?? 0) + 1})`).join()}}`;
    const fail = failures.map(({ at, ...how }) => ({ claim, ids: spans(at), reason: how.to, ...how }));
    if (meanwhile !== undefined) await session.client.query(meanwhile, [ids[4], claim]);
    const failed = new Set(failures.flatMap(({ at }) => at));
    const complete = ids.filter((_, n) => !failed.has(n));
    const done = isWhole ? { whole: [claim] } : complete.length > 0 ? { part: [{ claim, ids: complete }] } : {};
    const stale = await session.settle(queue, worker, { ...done, fail, keys: SqlSession.keysOf(jobs) });
    return { stale: stale.length, left: await session.one<object>(LEFT, [queue, worker]) };
  };

  for (const each of CASES) {
    const whole = await settled(each, true);
    expect(whole, each.what).toMatchObject({ stale: each.stale ?? 0, left: { running: 0 } });
    expect(whole, each.what).toEqual(await settled(each, false));
  }
});
