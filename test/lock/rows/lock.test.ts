import knex from 'knex';
import pg from 'pg';
import postgresJs from 'postgres';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, LockNotAvailable, TimedOut } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { type LockRowsOptions, lockRows, type RowId } from '../../../src/lock/rows/lock.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { awakeMs } from '../../support/time/awake.ts';

let database: FreshDatabase;
let engine: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 40 });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

async function run<Row = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test', text, { prepare: false }), values);
}

let tables: number = 0;

/** A new table with the rows 1 to 5. */
async function numbered(key: string = 'id int primary key', ids: string = 'generate_series(1, 5)'): Promise<string> {
  const name = `numbered_${(tables += 1)}`;
  await run(`create table ${name} (${key}, note text default '')`);
  await run(`insert into ${name} select ${ids}`);
  return name;
}

/** Another session inside a transaction. */
async function rival(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  return client;
}

async function waits(client: pg.Client): Promise<void> {
  const pid: unknown = Reflect.get(client, 'processID');
  await until('the session waits for a lock', async () => {
    const rows = await run("select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", [pid]);
    return rows.length === 1;
  });
}

function take<const Id extends RowId>(table: string, ids: readonly Id[], options?: LockRowsOptions) {
  return engine.transaction((tx) => lockRows(tx, table, ids, options));
}

test('no other transaction can lock a locked row until the transaction ends', async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [2, 3]);
  await expect(take(table, [2], { ifLocked: 'fail' })).rejects.toBeInstanceOf(LockNotAvailable);
  expect(await take(table, [1], { ifLocked: 'fail' })).toEqual({ locked: [1], skipped: [], missing: [] });
  await client.query('commit');
  expect((await take(table, [2, 3], { ifLocked: 'fail' })).locked).toEqual([2, 3]);
});

test('shared locks are held together, and exclude updates', async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [1], { mode: 'share' });
  expect((await take(table, [1], { mode: 'share', ifLocked: 'fail' })).locked).toEqual([1]);
  await expect(take(table, [1], { ifLocked: 'fail' })).rejects.toThrow(`${table} 1 is locked by another transaction`);
});

test('held rows are skipped, missing ones are listed, and the rest is locked', async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [2, 4]);
  expect(await take(table, [9, 4, 3, 2, 1, 1], { ifLocked: 'skip' })).toEqual({
    locked: [3, 1, 1],
    skipped: [4, 2],
    missing: [9],
  });
});

test("with ifLocked 'fail' the error names the held rows, nothing is locked, and the transaction continues", async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [2, 4]);
  await engine.transaction(async (tx) => {
    const failed = lockRows(tx, table, [1, 2, 3, 4], { ifLocked: 'fail' });
    await expect(failed).rejects.toThrow(`${table} 2, 4 is locked`);
    await lockRows(client, table, [1, 3], { ifLocked: 'fail' });
    expect((await lockRows(tx, table, [5])).locked).toEqual([5]);
  });
});

test('a wait ends with the transaction of the holder, and missing rows are listed', async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [2]);
  const second = await rival();
  const waiting = lockRows(second, table, [1, 2, 7], { timeout: '20s' });
  await waits(second);
  await client.query('rollback');
  expect(await waiting).toEqual({ locked: [1, 2], skipped: [], missing: [7] });
});

test('a row that is deleted during the wait for it counts as missing', async () => {
  const table = await numbered();
  const client = await rival();
  await client.query(`delete from ${table} where id = 2`);
  const second = await rival();
  const waiting = lockRows(second, table, [1, 2]);
  await waits(second);
  await client.query('commit');
  expect(await waiting).toEqual({ locked: [1], skipped: [], missing: [2] });
});

test('one timeout counts for all rows; its error names the held rows, and nothing is locked', async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [2, 3, 4, 5]);
  await engine.transaction(async (tx) => {
    const begun = performance.now();
    const failed = lockRows(tx, table, [1, 2, 3, 4, 5], { timeout: 200 });
    await expect(failed).rejects.toBeInstanceOf(TimedOut);
    await expect(failed).rejects.toThrow(`${table} 2, 3, 4, 5 was locked by another transaction for longer than 200ms`);
    expect(performance.now() - begun).toBeGreaterThan(195);
    await lockRows(client, table, [1], { ifLocked: 'fail' });
  });
});

test('rows that become free one after another share one timeout', async () => {
  const table = await numbered();
  const [one, two] = [await rival(), await rival()];
  await lockRows(one, table, [1]);
  await lockRows(two, table, [2]);
  const third = await rival();
  const begun = awakeMs();
  const waiting = lockRows(third, table, [1, 2], { timeout: 2000 });
  waiting.catch(() => {});
  await waits(third);
  await until('three quarters of it are over', () => awakeMs() - begun > 1500);
  await one.query('commit');
  await expect(waiting).rejects.toBeInstanceOf(TimedOut);
  // A timeout for each would be over after 3500 ms.
  expect(awakeMs() - begun).toBeLessThan(3300);
});

test("the session's own lock_timeout is valid during the call and after it", async () => {
  const table = await numbered();
  const client = await rival();
  await lockRows(client, table, [1]);
  const second = await rival();
  await second.query("set lock_timeout = '150ms'");
  const failed = lockRows(second, table, [1]);
  await expect(failed).rejects.toBeInstanceOf(LockNotAvailable);
  await expect(failed).rejects.toThrow("session's lock_timeout of 150ms");
  await lockRows(second, table, [2], { timeout: '5s' });
  await expect(lockRows(second, table, [1], { timeout: 20 })).rejects.toBeInstanceOf(TimedOut);
  await client.query('commit');
  await lockRows(second, table, [1], { timeout: Infinity });
  expect((await second.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '150ms' }]);
});

test('a lock that was granted although its wait timed out does not leak', async () => {
  const table = await numbered();
  const [holder, waiter] = [await rival(), await rival()];
  const outcomes = new Set<string>();
  for (let round = 0; round < 150 || outcomes.size < 2; round += 1) {
    await lockRows(holder, table, [1]);
    const waiting = lockRows(waiter, table, [1], { timeout: 1 + (round % 3) }).then(
      () => 'locked',
      (error: unknown) => (error instanceof TimedOut ? 'timeout' : Promise.reject(error)),
    );
    // About the time of the timeout, so that the grant and the timeout race.
    const release = performance.now() + (round % 3) + Math.random() * 1.5;
    while (performance.now() < release) await new Promise((next) => setImmediate(next));
    await holder.query('commit');
    const outcome = await waiting;
    outcomes.add(outcome);
    await holder.query('begin');
    const free = await lockRows(holder, table, [1], { ifLocked: 'skip' });
    expect(free.locked, `round ${round}: ${outcome}`).toEqual(outcome === 'timeout' ? [1] : []);
    await holder.query('commit');
    await waiter.query('commit');
    await holder.query('begin');
    await waiter.query('begin');
  }
  expect([...outcomes].sort()).toEqual(['locked', 'timeout']);
});

test('callers that lock the same rows in opposite orders never deadlock', async () => {
  const table = await numbered('id int primary key', 'generate_series(1, 50)');
  const ids = Array.from({ length: 50 }, (_, index) => index + 1);
  const rounds = Array.from({ length: 60 }, (_, round) =>
    engine.transaction((tx) => lockRows(tx, table, round % 2 === 0 ? ids : [...ids].reverse()), { retries: 0 }),
  );
  for (const { locked } of await Promise.all(rounds)) expect(locked).toHaveLength(50);
});

test('a child row can be inserted under a locked parent', async () => {
  const table = await numbered();
  await run(`create table ${table}_child (parent int references ${table})`);
  const client = await rival();
  await lockRows(client, table, [1]);
  expect(await run(`insert into ${table}_child values (1) returning parent`)).toEqual([{ parent: 1 }]);
});

test('keys of several columns are passed in order or by name, and all columns count', async () => {
  const table = await numbered(
    'team text, "Order" int, primary key ("Order", team)',
    "'t' || (n / 2), n from generate_series(1, 5) n",
  );
  const client = await rival();
  await lockRows(client, table, [[2, 't1']]);
  expect(
    await take(table, [{ team: 't1', Order: 2 }, { team: 't1', Order: 3 }, [2, 't9']], { ifLocked: 'skip' }),
  ).toEqual({
    locked: [{ team: 't1', Order: 3 }],
    skipped: [{ team: 't1', Order: 2 }],
    missing: [[2, 't9']],
  });
});

const keys: [type: string, sql: string, ids: RowId[], absent: RowId][] = [
  ['bigint', '9007199254740993', [9007199254740993n], 9007199254740992n],
  ['text', "'it''s \"\\ ?'", ['it\'s "\\ ?'], "it's"],
  [
    'uuid',
    "'9d6f64ac-5ecd-4ec9-8bb1-6c8cd1ffc0b4'",
    ['9D6F64AC-5ECD-4EC9-8BB1-6C8CD1FFC0B4'],
    '9d6f64ac-5ecd-4ec9-8bb1-6c8cd1ffc0b5',
  ],
  [
    'timestamptz',
    "'2026-11-20 10:00:00.123456Z'",
    ['2026-11-20T11:00:00.123456+01:00'],
    new Date('2026-11-20T10:00:00.123Z'),
  ],
  ['timestamptz', "'2026-11-20 10:00:00.123Z'", [new Date('2026-11-20T10:00:00.123Z')], '2026-11-20T10:00:00.124Z'],
  ['numeric', '0.10', ['0.1', 0.1], 0.2],
  ['varchar(3)', "'abc'", ['abc'], 'abcd'],
  ['char(3)', "'abc'", ['abc'], 'a'],
  ['bytea', "'\\x00ff'", [new Uint8Array([0, 255])], new Uint8Array([0])],
  ['boolean', 'true', [true], false],
  ['date', "'2026-02-28'", ['2026-02-28'], '2026-03-01'],
];

test.each(keys)('a key of type %s (%s) is found exactly', async (type, value, ids, absent) => {
  const table = await numbered(`id ${type} primary key`, `${value}::${type}`);
  for (const id of ids) {
    expect(await take(table, [id, absent])).toEqual({ locked: [id], skipped: [], missing: [absent] });
  }
});

test('any name of a schema, table and column works without quotes', async () => {
  await run('create schema "my ""schema"');
  await run('create table "my ""schema"."weird ""table" ("select" int primary key, "a.b" text)');
  await run('insert into "my ""schema"."weird ""table" values (1)');
  expect((await take('my "schema.weird "table', [1])).locked).toEqual([1]);
  expect((await take('my "schema.weird "table', [{ select: 1 }])).locked).toEqual([{ select: 1 }]);
  await run(`create table "Order" (k int, "%I $1 '; --" int, primary key ("%I $1 '; --", k))`);
  await run('insert into "Order" values (2, 1)');
  expect((await take('Order', [[1, 2]])).locked).toEqual([[1, 2]]);
  await run('create table "a.b" (id int primary key)');
  const dotted = await engine.transaction((tx) => lockRows(tx, { name: 'a.b' }, [1]));
  expect(dotted.missing).toEqual([1]);
});

test('rows of a partitioned table are rows of one table', async () => {
  await run('create table parted (id int primary key) partition by hash (id)');
  for (const n of [0, 1])
    await run(`create table parted_${n} partition of parted for values with (modulus 2, remainder ${n})`);
  await run('insert into parted select generate_series(1, 10)');
  const client = await rival();
  await lockRows(client, 'parted', [1, 2, 3]);
  expect(await take('parted', [1, 2, 3, 4, 5], { ifLocked: 'skip' })).toMatchObject({
    locked: [4, 5],
    skipped: [1, 2, 3],
  });
});

const refused: [what: string, call: (tx: Transaction) => Promise<unknown>, field: string, words: RegExp][] = [
  ['an unknown table', (tx) => lockRows(tx, 'refuse', [1]), 'table', /no table "refuse"; did you mean "refused"/],
  ['a table in a schema that does not exist', (tx) => lockRows(tx, 'x.refused', [1]), 'table', /no table "x.refused"$/],
  ['too many dots', (tx) => lockRows(tx, 'a.b.c', [1]), 'table', /name such as/],
  ['a view', (tx) => lockRows(tx, 'refused_view', [1]), 'table', /is no table/],
  ['a table without a primary key', (tx) => lockRows(tx, 'refused_keyless', [1]), 'table', /no primary key/],
  ['no ids', (tx) => lockRows(tx, 'refused', []), 'ids', /empty array/],
  ['a null id', (tx) => lockRows(tx, 'refused', [1, null as never]), 'ids.1', /must be a primary key/],
  [
    'an id of two values for one column',
    (tx) => lockRows(tx, 'refused', [[1], [1, 2]]),
    'ids.1',
    /primary key is \(id\)/,
  ],
  ['an id by a wrong name', (tx) => lockRows(tx, 'refused', [{ ID: 1 }]), 'ids.0', /primary key is \(id\)/],
  [
    'an id of another type',
    (tx) => lockRows(tx, 'refused', [1, 'one']),
    'ids.1',
    /"id" is of type integer: invalid input syntax/,
  ],
  ['an id out of range', (tx) => lockRows(tx, 'refused', [3e9]), 'ids.0', /out of range/],
  [
    'an unknown option',
    (tx) => lockRows(tx, 'refused', [1], { iflocked: 'skip' } as never),
    'iflocked',
    /did you mean "ifLocked"/,
  ],
  [
    'an unknown mode',
    (tx) => lockRows(tx, 'refused', [1], { mode: 'shared' as never }),
    'mode',
    /one of "update", "share"/,
  ],
  [
    'a timeout without a wait',
    (tx) => lockRows(tx, 'refused', [1], { ifLocked: 'skip', timeout: 5 }),
    'timeout',
    /never waits/,
  ],
  ['a timeout of 0', (tx) => lockRows(tx, 'refused', [1], { timeout: 0 }), 'timeout', /from 1ms/],
];

test.each(refused)('%s is refused, and the transaction continues', async (_, call, field, words) => {
  await run('create table if not exists refused (id int primary key)');
  await run('create or replace view refused_view as select * from refused');
  await run('create table if not exists refused_keyless (id int)');
  await engine.transaction(async (tx) => {
    const error = await call(tx).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ field, message: expect.stringMatching(words) });
    expect(await tx.query(statement('test', 'select 1 as one'))).toEqual([{ one: 1 }]);
  });
});

test('an engine in place of a transaction is refused, since the locks would end at once', async () => {
  const table = await numbered();
  await expect(lockRows(engine, table, [1])).rejects.toThrow(/tx is an engine/);
  const client = await rival();
  await client.query('commit');
  await expect(lockRows(client, table, [1])).rejects.toBeInstanceOf(InvalidInput);
});

test('postgres.js, knex and pg transactions hold the locks alike', async () => {
  const table = await numbered();
  const js = postgresJs(database.url, { transform: postgresJs.camel });
  onTestFinished(() => js.end());
  const kx = knex({ client: 'pg', connection: database.url });
  onTestFinished(() => kx.destroy());
  const client = await rival();
  const held = async (): Promise<RowId[]> => (await take(table, [1, 2, 3, 4, 5], { ifLocked: 'skip' })).skipped;
  await js.begin(async (one) => {
    expect((await lockRows(one, table, [1, 9], { timeout: '1s' })).missing).toEqual([9]);
    await kx.transaction(async (two) => {
      await lockRows(two, table, [2], { timeout: '1s' });
      await lockRows(client, table, [3]);
      expect(await held()).toEqual([1, 2, 3]);
      await expect(lockRows(two, table, [1], { timeout: 10 })).rejects.toBeInstanceOf(TimedOut);
      await expect(lockRows(one, table, [2], { ifLocked: 'fail' })).rejects.toBeInstanceOf(LockNotAvailable);
    });
    expect(await held()).toEqual([1, 3]);
  });
});
