import knex from 'knex';
import pg from 'pg';
import postgresJs from 'postgres';
import { afterAll, beforeAll, expect, expectTypeOf, onTestFinished, test } from 'vitest';
import { InvalidInput, SerializationFailed } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { type CapturedRow, type CaptureOptions, captureRows } from '../../../src/lock/rows/claim.ts';
import { extendRows, settle } from '../../../src/lock/rows/settle.ts';
import type { EngineOrTransaction } from '../../../src/lock/rows/table.ts';
import { sql } from '../../../src/lock/rows/where.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { LONG } from '../../support/long.ts';
import { spawnChild } from '../../support/process.ts';

interface Task {
  id: number;
  status: string;
  retries: number;
  queue_id: number | null;
  token: string | null;
  uuid: string | null;
  leased_until: Date | null;
  due_at: Date;
  note: string | null;
  data: unknown;
}

let database: FreshDatabase;
let engine: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 24 });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

async function run<Row = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test', text, { prepare: false }), values);
}

let tables: number = 0;

/** A new table with so many new tasks. */
async function tasks(count: number): Promise<string> {
  const name = `task_${(tables += 1)}`;
  await run(`create table ${name} (
    id int primary key, status text not null default 'new', retries int not null default 3, queue_id int, token bigint, uuid uuid,
    leased_until timestamptz, due_at timestamptz not null default '2026-11-20 10:00Z', note text, data jsonb
  )`);
  await run(`insert into ${name} (id, queue_id) select n, n % 2 from generate_series(1, $1) n`, [count]);
  return name;
}

const move = { status: { from: 'new', to: 'in_progress' } } as const;

function ids(rows: readonly CapturedRow<object>[]): unknown[] {
  return rows.map(({ row }) => Reflect.get(row, 'id'));
}

function capture(
  table: string,
  options: Partial<CaptureOptions<Task>> = {},
  handle: EngineOrTransaction = engine,
): Promise<CapturedRow<Task>[]> {
  return captureRows<Task>(handle, table, { ...move, limit: 10, ...options });
}

async function statuses(table: string): Promise<Record<string, number>> {
  const rows = await run<{ status: string; n: number }>(
    `select status, count(*)::int as n from ${table} group by status`,
  );
  return Object.fromEntries(rows.map(({ status, n }) => [status, n]));
}

test('rows are captured in order, up to the limit, with all their columns and a token each', async () => {
  const table = await tasks(5);
  const rows = await capture(table, { limit: 3, token: 'token' });
  expect(rows).toMatchObject([1, 2, 3].map((id) => ({ row: { id, status: 'in_progress', token: '1' }, token: '1' })));
  expect(rows[0]?.row.due_at).toEqual(new Date('2026-11-20T10:00:00Z'));
  expect(ids(await capture(table, { limit: 3 }))).toEqual([4, 5]);
  expect(await capture(table)).toEqual([]);
  expectTypeOf(rows[0]!.row).toEqualTypeOf<Task>();
});

test('several statuses, null and enums among them, are moved; others are not', async () => {
  await run(`create type mood as enum ('sad', 'glad', 'busy')`);
  await run('create table moody (id int primary key, mood mood)');
  await run(`insert into moody values (1, 'sad'), (2, 'glad'), (3, null), (4, 'busy')`);
  const rows = await captureRows(engine, 'moody', {
    status: { column: 'mood', from: ['sad', null], to: 'busy' },
    limit: 9,
  });
  expect(rows.map(({ row }) => row)).toEqual([
    { id: 1, mood: 'busy' },
    { id: 3, mood: 'busy' },
  ]);
  const wrong = captureRows(engine, 'moody', { status: { column: 'mood', from: 'sat', to: 'busy' }, limit: 9 });
  await expect(wrong).rejects.toMatchObject({
    field: 'status.from',
    message: expect.stringContaining('did you mean "sad"?'),
  });
});

test('conditions on columns must all hold', async () => {
  const table = await tasks(10);
  await run(`update ${table} set note = 'x' where id in (1, 2, 3)`);
  await run(`update ${table} set due_at = '2026-11-21Z' where id > 7`);
  const matching = async (where: CaptureOptions<Task>['where']): Promise<unknown[]> => {
    const found = await engine.transaction(async (tx) => {
      const rows = ids(
        await captureRows<Task>(tx, table, { ...move, limit: 20, ...(where === undefined ? {} : { where }) }),
      );
      await tx.query(statement('test.undo', `update ${table} set status = 'new'`, { prepare: false }));
      return rows;
    });
    return found;
  };
  expect(await matching({ note: 'x' })).toEqual([1, 2, 3]);
  expect(await matching({ note: null, id: { lte: 5 } })).toEqual([4, 5]);
  expect(await matching({ note: { not: 'x' }, id: { lt: 6, gt: 4 } })).toEqual([5]);
  expect(await matching({ note: { not: null } })).toEqual([1, 2, 3]);
  expect(await matching({ note: { in: ['x', null] }, id: { in: [1, 9] } })).toEqual([1, 9]);
  expect(await matching({ id: { notIn: [1, 2, 3, 4, 5, 6, 7, 8] } })).toEqual([9, 10]);
  expect(await matching({ due_at: { gte: new Date('2026-11-21T00:00:00Z') } })).toEqual([8, 9, 10]);
  expect(await matching(sql`id % ${3} = 0`)).toEqual([3, 6, 9]);
  expect(
    await matching([{ note: 'x' }, sql`id >= ${2} -- and so on`, sql`${sql`id = ${2}`} or ${sql`id = ${3}`}`]),
  ).toEqual([2, 3]);
  expect(await matching(sql`note = ${"' or true --"}`)).toEqual([]);
  expect(await matching({ note: "' or true --\\" })).toEqual([]);
});

test('rows come in the requested order, then by primary key', async () => {
  const table = await tasks(6);
  await run(`update ${table} set due_at = due_at + (id % 2) * interval '1 day'`);
  expect(ids(await capture(table, { limit: 4, orderBy: { column: 'due_at', desc: true } }))).toEqual([1, 3, 5, 2]);
  expect(ids(await capture(table, { orderBy: ['due_at', { column: 'id', desc: true }] }))).toEqual([6, 4]);
});

test('only rows of the queue with retries left are captured, and retries never become negative', async () => {
  const table = await tasks(4);
  await run(`update ${table} set retries = 0 where id = 1`);
  for (const left of [2, 1, 0]) {
    const rows = await capture(table, { retries: 'retries', queueId: { column: 'queue_id', value: 1 } });
    expect(rows).toMatchObject([{ row: { id: 3, retries: left } }]);
    await settle(engine, table, rows, 'new');
  }
  expect(await capture(table, { retries: 'retries', queueId: { column: 'queue_id', value: 1 } })).toEqual([]);
});

test.each(['token', 'uuid', undefined] as const)('tokens in %s: a stale settle changes nothing', async (token) => {
  const table = await tasks(3);
  const options: Partial<CaptureOptions<Task>> =
    token === undefined ? { lease: '100ms' } : { token, lease: { column: 'leased_until', for: '100ms' } };
  const slow = await capture(table, options);
  expect(ids(slow)).toEqual([1, 2, 3]);
  // Until the leases of all rows are over: each has its own moment.
  await run('select pg_sleep(0.3)');
  const quick = await capture(table, { ...options, limit: 2 });
  expect(ids(quick)).toEqual([1, 2]);
  for (const [index, row] of quick.entries()) {
    expect(row.token).not.toBe(slow[index]?.token);
    if (token !== 'uuid') expect(BigInt(row.token)).toBeGreaterThan(BigInt(slow[index]?.token ?? ''));
  }
  const late = await settle(engine, table, slow, 'done', { set: { note: 'late' } });
  expect([ids(late.settled), ids(late.stale)]).toEqual([[3], [1, 2]]);
  expect(ids((await extendRows(engine, table, slow, '1m')).settled)).toEqual([]);
  expect(await statuses(table)).toEqual({ in_progress: 2, done: 1 });
  const fresh = await settle(engine, table, JSON.parse(JSON.stringify(quick)), 'done', {
    set: { note: 'quick', data: { a: ["'"] } },
  });
  expect([ids(fresh.settled), ids(fresh.stale)]).toEqual([[1, 2], []]);
  expect(await run(`select id, note, data from ${table} order by id`)).toEqual([
    { id: 1, note: 'quick', data: { a: ["'"] } },
    { id: 2, note: 'quick', data: { a: ["'"] } },
    { id: 3, note: 'late', data: null },
  ]);
  expect((await settle(engine, table, quick, 'failed')).settled).toEqual([]);
  expect(await run('select from pawl.lock_row_claim where relation = $1', [`public.${table}`])).toEqual([]);
});

test('a row with an extended lease is not captured again', async () => {
  const table = await tasks(2);
  for (const lease of ['100ms', { column: 'leased_until', for: '100ms' }] as const) {
    const rows = await capture(table, { limit: 1, lease });
    expect(ids((await extendRows(engine, table, rows, '1h')).settled)).toEqual(ids(rows));
    await run('select pg_sleep(0.15)');
    expect(ids(await capture(table, { limit: 1, lease, where: { id: ids(rows)[0] as number } }))).toEqual([]);
  }
});

test('rows that were moved by hand or deleted are stale', async () => {
  const table = await tasks(3);
  const rows = await capture(table, { token: 'token' });
  await run(`update ${table} set status = 'cancelled' where id = 1`);
  await run(`delete from ${table} where id = 2`);
  const { settled, stale } = await settle(engine, table, rows, 'done');
  expect([ids(settled), ids(stale)]).toEqual([[3], [1, 2]]);
});

test('settling in a transaction is undone with it', async () => {
  const table = await tasks(1);
  const rows = await capture(table);
  const failed = engine.transaction(async (tx) => {
    expect((await settle(tx, table, rows, 'done')).stale).toEqual([]);
    throw new Error('no result after all');
  });
  await expect(failed).rejects.toThrow('no result after all');
  expect(ids((await settle(engine, table, rows, 'failed')).settled)).toEqual([1]);
});

test('16 capturers get all rows once each, never more than their limit, whatever the plan', async () => {
  const count = LONG ? 2000 : 300;
  const table = await tasks(count);
  const url = new URL(database.url);
  const seen: unknown[] = [];
  const sizes: number[] = [];
  const one = async (index: number): Promise<void> => {
    // Settings make half of them plan badly.
    const bad =
      '-c enable_hashjoin=off -c enable_mergejoin=off -c enable_sort=off -c enable_material=off -c enable_seqscan=off';
    if (index % 2 === 1) url.searchParams.set('options', bad);
    const own = postgres(url.href, { max: 1 });
    onTestFinished(() => own.stop());
    for (;;) {
      const rows = await capture(table, { limit: 7, ...(index % 3 === 0 ? { token: 'token' } : {}) }, own);
      if (rows.length === 0 && (await statuses(table))['new'] === undefined) return;
      sizes.push(rows.length);
      seen.push(...ids(rows));
      const { stale } = await settle(own, table, rows, 'done');
      expect(stale).toEqual([]);
    }
  };
  await Promise.all(Array.from({ length: 16 }, (_, index) => one(index)));
  expect(seen).toHaveLength(count);
  expect(new Set(seen).size).toBe(count);
  expect(Math.max(...sizes)).toBe(7);
  expect(await statuses(table)).toEqual({ done: count });
});

test('rows whose lease ran out are captured once each', async () => {
  const table = await tasks(60);
  await capture(table, { limit: 60, lease: '100ms' });
  await run('select pg_sleep(0.15)');
  const rounds = await Promise.all(Array.from({ length: 16 }, () => capture(table, { limit: 60, lease: '1h' })));
  expect(rounds.flat()).toHaveLength(60);
  expect(new Set(ids(rounds.flat())).size).toBe(60);
});

test('a row that is captured while another capture checks it is not captured twice', async () => {
  const table = await tasks(1);
  await capture(table, { lease: '100ms' });
  await run('select pg_sleep(0.15)');
  const gate = new pg.Client({ connectionString: database.url });
  await gate.connect();
  onTestFinished(() => gate.end());
  await gate.query('select pg_advisory_lock(77)');
  // It has its snapshot, and waits between checking the row and locking it.
  const where = sql`pg_advisory_xact_lock_shared(77)::text is not null`;
  const slow = capture(table, { lease: '1h', where });
  await until(
    'it waits',
    async () =>
      (
        await run(
          'select from pg_locks l join pg_database d on d.oid = l.database where d.datname = current_database() and l.objid = 77 and not l.granted',
        )
      ).length === 1,
  );
  expect(ids(await capture(table, { lease: '1h' }))).toEqual([1]);
  await gate.query('select pg_advisory_unlock(77)');
  expect(await slow).toEqual([]);
});

test('the rows of a killed process can be captured again at once, with their retries', async () => {
  const table = await tasks(4);
  const child = spawnChild('lock/rows/claim.child.ts', [table], { DATABASE_URL: database.url });
  expect(await child.message()).toEqual([1, 2, 3]);
  expect(ids(await capture(table, { where: { id: { lt: 4 } } }))).toEqual([]);
  await child.kill();
  const rows = await until('the rows are free', async () => {
    const found = await capture(table, { where: { id: { lt: 4 } }, token: 'token', retries: 'retries' });
    return found.length > 0 ? found : undefined;
  });
  expect(rows).toMatchObject([1, 2, 3].map((id) => ({ row: { id, retries: 2, token: '1' } })));
});

test('a locked row is skipped, and one that only a child insert has locked is captured', async () => {
  const table = await tasks(2);
  await run(`create table ${table}_child (parent int references ${table})`);
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  await client.query(`update ${table} set note = 'busy' where id = 1`);
  await client.query(`insert into ${table}_child values (2)`);
  expect(ids(await capture(table))).toEqual([2]);
});

test('keys of any types and number of columns identify the row exactly, in any time zone', async () => {
  await run('create schema "s 1"');
  await run(
    'create table "s 1"."Weird ""Table" ("Weird ""Table" timestamptz, "order" text, "%I" bytea, status int, primary key ("order", "Weird ""Table", "%I"))',
  );
  await run(
    `insert into "s 1"."Weird ""Table" values ('2026-11-20 10:00:00.123456Z', 'a''\\', '\\x00ff', 0), ('infinity', '', '', 0)`,
  );
  const table = { schema: 's 1', name: 'Weird "Table' };
  const zoned = new URL(database.url);
  zoned.searchParams.set('options', '-c timezone=Asia/Kathmandu -c datestyle=SQL,DMY');
  const far = postgres(zoned.href, { max: 1 });
  onTestFinished(() => far.stop());
  const options = {
    status: { from: 0, to: 1 },
    limit: 5,
    orderBy: { column: 'Weird "Table', desc: true },
    lease: '1h',
  } as const;
  const rows = await captureRows(engine, table, options);
  expect(rows.map(({ row }) => row['order'])).toEqual(['', "a'\\"]);
  expect(ids((await settle(far, table, rows, 2)).stale)).toEqual([]);
  expect(await run('select distinct status from "s 1"."Weird ""Table"')).toEqual([{ status: 2 }]);
});

test('a table may have any columns, even ones with the names of those that Pawl adds', async () => {
  await run(
    'create table key (key int primary key, token text, refused bool, captured int, ord int, status text, gone int, t int, k int, c int)',
  );
  await run('alter table key drop column gone');
  await run(`insert into key values (1, 'mine', true, 5, 7, 'new', 1, 2, 3)`);
  const rows = await captureRows(engine, 'key', { ...move, limit: 1, where: sql`ord = ${7} and t = 1 and key.k = 2` });
  expect(rows[0]?.row).toEqual({
    key: 1,
    token: 'mine',
    refused: true,
    captured: 5,
    ord: 7,
    status: 'in_progress',
    t: 1,
    k: 2,
    c: 3,
  });
  expect((await settle(engine, 'key', rows, 'done', { set: { c: 4 } })).settled).toHaveLength(1);
});

test('under repeatable read a race is reported, not lost', async () => {
  const table = await tasks(1);
  const captured = engine.transaction(
    async (tx) => {
      await tx.query(statement('test.snapshot', 'select 1'));
      await capture(table);
      return capture(table, {}, tx);
    },
    { isolation: 'repeatable read', retries: 0 },
  );
  await expect(captured).rejects.toBeInstanceOf(SerializationFailed);
});

test('postgres.js, knex and pg transactions capture alike, with the types of their driver', async () => {
  const table = await tasks(3);
  const js = postgresJs(database.url, { transform: postgresJs.camel });
  onTestFinished(() => js.end());
  const kx = knex({ client: 'pg', connection: database.url });
  onTestFinished(() => kx.destroy());
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  const one = { ...move, limit: 1, token: 'token' } as const;
  const rows = [
    ...(await js.begin((tx) => captureRows(tx, table, one))),
    ...(await kx.transaction((tx) => captureRows(tx, table, one))),
    ...(await captureRows(client, table, one)),
  ];
  await client.query('commit');
  expect(ids(rows)).toEqual([1, 2, 3]);
  expect(rows[0]?.row).toMatchObject({ queueId: 1, dueAt: expect.any(Date) });
  expect(rows.map(({ token }) => token)).toEqual(['1', '1', '1']);
  const { settled } = await kx.transaction((tx) => settle(tx, table, rows, 'done'));
  expect(settled).toHaveLength(3);
});

type Call = (tx: Transaction, table: string) => Promise<unknown>;
const settled: Call = async (tx, table) =>
  settle(tx, table, await capture(table), 'done', { set: { nope: 1 } as never });

const refused: [what: string, call: Call, field: string, words: RegExp][] = [
  ['an unknown table', (tx) => capture('taks', {}, tx), 'table', /no table "taks"/],
  [
    'an unknown status column',
    (tx, table) => capture(table, { status: { ...move.status, column: 'state' as never } }, tx),
    'status.column',
    /no column "state"/,
  ],
  [
    'an unknown column in where',
    (tx, table) => capture(table, { where: { qeue_id: 1 } as never }, tx),
    'where.qeue_id',
    /did you mean "queue_id"/,
  ],
  [
    'an unknown column in orderBy',
    (tx, table) => capture(table, { orderBy: ['id', 'dueat' as never] }, tx),
    'orderBy',
    /did you mean "due_at"/,
  ],
  [
    'an unknown comparison',
    (tx, table) => capture(table, { where: { id: { lteq: 1 } } as never }, tx),
    'where.id.lteq',
    /did you mean "lte"/,
  ],
  [
    'a comparison with null',
    (tx, table) => capture(table, { where: { id: { lt: null as never } } }, tx),
    'where.id.lt',
    /no comparison with null is true/,
  ],
  [
    'an undefined value',
    (tx, table) => capture(table, { where: { id: undefined as never } }, tx),
    'where.id',
    /leave the column out/,
  ],
  ['an empty list', (tx, table) => capture(table, { where: { id: { in: [] } } }, tx), 'where.id.in', /at least one/],
  [
    'a value of another type',
    (tx, table) => capture(table, { where: { id: 'one' } }, tx),
    'where.id',
    /"id" is of type integer/,
  ],
  ['no limit', (tx, table) => capture(table, { limit: undefined as never }, tx), 'limit', /is required/],
  ['a limit below one', (tx, table) => capture(table, { limit: 0 }, tx), 'limit', /from 1 to 10000/],
  [
    'a status that does not change',
    (tx, table) => capture(table, { status: { from: ['new', 'x'], to: 'x' } }, tx),
    'status.from',
    /must not have "x"/,
  ],
  ['a token of another type', (tx, table) => capture(table, { token: 'note' }, tx), 'token', /must be bigint or uuid/],
  [
    'retries of another type',
    (tx, table) => capture(table, { retries: 'note' }, tx),
    'retries',
    /must be smallint, integer or bigint/,
  ],
  [
    'a lease of another type',
    (tx, table) => capture(table, { lease: { column: 'note', for: '1s' } }, tx),
    'lease.column',
    /must be timestamp with time zone/,
  ],
  [
    'a lease without a column',
    (tx, table) => capture(table, { token: 'token', lease: '1s' }, tx),
    'lease',
    /\{ column, for \}/,
  ],
  ['a lease too short', (tx, table) => capture(table, { lease: 5 }, tx), 'lease', /from 100ms/],
  [
    'an unknown option',
    (tx, table) => capture(table, { retires: 'retries' } as never, tx),
    'retires',
    /did you mean "retries"/,
  ],
  ['an unknown column to set', settled, 'set.nope', /no column "nope"/],
  [
    'settling to the status of the capture',
    async (tx, table) => settle(tx, table, await capture(table), 'in_progress'),
    'status',
    /another status/,
  ],
  [
    'settling rows that were not captured',
    (tx, table) => settle(tx, table, [{ id: 1 } as never], 'done'),
    'rows.0',
    /a row that captureRows\(\) returned/,
  ],
  [
    'extending without a lease',
    async (tx, table) => extendRows(tx, table, await capture(table), '1s'),
    'rows',
    /without a lease/,
  ],
];

test.each(refused)(
  '%s is refused, nothing is written, and the transaction continues',
  async (_, call, field, words) => {
    const table = await tasks(1);
    await engine.transaction(async (tx) => {
      const error = await call(tx, table).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(error).toBeInstanceOf(InvalidInput);
      expect(error).toMatchObject({ field, message: expect.stringMatching(words) });
      const notes = await tx.query(
        statement('test.after', `select note, retries, status <> 'done' as open from ${table}`, { prepare: false }),
      );
      expect(notes).toEqual([{ note: null, retries: 3, open: true }]);
    });
  },
);

test('settling no rows sends no statement', async () => {
  expect(await settle(engine, 'no such table', [], 'done')).toEqual({ settled: [], stale: [] });
});
