import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { SqlSession } from '../sql-session.ts';

let database: FreshDatabase;
let session: SqlSession;

beforeAll(async () => {
  database = await freshDatabase();
  session = await SqlSession.open(database.url);
});

afterAll(async () => {
  await session.end();
  await database.drop();
});

const WORK = [{ name: 'work' }] as const;

const RATES = ['queue_permit', 'queue_rate'] as const;
const TABLES = ['queue_grouped', 'queue_place', 'queue_group_note', ...RATES] as const;
const UNTOUCHED = Object.fromEntries(TABLES.map((name) => [name, 0]));

/** Scans, and rows that were read or written, of each table of groups in this session. What is not sent yet counts, too. */
async function counters(): Promise<Record<string, number>> {
  const { rows } = await session.client.query<{ name: string; n: number }>(
    `
    select relname as name, (seq_scan + coalesce(idx_scan, 0) + seq_tup_read + coalesce(idx_tup_fetch, 0) + n_tup_ins + n_tup_upd + n_tup_del)::int as n
    from pg_stat_xact_user_tables where schemaname = 'pawl' and relname = any ($1)`,
    [TABLES],
  );
  return Object.fromEntries(rows.map(({ name, n }) => [name, n]));
}

/** The same, by what is done. It is a transaction of its own, which is committed or not. */
async function touchedBy(what: () => Promise<unknown>, isCommitted = false): Promise<Record<string, number>> {
  await session.begin();
  const before = await counters();
  await what();
  const after = await counters();
  await session.client.query(isCommitted ? 'commit' : 'rollback');
  return Object.fromEntries(Object.entries(after).map(([name, n]) => [name, n - (before[name] ?? 0)]));
}

test('whatever becomes of a job without a group reads and writes no table of groups', async () => {
  const { queue, kinds } = await session.register('free', WORK);
  const worker = await session.addWorker(queue);
  const kind = kinds['work'] ?? -1;
  const touched = await touchedBy(async () => {
    await session.add(queue, [{ kind }, { kind, key: 'k' }, { kind, runAt: new Date(0) }]);
    await session.add(
      queue,
      Array.from({ length: 20 }, () => ({ kind })),
    );
    await session.client.query(`update pawl.queue_delayed set run_at = clock_timestamp() - interval '1 s'`);
    await session.one(`select pawl.enqueue('{"queue": "free", "kind": "work", "delay": "-1 s"}')`);
    for (let settled = 0; settled < 24; ) {
      const { jobs } = await session.claim(queue, worker);
      const [first, ...rest] = jobs;
      if (first === undefined) throw new Error(`nothing to claim after ${settled} jobs`);
      const to = settled === 0 ? 'retry' : 'error';
      await session.settle(queue, worker, {
        fail: [{ claim: first.claim, id: first.id, to, wait: 3_600_000 }],
        part: rest.map(({ claim, id }) => ({ claim, ids: [id] })),
        keys: SqlSession.keysOf(jobs),
      });
      settled += jobs.length;
    }
    await session.one('select pawl.queue_ended_alone(0::smallint, 1, $1)', [queue]);
  });
  expect(touched).toEqual(UNTOUCHED);
});

test('a settlement of a queue without groups reads no table of groups where another queue of its shard has places', async () => {
  const other = await declared('neighbour', 1);
  await session.one('select pawl.queue_add($1, 0::smallint, 1, $2, array[0::smallint], $3, null, null, $4)::text', [
    other.queue,
    [other.kinds['work']],
    '[1]',
    '[{"group": "g"}]',
  ]);
  expect((await session.claim(other.queue, await session.addWorker(other.queue))).jobs).toHaveLength(1);
  const { queue, kinds } = await session.register('plain', WORK);
  const worker = await session.addWorker(queue);
  const touched = await touchedBy(async () => {
    await session.add(queue, [{ kind: kinds['work'] ?? -1 }, { kind: kinds['work'] ?? -1 }]);
    const { jobs } = await session.claim(queue, worker);
    expect(jobs).toHaveLength(2);
    await session.complete(queue, worker, jobs);
    await session.one('select pawl.queue_ended_alone(0::smallint, 1, $1)', [queue]);
  });
  expect(touched).toEqual(UNTOUCHED);
});

async function declared(
  name: string,
  perGroup: number | null,
  rate: { limit: number; perMs: number } | null = null,
): Promise<{ queue: number; kinds: Record<string, number> }> {
  const queue = { name, shards: 1, keyed: true, attempts: 3, perGroup, rate, history: null };
  const kind = { name: 'work', unique: false, coalesce: 'none', after: [], afterError: 'run', attempts: null };
  return session.one('select pawl.queue_register($1::json)', [JSON.stringify({ ...queue, kinds: [kind] })]);
}

test('a claim reads none of the jobs that wait for places of full groups, and a job that waits is moved twice in all', async () => {
  const { queue, kinds } = await declared('full', 1);
  const worker = await session.addWorker(queue);
  const groups = 50;
  const add = (n: number, of: (at: number) => object | null): Promise<unknown> =>
    session.one('select pawl.queue_add($1, 0::smallint, $2, $3, array[0::smallint], $4, null, null, $5)::text', [
      queue,
      n,
      [kinds['work']],
      JSON.stringify(Array.from({ length: n }, () => 1)),
      JSON.stringify(Array.from({ length: n }, (_, at) => of(at))),
    ]);
  await add(groups * 100, (at) => ({ group: `g${at % groups}` }));
  const first = await session.claim(queue, worker, { limit: 100 });
  expect(first.jobs).toHaveLength(groups);
  // They were admitted as one run, though each is of another group.
  expect(first.runs).toHaveLength(1);
  await add(10, () => null);
  const claimed = await touchedBy(async () => expect((await session.claim(queue, worker)).jobs).toHaveLength(10), true);
  expect(claimed).toMatchObject({ queue_grouped: 0, queue_place: 0 });
  const admitted = await touchedBy(async () => {
    await session.complete(queue, worker, first.jobs);
    expect((await session.claim(queue, worker, { limit: 100 })).jobs).toHaveLength(groups);
  });
  // Looked up, read, locked, deleted, and is there another: and nothing for the others of the line.
  expect(admitted['queue_grouped']).toBeLessThan(groups * 10);
  for (const name of RATES) expect(admitted[name]).toBe(0);
});

test('a group that waits for its rate is looked at when that has room, and no claim before reads a job of it or its permits', async () => {
  const { queue, kinds } = await declared('rated', null, { limit: 2, perMs: 3_600_000 });
  const worker = await session.addWorker(queue);
  await session.one('select pawl.queue_add($1, 0::smallint, 100, $2, array[0::smallint], $3, null, null, $4)::text', [
    queue,
    [kinds['work']],
    JSON.stringify(Array.from({ length: 100 }, () => 1)),
    JSON.stringify(Array.from({ length: 100 }, () => ({ group: 'g' }))),
  ]);
  const { jobs } = await session.claim(queue, worker);
  expect(jobs).toHaveLength(2);
  await session.complete(queue, worker, jobs);
  // Two places were given back: their note is looked at once.
  await session.claim(queue, worker);
  let due: number | undefined;
  const { queue_rate: rate, ...rest } = await touchedBy(async () => {
    for (let claim = 0; claim < 5; claim += 1) ({ due } = await session.claim(queue, worker));
  });
  expect(rest).toEqual({ ...UNTOUCHED, queue_rate: undefined, queue_group_note: 5 });
  // Is one due, is one so late that the clock was set back, and when is the first one due.
  expect(rate).toBeLessThanOrEqual(5 * 4);
  expect(due).toBeGreaterThan(1_700_000);
  expect(due).toBeLessThanOrEqual(1_800_000);
  await session.client.query(
    `update pawl.queue_rate set tat = tat - interval '30 min', due_at = due_at - interval '30 min' where queue = $1`,
    [queue],
  );
  expect((await session.claim(queue, worker)).jobs).toHaveLength(1);
});
