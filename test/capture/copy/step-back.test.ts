// Either database goes back in time, or is replaced by another one. The projection here has all rows of one table.
import { describe, expect, onTestFinished, test } from 'vitest';
import { type Capture, createCapture, type Follower, type Projection, sql } from '../../../src/capture/index.ts';
import type { EmbeddedPostgres } from '../../../src/engine/postgres/embedded/index.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../../src/engine/postgres/index.ts';
import { holdBackWal } from '../../support/children/crash.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { type Backup, backUp, copyFolder } from '../../support/servers/backup.ts';
import { startMigratedServer } from '../../support/servers/embedded.ts';
import { startStandby } from '../../support/servers/standby.ts';
import { dumpInto } from './dump.ts';

const QUICK = { fsync: 'off', autovacuum: 'off' };
/** Commits are flushed when the walwriter does it, or somebody who writes a page of the tables: of those there is the background writer. */
const UNFLUSHED = { synchronous_commit: 'off', bgwriter_lru_maxpages: '0' };
const ROOT = `create table ord (id int primary key, s text not null); insert into ord select g, 'v0' from generate_series(1, 200) g`;

function open(url: string): PostgresEngine {
  const engine = postgres(url, { logger: { debug() {}, info() {}, warn() {}, error() {} } });
  onTestFinished(() => engine.stop());
  return engine;
}

async function startServer(settings: Record<string, string> = {}): Promise<EmbeddedPostgres> {
  const started = await startMigratedServer({ ...QUICK, ...settings });
  onTestFinished(() => started.stop());
  return started;
}

async function elsewhere(): Promise<PostgresEngine> {
  return open((await freshDatabase()).url);
}

const run = (engine: PostgresEngine, text: string): Promise<unknown[]> =>
  engine.query(statement('test', text, { prepare: false }));

async function rowsOf(engine: PostgresEngine, table: string): Promise<readonly string[]> {
  const [row] = await engine.query<{ rows: string[] }>(
    statement('test', `select array_agg(id || '=' || s order by id) as rows from ${table}`, { prepare: false }),
  );
  return row?.rows ?? [];
}

interface CopyScene {
  readonly capture: Capture;
  readonly copy: Projection;
  readonly deliver: () => Promise<void>;
}

/** @param how  what makes the rows */
function copied(engine: PostgresEngine, to: PostgresEngine, how: 'query' | 'function' = 'query'): CopyScene {
  const capture = createCapture(engine, { entity: 'ord', root: 'ord' });
  const text = 'select id, s from ord where id = any ($1::int[])';
  const read = async (ids: readonly string[], tx: Transaction): Promise<{ id: number; s: string }[]> =>
    tx.query<{ id: number; s: string }>(statement('test', text, { prepare: false }), [ids]);
  const build = how === 'query' ? sql`select id, s from ord where id = any ($1::int[])` : read;
  const copy = capture.project({ into: 'ord_copy', to, columns: { s: 'text' }, build });
  return {
    capture,
    copy,
    deliver: async () => {
      await using worker = copy.run({ poll: '20ms', batch: 5 });
      await worker.started;
      await copy.settled();
    },
  };
}

test.each(['query', 'function'] as const)(
  'rows that a promoted standby never had are removed from the copy, and every other row is right (by a %s)',
  async (how) => {
    const primary = await startServer();
    const before = open(primary.url);
    const to = await elsewhere();
    await run(before, ROOT);
    const first = copied(before, to, how);
    await first.capture.apply();
    await first.copy.backfill({ batch: 50 });
    const standby = await startStandby(primary, QUICK);
    onTestFinished(() => standby.server.stop());
    await run(before, "update ord set s = 'both' where id <= 5");
    await first.deliver();
    await standby.caughtUp();
    await standby.cut();
    for (const id of [100, 101, 102]) {
      await run(before, `update ord set s = 'lost' where id = ${id}`);
      await first.deliver();
    }
    await run(before, "insert into ord values (500, 'never'); delete from ord where id = 120");
    await first.deliver();
    expect((await rowsOf(to, 'ord_copy')).filter((row) => /lost|never/.test(row)).length).toBe(4);
    await before.stop();
    await primary.stop();
    await standby.promote();
    const after = open(standby.server.url);
    const second = copied(after, to, how);
    // One change of any row is enough: the first delivery finds what was lost.
    await run(after, "update ord set s = 'after' where id = 1");
    await second.deliver();
    expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(after, 'ord'));
    expect((await second.copy.reconcile()).drifted).toBe(0);
  },
);

describe.each([
  ['restored to a point in time', backUp],
  ['that was copied with its data folder', copyFolder],
])('a server %s', (_, make) => {
  test('removes from its copy the rows that it never had', async () => {
    const { before, backup, restored } = await backedUp(make);
    const to = await elsewhere();
    const first = copied(before, to);
    await first.capture.apply();
    await first.copy.backfill({ batch: 50 });
    await run(before, "update ord set s = 'both' where id <= 5");
    await first.deliver();
    await backup.mark();
    for (const id of [100, 101, 102]) {
      await run(before, `update ord set s = 'lost' where id = ${id}`);
      await first.deliver();
    }
    await run(before, "insert into ord values (500, 'never'); delete from ord where id = 120");
    await first.deliver();
    expect((await rowsOf(to, 'ord_copy')).filter((row) => /lost|never/.test(row)).length).toBe(4);
    const after = await restored();
    expect((await rowsOf(after, 'ord')).filter((row) => /lost|never/.test(row))).toEqual([]);
    // Its numbers pass those that the copy has stored before anything is delivered.
    await burn(after, 500);
    await run(after, "update ord set s = 'after' where id between 1 and 90");
    const second = copied(after, to);
    await second.deliver();
    expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(after, 'ord'));
    expect((await second.copy.reconcile()).drifted).toBe(0);
  });

  test('delivers to a follower in its own database every change that it has, once', async () => {
    const { before, backup, restored } = await backedUp(make);
    const first = await followed(before);
    await run(before, "update ord set s = 'given' where id = 1");
    await first.all();
    await run(before, "update ord set s = 'waits' where id = 2");
    await backup.mark();
    await run(before, "update ord set s = 'lost' where id = 3");
    await first.all();
    expect(first.seen).toEqual(['given', 'waits', 'lost']);
    const after = await restored();
    const second = await followed(after);
    await run(after, "update ord set s = 'after' where id = 4");
    await second.all();
    expect(second.seen).toEqual(['waits', 'after']);
  });
});

async function backedUp(
  make: typeof backUp,
): Promise<{ before: PostgresEngine; backup: Backup; restored: () => Promise<PostgresEngine> }> {
  const source = await startServer();
  const before = open(source.url);
  await run(before, ROOT);
  const backup = await make(source, QUICK);
  onTestFinished(() => backup[Symbol.asyncDispose]());
  const restored = async (): Promise<PostgresEngine> => {
    await before.stop();
    const server = await backup.restore();
    onTestFinished(() => server.stop());
    await source.stop();
    return open(server.url);
  };
  return { before, backup, restored };
}

test('after a crash with unflushed commits, a server removes those changes from its copy', async () => {
  const source = await startServer(UNFLUSHED);
  const engine = open(source.url);
  const to = await elsewhere();
  await run(engine, ROOT);
  const { capture, copy, deliver } = copied(engine, to);
  await capture.apply();
  await copy.backfill();
  await run(engine, "update ord set s = 'kept' where id <= 3");
  await deliver();
  await run(engine, 'checkpoint');
  const server = await holdBackWal(source.url);
  for (const id of [100, 101, 102]) {
    await run(engine, `update ord set s = 'lost' where id = ${id}`);
    await deliver();
  }
  expect((await rowsOf(to, 'ord_copy')).filter((row) => row.endsWith('lost')).length).toBe(3);
  await server.crash();
  await until('it answers again', () => run(engine, 'select 1').catch(() => undefined));
  expect((await rowsOf(engine, 'ord')).filter((row) => row.endsWith('lost'))).toEqual([]);
  await run(engine, "update ord set s = 'after' where id = 1");
  await deliver();
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(engine, 'ord'));
});

test('a copy whose server crashed with unflushed commits receives everything once more', async () => {
  const target = await startServer(UNFLUSHED);
  const to = open(target.url);
  const engine = await elsewhere();
  await run(engine, ROOT);
  const { capture, copy, deliver } = copied(engine, to);
  await capture.apply();
  await copy.backfill();
  await run(to, 'checkpoint');
  const server = await holdBackWal(target.url);
  await run(engine, "update ord set s = 'given' where id in (100, 101)");
  await deliver();
  await server.crash();
  await until('it answers again', () => run(to, 'select 1').catch(() => undefined));
  expect((await rowsOf(to, 'ord_copy')).filter((row) => row.endsWith('given'))).toEqual([]);
  await run(engine, "update ord set s = 'after' where id = 1");
  await deliver();
  await copy.settled();
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(engine, 'ord'));
});

test('a server that is stopped in order and started again delivers next to nothing twice to its copy', async () => {
  const source = await startServer();
  const engine = open(source.url);
  const to = await elsewhere();
  await run(engine, ROOT);
  const { capture, copy, deliver } = copied(engine, to);
  await capture.apply();
  await copy.backfill();
  await run(engine, 'update pawl.capture_line set reached = pg_current_wal_insert_lsn()');
  await source.restart('fast');
  await until('it answers again', () => run(engine, 'select 1').catch(() => undefined));
  const projected: number[] = [];
  copy.events.on('projected', ({ keys }) => void projected.push(keys));
  await run(engine, "update ord set s = 'after' where id = 1");
  await deliver();
  expect(projected).toEqual([1]);
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(engine, 'ord'));
});

// Invariant C21.
test('a delivery that began before a failover is not taken after it', async () => {
  const { engine, to, copy, deliver } = await opened();
  const worker = copy.run({ poll: '20ms', batch: 5 });
  onTestFinished(() => worker.stop());
  await worker.started;
  await run(engine, "update ord set s = 'first' where id = 1");
  await copy.settled();
  await worker.stop();
  // Stands for a worker of another server, in which the row differs, that has begun an epoch of the copy.
  await run(to, 'update pawl.capture_copy_epoch set epoch = epoch + 1, timeline = timeline + 1');
  await run(engine, "update ord set s = 'from the old server' where id = 1");
  const failed = new Promise<unknown>((resolve) => copy.events.on('error', ({ error }) => resolve(error)));
  await using late = copy.run({ poll: '20ms' });
  await late.started;
  expect(await failed).toMatchObject({ code: 'conflict', message: expect.stringMatching(/timeline.*rebase/) });
  expect(await run(engine, 'select 1 from pawl.capture_retry')).toEqual([]);
  expect((await rowsOf(to, 'ord_copy'))[0]).toBe('1=first');
  await late.stop();
  await copy.rebase();
  await deliver();
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(engine, 'ord'));
});

async function opened(): Promise<CopyScene & { engine: PostgresEngine; to: PostgresEngine }> {
  const [engine, to] = [await elsewhere(), await elsewhere()];
  await run(engine, ROOT);
  const made = copied(engine, to);
  await made.capture.apply();
  await made.copy.backfill();
  return { ...made, engine, to };
}

test('a dump that is restored elsewhere does not take the copy by itself, and after rebase() the copy is its own', async () => {
  const { engine, to, deliver } = await opened();
  await run(engine, "update ord set s = 'after the dump' where id = 7");
  const restored = open((await startServer()).url);
  await run(restored, ROOT.split(';')[0] ?? '');
  await dumpInto(engine, restored, ['ord']);
  await deliver();
  await run(engine, "update ord set s = 'later' where id = 8; insert into ord values (900, 'later')");
  await deliver();
  const other = copied(restored, to);
  await other.capture.apply();
  await run(restored, "update ord set s = 'restored' where id = 9");
  const failed = new Promise<unknown>((resolve) => other.copy.events.on('error', ({ error }) => resolve(error)));
  const worker = other.copy.run({ poll: '20ms' });
  onTestFinished(() => worker.stop());
  expect(await failed).toMatchObject({ code: 'conflict', message: expect.stringMatching(/belongs to.*rebase/) });
  await worker.stop();
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(engine, 'ord'));
  await other.copy.rebase();
  await other.deliver();
  await other.copy.settled();
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(restored, 'ord'));
  // Now the copy no longer belongs to the first database.
  const again = copied(engine, to);
  const refused = new Promise<unknown>((resolve) => again.copy.events.on('error', ({ error }) => resolve(error)));
  await run(engine, "update ord set s = 'too late' where id = 10");
  const late = again.copy.run({ poll: '20ms' });
  onTestFinished(() => late.stop());
  expect(await refused).toMatchObject({ code: 'conflict' });
  expect(await rowsOf(to, 'ord_copy')).toEqual(await rowsOf(restored, 'ord'));
});

interface FollowerScene {
  readonly follower: Follower;
  readonly seen: string[];
  readonly all: () => Promise<void>;
}

async function followed(engine: PostgresEngine): Promise<FollowerScene> {
  const capture = createCapture(engine, {
    entity: 'ord',
    root: 'ord',
    history: { ord: { rows: 'after', columns: ['s'] } },
  });
  const seen: string[] = [];
  const follower = capture.follow({
    name: 'f',
    handler: async (changes) => void seen.push(...changes.map(({ after }) => after?.['s'] ?? '')),
  });
  await capture.apply();
  return {
    follower,
    seen,
    all: async () => {
      while ((await follower.next()) > 0);
    },
  };
}

const burn = (engine: PostgresEngine, n: number): Promise<unknown> =>
  run(engine, `do $$ begin for i in 1..${n} loop perform pg_current_xact_id(); commit; end loop; end $$`);

// Invariant C21.
test('after a restore a follower refuses however high the transaction numbers get, and rebase() loses and repeats nothing', async () => {
  const source = await elsewhere();
  await run(source, ROOT);
  await burn(source, 3000);
  const old = await followed(source);
  await run(source, "update ord set s = 'had' where id = 1");
  await old.all();
  expect(old.seen).toEqual(['had']);
  await run(source, "update ord set s = 'in the dump' where id = 2");
  const restored = open((await startServer()).url);
  await run(restored, ROOT.split(';')[0] ?? '');
  await dumpInto(source, restored, ['ord']);
  const young = await followed(restored);
  const wanted = ['in the dump'];
  for (let n = 0; n < 60; n += 1) {
    await run(restored, `update ord set s = 'w${n}' where id = ${3 + n}`);
    wanted.push(`w${n}`);
    if (n % 10 === 0) {
      await expect(young.follower.next()).rejects.toMatchObject({ code: 'conflict' });
      await burn(restored, 1000);
    }
  }
  await restored.session(async (session) => {
    await session.run("begin; update ord set s = 'open over rebase' where id = 190");
    expect(await young.follower.rebase()).toBe(wanted.length);
    await session.run('commit');
  });
  await run(restored, "update ord set s = 'after' where id = 191");
  await young.all();
  expect(young.seen.toSorted()).toEqual([...wanted, 'open over rebase', 'after'].toSorted());
});

test('changes of a transaction that is open during rebase() are delivered when it commits, and nothing twice', async () => {
  const engine = await elsewhere();
  await run(engine, ROOT);
  const { follower, seen, all } = await followed(engine);
  await run(engine, "update ord set s = 'first' where id = 1");
  await all();
  await engine.session(async (session) => {
    await session.run("begin; update ord set s = 'open' where id = 2");
    await run(engine, "update ord set s = 'waiting' where id = 3");
    expect(await follower.rebase()).toBe(1);
    expect(await follower.rebase()).toBe(1);
    await session.run('commit');
  });
  await run(engine, "update ord set s = 'after' where id = 4");
  await all();
  expect(seen.toSorted()).toEqual(['after', 'first', 'open', 'waiting']);
});
