import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';
import { awakeMs } from '../../support/time/awake.ts';

const ONE = statement('test.one', 'select 1 as one');
const SLEEP = statement('test.sleep', 'select pg_sleep($1::float8)');
const SLEEPERS = statement(
  'test.sleepers',
  `select pid from pg_stat_activity
   where datname = current_database() and query like '%select pg_sleep%' and state = 'active' and pid <> pg_backend_pid()`,
);
const caught = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

let database: Awaited<ReturnType<typeof freshDatabase>>;
let eye: PostgresEngine;
let proxy: Proxy;
let engine: PostgresEngine;

beforeAll(async () => {
  database = await freshDatabase({ migrated: false });
  eye = postgres(database.url);
});

beforeEach(async () => {
  proxy = await startProxy(database.url);
  engine = postgres(proxy.url, { max: 4, logger: recordLog(), stopTimeoutMs: 500 });
});

afterEach(async () => {
  await engine.stop();
  await proxy.stop();
});

afterAll(async () => {
  await eye.stop();
  await database.drop();
});

/** Connections that stand idle in the pool. */
async function open(n: number): Promise<void> {
  await Promise.all(Array.from({ length: n }, () => engine.query(SLEEP, [0.2])));
}

test('a statement that is not answered by its deadline fails as a connection does, and its outcome is unknown', async () => {
  await open(1);
  proxy.stall();
  const error = await caught(engine.query(ONE, [], { deadlineMs: 300 }));
  expect(error).toBeInstanceOf(ConnectionFailed);
  expect(error).toMatchObject({ outcome: 'unknown', message: expect.stringContaining('"test.one" within 300ms') });
  expect(engine.isTransient(error)).toBe(true);
  await eventually(() => expect(proxy.open).toBe(0));
});

test('connections that were idle when one went silent are not used any more', async () => {
  await open(4);
  proxy.stall();
  const begin = awakeMs();
  await caught(engine.query(ONE, [], { deadlineMs: 1_000 }));
  // Not limited, so each of the dead ones would take a quarter of an hour; the server, too, may stand still.
  for (let n = 0; n < 4; n += 1) expect(await engine.query(ONE)).toEqual([{ one: 1 }]);
  expect(awakeMs() - begin).toBeLessThan(40_000);
});

test('a statement that the server is still at is cancelled there', async () => {
  const error = await caught(engine.query(SLEEP, [60], { deadlineMs: 500 }));
  expect(error).toBeInstanceOf(ConnectionFailed);
  await eventually(async () => expect(await eye.query(SLEEPERS)).toEqual([]));
});

test('a connection that is not free in time is not waited for, and goes back to the pool when it comes', async () => {
  const held = await Promise.all([1, 2, 3, 4].map(() => engine.connect()));
  const error = await caught(engine.query(ONE, [], { deadlineMs: 100 }));
  expect(error).toBeInstanceOf(ConnectionFailed);
  expect(error).toMatchObject({ outcome: 'nothing_written', message: expect.stringContaining('within 5s') });
  for (const session of held) session.release();
  await open(4);
});

test('a transaction with a deadline fails at BEGIN with nothing written, and at COMMIT with an unknown outcome', async () => {
  await open(4);
  proxy.stall();
  // Tried again on another connection, since nothing was sent.
  const rows = await engine.transaction((tx) => tx.query(ONE), { deadlineMs: 2_000 });
  expect(rows).toEqual([{ one: 1 }]);
  const error = await caught(
    engine.transaction(
      async (tx) => {
        await tx.query(ONE);
        proxy.stall();
      },
      { deadlineMs: 2_000 },
    ),
  );
  expect(error).toMatchObject({ name: 'ConnectionFailed', outcome: 'unknown' });
});

test('an engine whose connections are all dead stops, and leaves no socket', async () => {
  const one = await engine.listen('alpha', () => {});
  await engine.listen('beta', () => {});
  await open(4);
  proxy.stall();
  const hanging = caught(engine.query(ONE));
  const begin = awakeMs();
  await one.stop();
  await engine.stop();
  expect(awakeMs() - begin).toBeLessThan(6_000);
  expect(await hanging).toBeInstanceOf(ConnectionFailed);
  await eventually(() => expect(proxy.open).toBe(0));
});
