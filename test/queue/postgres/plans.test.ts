import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ClaimAnswer } from '../../../src/queue/store.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { LONG } from '../../support/long.ts';
import { pagesRead } from '../../support/pages.ts';
import { type NewJob, type QueueRow, SqlSession } from '../sql-session.ts';

const MANY = LONG ? 1_000_000 : 20_000;
const BLOCKED = LONG ? 100_000 : 10_000;
const FEW = 1000;

const TABLES = [
  'queue_job',
  'queue_ready',
  'queue_delayed',
  'queue_parked',
  'queue_key',
  'queue_running',
  'queue_receipt',
  'queue_receipt_one',
];

let database: FreshDatabase;
let session: SqlSession;

beforeAll(async () => {
  database = await freshDatabase();
  session = await SqlSession.open(database.url);
  // Statistics stay those of empty tables: the worst state that an overloaded autovacuum can leave.
  await session.client.query(
    TABLES.map((table) => `alter table pawl.${table} set (autovacuum_enabled = off);`).join(''),
  );
});

afterAll(async () => {
  await session.end();
  await database.drop();
});

let made = 0;
async function queue(options: object = {}): Promise<QueueRow & { worker: number; kind: number }> {
  made += 1;
  const row = await session.register(`plans ${made}`, [{ name: 'job', ...options }]);
  return { ...row, worker: await session.addWorker(row.queue), kind: row.kinds['job'] ?? -1 };
}

/** Inserts jobs directly into the tables, as a million enqueues would leave them. `key` is SQL. */
function filling(
  into: 'ready' | 'delayed' | 'parked',
  row: { queue: number; kind: number },
  n: number,
  key: string,
): string {
  const runAt =
    into === 'delayed' ? `clock_timestamp() + interval '1 day' + id * interval '1 ms'` : 'null::timestamptz';
  const columns = `${into === 'delayed' ? 'run_at, ' : ''}id, shard, queue, priority, kind, key`;
  return `
    with job as (
      insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, run_at, key, payload)
      select id, clock_timestamp(), 0, ${row.queue}, ${row.kind}, 0, ${runAt}, ${key}, 'null'
      from (select nextval('pawl.queue_job_id') as id from generate_series(1, ${n})) s
      returning *
    )
    insert into pawl.queue_${into} (${columns}) select ${columns} from job`;
}

async function fill(...what: Parameters<typeof filling>): Promise<void> {
  await session.client.query(filling(...what));
}

const NONE = 'null';
const OWN = `'k' || id`;

const pages = (call: string): Promise<number> => pagesRead(session.client, call);

function claim({ queue, worker }: { queue: number; worker: number }, limit: number): Promise<number> {
  return pages(
    `select pawl.queue_claim(${queue}::smallint, 0::smallint, ${worker}, ${limit}, ${limit}, 64, 32, (-32768)::smallint, 0)`,
  );
}

function claimOne({ queue, worker }: { queue: number; worker: number }): Promise<number> {
  return pages(`select pawl.queue_claim_one(${queue}::smallint, 0::smallint, ${worker}, 16, (-32768)::smallint, 0)`);
}

async function take({ queue }: { queue: number }): Promise<number> {
  const { rows } = await session.client.query<{ id: string; tid: string; xmin: string }>(
    `select id, ctid::text as tid, xmin from pawl.queue_ready where queue = ${queue} order by priority, id limit 1`,
  );
  const [row] = rows;
  return pages(
    `select pawl.queue_take_row(${queue}::smallint, 0::smallint, ${row?.id}, '${row?.tid}', '${row?.xmin}', true)`,
  );
}

function look({ queue, worker }: { queue: number; worker: number }): Promise<number> {
  return pages(`select pawl.queue_peek_ready(${queue}::smallint, 0::smallint, ${worker}, 64, (-32768)::smallint, 0)`);
}

/** A B-tree of a million rows is one level higher than one of a thousand: a few pages more for each index that is searched. */
const HIGHER = 1.6;

describe.each(['stale', 'fresh'])('with %s statistics', (statistics) => {
  async function settle(): Promise<void> {
    if (statistics === 'fresh') await session.client.query('analyze');
  }

  for (const key of [NONE, OWN]) {
    test(`a claim reads no more pages with ${MANY} jobs ready than with ${FEW}, ${key === OWN ? 'each of its own key' : 'without keys'}`, async () => {
      const [small, large] = [await queue(), await queue()];
      await fill('ready', small, FEW, key);
      await fill('ready', large, MANY, key);
      await settle();
      for (const limit of [1, 20]) expect(await claim(large, limit)).toBeLessThan((await claim(small, limit)) * HIGHER);
      expect(await claimOne(large)).toBeLessThan((await claimOne(small)) * HIGHER);
      expect(await look(large)).toBeLessThan((await look(small)) * HIGHER);
      if (key === OWN) return;
      expect(await take(large)).toBeLessThan((await take(small)) * HIGHER);
    }, 300_000);
  }

  test(`a claim of another kind, or of more urgent jobs, reads no more pages with ${MANY} jobs that it does not take`, async () => {
    const [small, large] = [await queue(), await queue()];
    await fill('ready', small, FEW, NONE);
    await fill('ready', large, MANY, NONE);
    await settle();
    const claimPart = (
      { queue: id, worker }: { queue: number; worker: number },
      kinds: string,
      upto: number,
    ): Promise<number> =>
      pages(
        `select pawl.queue_claim(${id}::smallint, 0::smallint, ${worker}, 20, 20, 64, 32, (-32768)::smallint, 0, null, null,
          '${kinds}'::smallint[], ${upto}::smallint)`,
      );
    expect(await claimPart(large, '{0}', 32_767)).toBeLessThan((await claimPart(small, '{0}', 32_767)) * HIGHER);
    const own = (row: { kind: number }): string => `{${row.kind}}`;
    expect(await claimPart(large, own(large), -1)).toBeLessThan((await claimPart(small, own(small), -1)) * HIGHER);
  }, 300_000);

  test(`a claim reads no more pages with ${MANY} jobs delayed`, async () => {
    const [small, large] = [await queue(), await queue()];
    for (const row of [small, large]) await fill('ready', row, 30, NONE);
    await fill('delayed', small, FEW, OWN);
    await fill('delayed', large, MANY, OWN);
    await settle();
    expect(await claim(large, 20)).toBeLessThan((await claim(small, 20)) * HIGHER);
    expect(await claimOne(large)).toBeLessThan((await claimOne(small)) * HIGHER);
  }, 300_000);

  test(`a claim reads no more pages with ${BLOCKED} jobs blocked by their key`, async () => {
    const [small, large] = [await queue(), await queue()];
    for (const [row, n] of [
      [small, FEW],
      [large, BLOCKED],
    ] as const) {
      await session.add(row.queue, [{ kind: row.kind, key: 'hot' }]);
      expect((await session.claim(row.queue, row.worker)).jobs).toHaveLength(1);
      await fill('parked', row, n, `'hot'`);
      await fill('ready', row, 30, OWN);
    }
    await settle();
    expect(await claim(large, 20)).toBeLessThan((await claim(small, 20)) * HIGHER);
    // Nor does the owner when it makes the next job ready, or when it is rescued.
    const held = async ({ queue }: QueueRow): Promise<[string, number]> => {
      const epoch = await session.one<string>(
        `select epoch from pawl.queue_key where queue = ${queue} and key = 'hot'`,
      );
      return ['hot', Number(epoch)];
    };
    const giveUp = async (row: QueueRow): Promise<number> =>
      pages(
        `select pawl.queue_release_keys(${row.queue}::smallint, 0::smallint, array['hot'], array[${(await held(row))[1]}]::bigint[])`,
      );
    expect(await giveUp(large)).toBeLessThan((await giveUp(small)) * HIGHER);
  }, 300_000);

  test(`keys are given up by no more pages with ${BLOCKED} other keys at work`, async () => {
    const giveUp = async (others: number): Promise<number> => {
      const { queue: id, kind } = await queue();
      await fill('parked', { queue: id, kind }, 20, OWN);
      await session.client.query(`
        insert into pawl.queue_key (shard, queue, key, epoch, held)
        select 0, ${id}, p.key, 1, true from pawl.queue_parked p where p.queue = ${id}
        union all select 0, ${id}, 'other' || i, 1, true from generate_series(1, ${others}) i`);
      await settle();
      return pages(`
        select pawl.queue_release_keys(${id}::smallint, 0::smallint, array_agg(p.key), array_agg(1::bigint)) from pawl.queue_parked p where p.queue = ${id}`);
    };
    const small = await giveUp(FEW);
    expect(await giveUp(BLOCKED)).toBeLessThan(small * HIGHER);
  }, 300_000);

  test(`places in groups are given back by no more pages with ${BLOCKED} other places taken`, async () => {
    const giveBack = async (others: number): Promise<number> => {
      const { queue: id } = await queue();
      const first = await session.one<number>(`
        with place as (
          insert into pawl.queue_place (id, shard, queue, group_name)
          select nextval('pawl.queue_job_id'), 0, ${id}, 'g' || i % 100 from generate_series(1, ${20 + others}) i returning id)
        select min(id)::int from place`);
      await settle();
      const ids = Array.from({ length: 20 }, (_, n) => `[${first + 2 * n},${first + 2 * n + 1})`).join();
      return pages(`select pawl.queue_leave_places(0::smallint, '{${ids}}'::int8multirange)`);
    };
    const small = await giveBack(FEW);
    expect(await giveBack(BLOCKED)).toBeLessThan(small * HIGHER);
  }, 300_000);

  test('a claim of coalesced units reads no more pages if each unit has twenty times as many jobs', async () => {
    const [small, large] = [await queue({ coalesce: 'all' }), await queue({ coalesce: 'all' })];
    // The claim takes all of the small units, and one of the large ones.
    await fill('ready', small, 2000, `'k' || id % 20`);
    await fill('ready', large, 40_000, `'k' || id % 20`);
    await settle();
    expect(await claim(large, 20)).toBeLessThan((await claim(small, 20)) * HIGHER);
  }, 300_000);

  test(`jobs of a hot key that are still ready are read once: the next claim skips them`, async () => {
    const row = await queue();
    await session.add(row.queue, [{ kind: row.kind, key: 'hot' }]);
    expect((await session.claim(row.queue, row.worker)).jobs).toHaveLength(1);
    await session.add(
      row.queue,
      Array.from({ length: 5000 }, () => ({ kind: row.kind, key: 'hot' })),
    );
    await session.add(row.queue, [{ kind: row.kind, key: 'cold' }]);
    let looks = 0;
    let after: readonly [number, number] = [-32_768, 0];
    for (let found = 0; found === 0; looks += 1) {
      expect(looks).toBeLessThan(10);
      const { jobs, last } = await session.claim(row.queue, row.worker, { rows: 1000, after });
      found = jobs.length;
      after = last === undefined ? after : [last.priority, last.id];
    }
    expect(await session.one(`select count(*)::int from pawl.queue_parked where queue = ${row.queue}`)).toBe(5000);
    const again = await session.claim(row.queue, row.worker, { rows: 1000 });
    expect(again.seen).toBe(0);
  });
});

test('plans from the time of empty tables are good for full ones', async () => {
  const fresh = await freshDatabase();
  const own = await SqlSession.open(fresh.url);
  try {
    await own.client.query(TABLES.map((table) => `alter table pawl.${table} set (autovacuum_enabled = off);`).join(''));
    const { queue, kinds } = await own.register('plans', [{ name: 'job' }]);
    const row = { queue, kind: kinds['job'] ?? -1, worker: await own.addWorker(queue) };
    const life = (): Promise<number> => rowsReadBy(own, row);
    const empty = [await life(), await life(), await life()];
    await own.add(queue, [{ kind: row.kind, key: 'hot' }]);
    expect((await own.claim(queue, row.worker)).jobs).toHaveLength(1);
    for (const [into, key] of [
      ['ready', OWN],
      ['delayed', OWN],
      ['parked', `'hot'`],
    ] as const) {
      await own.client.query(filling(into, row, 20_000, key));
    }
    expect(await life()).toBeLessThan(Math.max(...empty) * HIGHER);
  } finally {
    await own.end();
    await fresh.drop();
  }
});

/** How many rows are read by an enqueue, a claim, a failure, a settlement and a delayed enqueue; rolled back. */
async function rowsReadBy(own: SqlSession, row: { queue: number; kind: number; worker: number }): Promise<number> {
  const read = (): Promise<number> =>
    own.one(`select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int from pg_stat_xact_user_tables`);
  await own.begin();
  const before = await read();
  const jobsOfKeys = Array.from({ length: 60 }, (_, n): NewJob => ({ kind: row.kind, key: `new ${n}` }));
  await own.add(row.queue, jobsOfKeys);
  const { jobs: fine } = await own.claim(row.queue, row.worker, { limit: 20 });
  await own.complete(row.queue, row.worker, fine);
  const { jobs } = await own.claim(row.queue, row.worker, { limit: 20 });
  const [first, ...others] = jobs;
  expect([fine.length, jobs.length]).toEqual([20, 20]);
  const fail =
    first === undefined ? [] : [{ claim: first.claim, id: first.id, to: 'retry' as const, wait: 1000, reason: 'x' }];
  const part = [{ claim: first?.claim ?? -1, ids: others.map(({ id }) => id) }];
  await own.settle(row.queue, row.worker, { part, fail, keys: SqlSession.keysOf(jobs) });
  const runAt = new Date(Date.now() + 60_000);
  await own.add(row.queue, [
    { kind: row.kind, runAt },
    { kind: row.kind, key: 'later', runAt },
  ]);
  const after = await read();
  await own.client.query('rollback');
  return after - before;
}

test('hold: transaction claims by priority and order, whatever plan the planner prefers', async () => {
  const row = await queue();
  const later = Array.from({ length: 300 }, () => ({ kind: row.kind, priority: 9 }));
  const sooner = Array.from({ length: 3 }, () => ({ kind: row.kind, priority: -9 }));
  await session.add(row.queue, later);
  const ids = await session.add(row.queue, sooner);
  await session.client.query('analyze');
  const order: number[] = [];
  while (order.length < 3) {
    const answer = await session.one<string>(
      `select pawl.queue_claim_one(${row.queue}::smallint, 0::smallint, ${row.worker}, 64, (-32768)::smallint, 0)`,
    );
    const { runs, blockedBy } = JSON.parse(answer) as ClaimAnswer;
    if (blockedBy !== undefined) {
      const read = `${row.queue}::smallint, 0::smallint, '${blockedBy}', 64, (-32768)::smallint, 0`;
      expect(await session.one(`select pawl.queue_unblock_claim(${read})::int`)).toBeGreaterThan(1);
    }
    if (runs[0] !== undefined) order.push(runs[0].first);
  }
  expect(order).toEqual(ids);
});
