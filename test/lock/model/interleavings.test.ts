import pg from 'pg';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

let database: FreshDatabase;
let client: pg.Client;
/** A connection of its own: within a transaction pg_stat_activity does not change. */
let monitor: pg.Client;

beforeAll(async () => {
  database = await freshDatabase();
  client = new pg.Client({ connectionString: database.url });
  monitor = new pg.Client({ connectionString: database.url });
  await Promise.all([client.connect(), monitor.connect()]);
});

afterAll(() => Promise.all([client.end(), monitor.end()]));

function ours(): Locks {
  const engine = postgres(database.url, { stopTimeoutMs: 300 });
  onTestFinished(() => engine.stop());
  return createLocks(engine);
}

const NONCE = '00000000-0000-4000-8000-00000000000';

/** Runs a statement in a transaction and does not commit it. */
async function open(sql: string, values: unknown[]): Promise<void> {
  await client.query('begin');
  await client.query(sql, values);
}

/** How many sessions wait for the latch of a name. */
async function latched(): Promise<number> {
  const { rows } = await monitor.query(
    `select count(*)::int as n from pg_stat_activity
     where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'advisory'`,
  );
  return rows[0].n;
}

// Invariant L2.
test('a place that is not committed yet is not overtaken: tickets are in the order of commits', async () => {
  const [a, b] = [ours(), ours()];
  const held = await a.acquire('order');
  await open(`select pawl.lock_acquire_one('', 'order', $1, 30000, 'p', 'h', 1, 20000)`, [`${NONCE}1`]);
  const waiting = b.acquire('order', { wait: '30s' });
  await until('it waits for the latch', async () => (await latched()) === 1);
  await client.query('commit');
  await until('both wait', async () => (await a.query()).waiting.length === 2);
  expect((await a.query()).waiting.map(({ host, ticket }) => [host, ticket])).toMatchObject([
    ['h', 1n],
    [expect.any(String), 2n],
  ]);
  await held.release();
  // The lock goes to the first place, whose process does not exist.
  expect((await a.explain('order')).holders).toMatchObject([{ host: 'h' }]);
  await a.break('order', { reason: 'the test goes on' });
  await (await waiting).release();
});

test('the next request sees a grant that is not committed yet', async () => {
  const locks = ours();
  await open(`select pawl.lock_acquire_one('', 'grant', $1, 30000, 'p', 'h', 1, null)`, [`${NONCE}2`]);
  const trying = locks.tryAcquire('grant');
  await until('it waits for the latch', async () => (await latched()) === 1);
  await client.query('commit');
  expect(await trying).toBeUndefined();
});

test('a release that is rolled back hands the lock to no waiter', async () => {
  const [a, b] = [ours(), ours()];
  const held = await a.acquire('undone');
  const waiting = b.acquire('undone', { wait: '30s' });
  await until('it waits', async () => (await a.query()).waiting.some(({ name }) => name === 'undone'));
  await open(`select pawl.lock_release_one('', 'undone', $1, 'p')`, [String(held.token)]);
  await client.query('rollback');
  // Another open transaction: only with one does Postgres check the old xmax of the row.
  await open('select pg_current_xact_id()', []);
  onTestFinished(async () => void (await client.query('rollback')));
  expect((await a.explain('undone')).holders).toMatchObject([{ token: held.token }]);
  await held.release();
  expect((await waiting).token).toBeGreaterThan(held.token);
});

test('explain shows which sessions of the database wait for which, rows included', async () => {
  const locks = ours();
  await client.query('create table explained (id int primary key)');
  await client.query('insert into explained values (1), (2)');
  const [a, b] = [new pg.Client({ connectionString: database.url }), new pg.Client({ connectionString: database.url })];
  await Promise.all([a.connect(), b.connect()]);
  onTestFinished(() => Promise.all([a.end(), b.end()]).then(() => {}));
  const row = 'select pg_backend_pid() as pid from explained where id = $1 for update';
  await a.query('begin');
  await b.query('begin');
  const { pid: first } = (await a.query(row, [1])).rows[0];
  const { pid: second } = (await b.query(row, [2])).rows[0];
  const waiting = b.query(row, [1]);
  const seen = await until('it waits', async () => {
    const { backends } = await locks.explain('whatever');
    return backends.find(({ pid }) => pid === second);
  });
  expect(seen).toMatchObject({ blockedBy: [first], query: expect.stringContaining('from explained') });
  await a.query('rollback');
  await waiting;
  await b.query('rollback');
});

// Invariant L7.
test('a lock is not taken over while a heartbeat that came in time is under way', async () => {
  const locks = ours();
  const { rows } = await client.query(
    `select pawl.lock_acquire_one('', 'beaten', $1, 1000, 'p', 'h', 1, null)::json ->> 'token' as token`,
    [`${NONCE}3`],
  );
  await open(`select * from pawl.lock_beat(array[''], array['beaten'], array[$1]::bigint[])`, [rows[0].token]);
  // The committed lease runs out meanwhile.
  await new Promise((resolve) => setTimeout(resolve, 1100));
  expect(await locks.tryAcquire('beaten')).toBeUndefined();
  await client.query('commit');
  expect((await client.query(`select token::text from pawl.lock_grant where name = 'beaten'`)).rows).toEqual([
    { token: rows[0].token },
  ]);
  await locks.acquire('beaten', { wait: '30s' });
});

// Invariant L6.
test('a heartbeat that comes after the lease renews nothing', async () => {
  const { rows } = await client.query(
    `select pawl.lock_acquire_one('', 'late', $1, 100, 'p', 'h', 1, null)::json ->> 'token' as token`,
    [`${NONCE}4`],
  );
  await new Promise((resolve) => setTimeout(resolve, 150));
  const beat = `select * from pawl.lock_beat(array[''], array['late'], array[$1]::bigint[])`;
  expect((await client.query(beat, [rows[0].token])).rows).toEqual([]);
});

test('a set whose grant was lost, and half of which was taken over since, does not count as granted', async () => {
  const locks = ours();
  const names = ['half-a', 'half-b'];
  const take = `select token from pawl.lock_acquire('', $1, $2, 1, $3, 'p', 'h', 1, p_again => $4)`;
  const first = await client.query(take, [names, `${NONCE}5`, 100, false]);
  expect(first.rows[0].token).not.toBeNull();
  const other = await locks.acquire('half-a', { wait: '30s' });
  // The client repeats its request after a long pause.
  const again = await client.query(take, [names, `${NONCE}5`, 30_000, true]);
  expect(again.rows).toEqual([{ token: null }]);
  const held = (await locks.query()).held.filter(({ name }) => names.includes(name));
  expect(held.map(({ name, token }) => [name, token])).toEqual([['half-a', other.token]]);
  expect(await locks.tryAcquire('half-b')).toBeDefined();
});
