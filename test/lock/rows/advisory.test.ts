import { createHash } from 'node:crypto';
import pg from 'pg';
import postgresJs from 'postgres';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, LockNotAvailable, TimedOut } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, type Statement, statement } from '../../../src/engine/postgres/index.ts';
import { lockKey, lockKeyNumber } from '../../../src/lock/rows/advisory.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

let database: FreshDatabase;
let engine: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url);
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

/** Another session inside a transaction. */
async function rival(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url });
  client.on('error', () => {});
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  return client;
}

function ask(text: string): Statement {
  return statement('test', text, { prepare: false });
}

async function waits(client: pg.Client): Promise<void> {
  const pid: unknown = Reflect.get(client, 'processID');
  const waiting = ask("select from pg_stat_activity where pid = $1 and wait_event = 'advisory'");
  await until('the session waits for the key', async () => (await engine.query(waiting, [pid])).length === 1);
}

test('a key is held by one transaction until it ends', async () => {
  const [one, two] = [await rival(), await rival()];
  expect(await lockKey(one, 'a')).toBe(true);
  expect(await lockKey(one, 'a')).toBe(true);
  expect(await lockKey(two, 'a', { ifLocked: 'skip' })).toBe(false);
  await expect(lockKey(two, 'a', { ifLocked: 'fail' })).rejects.toBeInstanceOf(LockNotAvailable);
  expect(await lockKey(two, 'b', { ifLocked: 'fail' })).toBe(true);
  expect(await lockKey(two, 'a', { ifLocked: 'skip', namespace: 'other' })).toBe(true);
  await one.query('commit');
  expect(await lockKey(two, 'a', { ifLocked: 'fail' })).toBe(true);
});

test('a key is free when its session dies', async () => {
  const [one, two] = [await rival(), await rival()];
  await lockKey(one, 'dies');
  const waiting = lockKey(two, 'dies');
  await waits(two);
  await engine.query(ask('select pg_terminate_backend($1)'), [Reflect.get(one, 'processID')]);
  expect(await waiting).toBe(true);
});

test('a timeout throws, locks nothing, restores lock_timeout, and lets the transaction continue', async () => {
  const [one, two] = [await rival(), await rival()];
  await lockKey(one, 'busy');
  await two.query("set lock_timeout = '77s'");
  await lockKey(two, 'mine');
  await expect(lockKey(two, 'busy', { timeout: 50 })).rejects.toBeInstanceOf(TimedOut);
  expect((await two.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '77s' }]);
  expect(await lockKey(one, 'mine', { ifLocked: 'skip' })).toBe(false);
  await one.query('commit');
  expect(await lockKey(two, 'busy', { timeout: '5s' })).toBe(true);
  expect((await two.query('show lock_timeout')).rows).toEqual([{ lock_timeout: '77s' }]);
});

test('a key that was granted although its wait timed out does not leak', async () => {
  const [holder, waiter] = [await rival(), await rival()];
  const outcomes = new Set<string>();
  for (let round = 0; round < 200 || outcomes.size < 2; round += 1) {
    await lockKey(holder, 'hammer');
    const waiting = lockKey(waiter, 'hammer', { timeout: 1 + (round % 3) }).then(
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
    expect(await lockKey(holder, 'hammer', { ifLocked: 'skip' }), `round ${round}`).toBe(outcome === 'timeout');
    await holder.query('commit');
    await waiter.query('commit');
    await holder.query('begin');
    await waiter.query('begin');
  }
  expect([...outcomes].sort()).toEqual(['locked', 'timeout']);
});

test('shared ones hold together, and do not overtake a waiting exclusive one', async () => {
  const [one, two, three] = [await rival(), await rival(), await rival()];
  await lockKey(one, 'fair', { mode: 'shared' });
  expect(await lockKey(three, 'fair', { mode: 'shared', ifLocked: 'fail' })).toBe(true);
  await three.query('commit');
  await three.query('begin');
  const order: string[] = [];
  const writer = lockKey(two, 'fair').then(() => order.push('writer'));
  await waits(two);
  expect(await lockKey(three, 'fair', { mode: 'shared', ifLocked: 'skip' })).toBe(false);
  const reader = lockKey(three, 'fair', { mode: 'shared' }).then(() => order.push('reader'));
  await waits(three);
  await one.query('commit');
  await writer;
  await two.query('commit');
  await reader;
  expect(order).toEqual(['writer', 'reader']);
});

test('the number of a name is the start of its SHA-256, as pg_locks shows it', async () => {
  const number = BigInt.asUintN(64, BigInt(lockKeyNumber('pawl', 'shown')));
  expect(number.toString(16).padStart(16, '0')).toBe(
    createHash('sha256').update('pawl\0shown').digest('hex').slice(0, 16),
  );
  await engine.transaction(async (tx) => {
    await lockKey(tx, 'shown');
    const locks = ask(
      "select classid::bigint as high, objid::bigint as low from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
    );
    expect(await tx.query(locks)).toEqual([{ high: String(number >> 32n), low: String(number & 0xffffffffn) }]);
  });
});

test('it works in a transaction of postgres.js', async () => {
  const js = postgresJs(database.url);
  onTestFinished(() => js.end());
  const client = await rival();
  await js.begin(async (tx) => {
    expect(await lockKey(tx, 'js', { timeout: '1s' })).toBe(true);
    expect(await lockKey(client, 'js', { ifLocked: 'skip' })).toBe(false);
  });
  expect(await lockKey(client, 'js', { ifLocked: 'skip' })).toBe(true);
});

test('bad input is refused, and the transaction continues', async () => {
  await engine.transaction(async (tx) => {
    const refused = async (call: Promise<unknown>, field: string): Promise<void> => {
      const error = await call.then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(error).toBeInstanceOf(InvalidInput);
      expect(error).toMatchObject({ field });
    };
    await refused(lockKey(tx, ''), 'name');
    await refused(lockKey(tx, 'a\0b'), 'name');
    await refused(lockKey(tx, 'é'.repeat(128)), 'name');
    await refused(lockKey(tx, 7 as never), 'name');
    await refused(lockKey(tx, 'a', { mode: 'share' as never }), 'mode');
    await refused(lockKey(tx, 'a', { time: 1 } as never), 'time');
    await refused(lockKey(tx, 'a', { ifLocked: 'fail', timeout: '1s' }), 'timeout');
    await refused(lockKey(engine, 'a'), 'tx');
    expect(await lockKey(tx, 'é'.repeat(127))).toBe(true);
  });
});
