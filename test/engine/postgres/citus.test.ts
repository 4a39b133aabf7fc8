import pg from 'pg';
import { beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../../src/actor/index.ts';
import { NotSupported } from '../../../src/base/errors.ts';
import { createCapture } from '../../../src/capture/index.ts';
import { examine } from '../../../src/cli/doctor/checks.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { judge } from '../../../src/engine/postgres/server/judge.ts';
import { captureRows, createLocks, lockRows, settle } from '../../../src/lock/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { CITUS_STAND_IN, NOTE_BOTH, NOTES_OF_BOTH } from '../../support/servers/citus.ts';

let url: string;
let client: pg.Client;
let engine: PostgresEngine;

async function open(stands: boolean): Promise<void> {
  const database = await freshDatabase();
  url = database.url;
  client = new pg.Client({ connectionString: url });
  await client.connect();
  if (stands) await client.query(CITUS_STAND_IN);
  await client.query(NOTES_OF_BOTH);
  engine = postgres(url, { max: 15 });
  await engine.migrate();
  await client.query(NOTE_BOTH);
  onTestFinished(async () => {
    await Promise.all([engine.stop(), client.end()]);
    await database.drop();
  });
}

/** How often `pawl.both` has been written to since the last call, and that is committed. */
async function written(): Promise<number> {
  const { rows } = await client.query<{ n: number }>(
    'with gone as (delete from both_note returning 1) select count(*)::int as n from gone',
  );
  return rows[0]?.n ?? 0;
}

describe.for([
  ['where Citus is', true],
  ['where it is not', false],
] as const)('%s', ([, stands]) => {
  beforeEach(() => open(stands));

  test('each transaction of a caller’s that Pawl writes into is committed in two phases, or is left alone', async () => {
    const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
    const once = stands ? 1 : 0;
    await queue.enqueue('send', {});
    expect(await written()).toBe(0);
    await engine.transaction((tx) => queue.enqueue('send', {}, { tx }));
    expect(await written()).toBe(once);
    await client.query('begin');
    await queue.enqueueMany(
      [
        { kind: 'send', payload: 1 },
        { kind: 'send', payload: 2 },
      ],
      { tx: client },
    );
    await client.query('commit');
    expect(await written()).toBe(once);
    await using lock = await createLocks(engine).acquire('nightly', { lease: '30s' });
    expect(await written()).toBe(0);
    await engine.transaction((tx) => lock.guard(tx));
    expect(await written()).toBe(once);
  });

  test('so is one in which rows of a table of the caller’s own are captured and settled', async () => {
    await client.query("create table task (id int primary key, status text); insert into task values (1, 'new')");
    const once = stands ? 1 : 0;
    const rows = await engine.transaction((tx) =>
      captureRows<{ id: number; status: string }>(tx, 'task', { status: { from: 'new', to: 'taken' }, limit: 1 }),
    );
    expect(rows).toHaveLength(1);
    expect(await written()).toBe(once);
    const { settled } = await engine.transaction((tx) => settle(tx, 'task', rows, 'done'));
    expect(settled).toHaveLength(1);
    expect(await written()).toBe(once);
  });

  test.for([true, false])('so is that of a job in the transaction hold (prepared statements: %s)', async (prepare) => {
    const other = postgres(url, { prepare, max: 6 });
    onTestFinished(() => other.stop());
    const queue = createQueue(other, 'held', { kinds: { send: {} } });
    const seen: number[] = [];
    const worker = queue.work(
      {
        send: async (unit) => {
          const { rows } = (await unit.tx.client.query({
            text: 'select count(*)::int as n from both_note',
          })) as pg.QueryResult;
          seen.push(rows[0].n);
        },
      },
      { hold: 'transaction', concurrency: 1 },
    );
    await worker.started;
    for (let n = 0; n < 3; n += 1) await queue.enqueue('send', n, n === 1 ? { key: 'k' } : {});
    await until('all have run', async () => seen.length === 3);
    await worker.stop();
    // Each has at least the row of its own transaction.
    expect(seen.every((n) => (stands ? n > 0 : n === 0))).toBe(true);
  });

  test('so is that of an actor’s turn in a transaction, and one that wakes an actor', async () => {
    const seen: number[] = [];
    const Thing = actor('thing', {
      semaphores: ['go'],
      initial: 'first',
      states: (state) => ({
        first: state({ to: ['last'], run: (a) => (a.pos('go') ? a.to('last') : a.hibernate()) }),
        last: state({
          hold: 'transaction',
          run: async (a) => {
            const { rows } = (await a.tx.client.query({
              text: 'select count(*)::int as n from both_note',
            })) as pg.QueryResult;
            seen.push(rows[0].n);
            return a.done();
          },
        }),
      }),
    });
    const actors = createActors(engine, [Thing]);
    const id = await actors.create(Thing, {});
    await engine.transaction((tx) => actors.incr(id, 'go', { tx }));
    expect(await written()).toBe(stands ? 1 : 0);
    const dispatcher = actors.run({ concurrency: 1 });
    await actors.waitFor(id);
    await dispatcher.stop();
    expect(seen.map((n) => n > 0)).toEqual([stands]);
  });
});

describe('tables whose rows are on other nodes', () => {
  beforeEach(async () => {
    await open(true);
    await client.query(`create table spread (id int primary key, status text); insert into spread values (1, 'new');
      create table single (id int primary key); create table copied (id int primary key, status text);
      create table known (id int primary key, status text); insert into known values (1, 'new');
      insert into pg_dist_partition values ('spread', 'h', 's', 4), ('single', 'n', 's', 5), ('copied', 'n', 't', 6), ('known', 'n', 's', 0)`);
  });

  test('are refused by lockRows and captureRows, and the transaction goes on', async () => {
    await engine.transaction(async (tx) => {
      for (const table of ['spread', 'single']) {
        await expect(lockRows(tx, table, [1])).rejects.toThrow(NotSupported);
      }
      await expect(lockRows(tx, 'spread', [1])).rejects.toThrow(/spread over other nodes by Citus.*lockKey/);
      const request = { status: { from: 'new', to: 'taken' }, limit: 1 };
      await expect(captureRows(tx, 'spread', request)).rejects.toThrow(NotSupported);
      expect((await lockRows(tx, 'known', [1])).locked).toEqual([1]);
      expect((await lockRows(tx, 'copied', [1])).missing).toEqual([1]);
    });
  });

  test('are refused by capture.apply() before anything is done', async () => {
    for (const root of ['spread', 'single', 'copied']) {
      const capture = createCapture(engine, { entity: 'thing', root });
      await expect(capture.apply()).rejects.toThrow(NotSupported);
    }
    const { rows } = await client.query("select from pg_trigger where tgname ~ '^pawl_capture'");
    expect(rows).toEqual([]);
    await createCapture(engine, { entity: 'thing', root: 'known' }).apply();
  });
});

test('doctor says where it is, whether commits are in two phases, and which node lacks a role', async () => {
  await open(true);
  const of = async (check: string) => (await examine(engine)).filter((finding) => finding.check === check);
  const [found] = await of('citus');
  const { rows } = await client.query<{ on: boolean }>(
    "select current_setting('max_prepared_transactions')::int > 0 as on",
  );
  expect(found?.detail).toContain(`Citus 13.2, coordinator, two-phase commit: ${rows[0]?.on ? 'on' : 'off'}`);
  expect((await of('citus roles')).map(({ detail }) => detail)).toEqual(['worker-1:5432 does not know app']);
  await client.query('update pg_dist_local_group set groupid = 3');
  expect((await of('citus')).map(({ verdict, detail }) => `${verdict}: ${detail}`)).toEqual([
    'fail: Citus 13.2, a node that is not the coordinator',
  ]);
});

test('Citus that was added after the migrations learns of the table, whose shard is no drift', async () => {
  await open(true);
  await client.query("drop trigger note on pawl.both; select citus_add_local_table_to_metadata('pawl.both')");
  const { rows } = await client.query("select to_regclass('pawl.both_102008') is not null as shard");
  expect(rows).toEqual([{ shard: true }]);
  expect(await engine.drift()).toEqual([]);
});

test('a coordinator that its cluster does not know is told what to run, before anything is migrated', async () => {
  const database = await freshDatabase({ migrated: false });
  const [one, admin] = [postgres(database.url), new pg.Client(database.url)];
  await admin.connect();
  onTestFinished(async () => {
    await Promise.all([one.stop(), admin.end()]);
    await database.drop();
  });
  await admin.query(`${CITUS_STAND_IN}; delete from pg_dist_node where groupid = 0`);
  await expect(one.migrate()).rejects.toThrow(NotSupported);
  await expect(one.migrate()).rejects.toThrow(/select citus_set_coordinator_host\('NAME'\)/);
  expect((await admin.query("select to_regnamespace('pawl') as found")).rows).toEqual([{ found: null }]);
  await admin.query('insert into pg_dist_node values (1, 0)');
  await one.migrate({ lines: ['lock'] });
  const { rows } = await admin.query("select from pg_dist_partition where logicalrelid = 'pawl.both'::regclass");
  expect(rows).toHaveLength(1);
});

describe('what is no Postgres', () => {
  test.for([
    ['CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu, built 2024/11/18 15:35:09, go1.22.8)', 'CockroachDB'],
    ['PostgreSQL 11.2-YB-2.20.1.3-b0 on x86_64-pc-linux-gnu, compiled by clang version 16.0.6, 64-bit', 'YugabyteDB'],
    ['PostgreSQL 15.12-YB-2025.1.0.0-b0 on aarch64-unknown-linux-gnu, compiled by clang, 64-bit', 'YugabyteDB'],
    ['PostgreSQL 16', 'Aurora DSQL'],
  ] as const)('%s is refused by name, with the reason', ([version, name]) => {
    expect(() => judge(version)).toThrow(NotSupported);
    expect(() => judge(version)).toThrow(new RegExp(`${name}.*(advisory locks).*Use Postgres`));
  });

  test('Aurora DSQL is known by its address, too', () => {
    const address = 'postgres://admin@abc123.dsql.us-east-1.on.aws:5432/postgres';
    expect(() => judge('PostgreSQL 16.9 on x86_64', address)).toThrow(/Aurora DSQL/);
  });

  test.for([
    'PostgreSQL 18.4 (Debian 18.4-1.pgdg13+1) on x86_64-pc-linux-gnu, compiled by gcc (Debian 14.2.0) 14.2.0, 64-bit',
    'PostgreSQL 14.23 on x86_64-pc-linux-musl, compiled by gcc, 64-bit',
    'PostgreSQL 16.6 on aarch64-unknown-linux-gnu, compiled by aarch64-unknown-linux-gnu-gcc (GCC) 9.5.0, 64-bit',
  ])('%s is served', (version) => {
    expect(judge(version)).toEqual({ citus: undefined, isInSnapshots: false });
    expect(judge(`${version} citus 13.2-1`)).toEqual({ citus: '13.2-1', isInSnapshots: false });
    const inSnapshots = judge(`${version} citus 13.2-1 in snapshots`);
    expect(inSnapshots).toEqual({ citus: '13.2-1', isInSnapshots: true });
  });

  test('a server that is one is asked once', async () => {
    const { url: own } = await freshDatabase();
    const one = postgres(own);
    expect(await one.server()).toEqual({ citus: undefined, isInSnapshots: false });
    await one.stop();
  });
});
