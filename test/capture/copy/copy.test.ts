import { expect, onTestFinished, test } from 'vitest';
import { InvalidInput, SchemaMismatch } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { createCapture, type Projection, Sql, sql } from '../../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';
import { startMigratedServer } from '../../support/servers/embedded.ts';
import { build, EXPECTED, openScene, type Scene, TARGET } from '../scene.ts';

interface CopyScene extends Scene {
  readonly to: PostgresEngine;
  readonly toUrl: string;
  readonly copy: Projection;
  /** Rows that the copy lacks, plus rows that it should not have: a row that differs counts twice. */
  readonly wrong: () => Promise<number>;
}

async function otherDatabase(): Promise<{ to: PostgresEngine; toUrl: string }> {
  const { url } = await freshDatabase();
  const to = postgres(url);
  onTestFinished(() => to.stop());
  return { to, toUrl: url };
}

async function openCopy(
  how: 'query' | 'function' = 'query',
  other?: { to: PostgresEngine; toUrl: string },
): Promise<CopyScene> {
  const { to, toUrl } = other ?? (await otherDatabase());
  const scene = await openScene();
  const copy = scene.capture.project({
    ...TARGET,
    into: 'order_copy',
    to,
    build: how === 'query' ? sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])` : build,
  });
  await scene.capture.apply();
  return { ...scene, to, toUrl, copy, wrong: () => compare(scene, to) };
}

async function compare({ query }: Scene, to: PostgresEngine): Promise<number> {
  const rows = (text: string): string => `select array_agg(to_json(x)::text order by x.id) as rows from (${text}) x`;
  const [want] = await query<{ rows: string[] | null }>(rows(EXPECTED));
  const have = statement('test', rows('select id, customer, status, items, notes from order_copy'), { prepare: false });
  const [found] = await to.query<{ rows: string[] | null }>(have);
  const left = new Set(found?.rows);
  const missing = (want?.rows ?? []).filter((row) => !left.delete(row));
  return missing.length + left.size;
}

async function run(projection: Projection): Promise<void> {
  const worker = projection.run({ poll: '50ms', batch: 40 });
  onTestFinished(() => worker.stop());
  await worker.started;
}

test.each(['query', 'function'] as const)(
  'a table in another database follows: back-fill, changes, deletions, search, comparison (by a %s)',
  async (how) => {
    const { capture, copy, client, to, wrong, query } = await openCopy(how);
    expect(await capture.verify()).toEqual([]);
    expect(await query("select to_regclass('order_copy')::text as there")).toEqual([{ there: null }]);
    const filling = copy.backfill({ batch: 10 });
    await client.query("update orders set status = 'beside' where id < 60; delete from orders where id = 99");
    await filling;
    await run(copy);
    await client.query(`update customer set name = 'Smith' where id = 3; delete from orders where id = 50;
      insert into orders (id, customer_id) values (777, 3)`);
    await copy.settled();
    expect(await wrong()).toBe(0);
    expect((await copy.search('smith')).rows.length).toBe(6);
    await to.session((session) =>
      session.run("update order_copy set status = 'forged' where id = 7; insert into order_copy (id) values (4711)"),
    );
    expect(await copy.reconcile({ repair: false, batch: 30 })).toMatchObject({ drifted: 2, keys: ['7', '4711'] });
    await copy.reconcile();
    await copy.settled();
    expect(await wrong()).toBe(0);
    await client.query('truncate orders cascade');
    await copy.settled();
    expect(await wrong()).toBe(0);
  },
);

// Invariant C12.
test.each(['before_copy', 'after_copy', 'before_commit'])(
  'a worker that is killed at %s loses nothing of a copy',
  async (point) => {
    const { url, toUrl, copy, client, wrong, projection } = await openCopy();
    await projection.backfill();
    await copy.backfill();
    await client.query("update orders set status = 'killed' where id < 50; delete from orders where id = 60");
    const child = spawnChild('capture/worker.child.ts', [url, toUrl], { PAWL_FAULT: `capture.${point}:kill` });
    expect((await child.exited).signal).toBe('SIGKILL');
    expect(await wrong()).toBe(point === 'before_copy' ? 99 : 0);
    await run(copy);
    await copy.settled();
    expect(await wrong()).toBe(0);
  },
);

// Invariant C15.
test('an older version that arrives late changes no row, and brings no deleted row back', async () => {
  const { url, toUrl, copy, client, wrong } = await openCopy();
  await copy.backfill();
  await client.query("update orders set status = 'first' where id in (1, 2)");
  const child = spawnChild('capture/worker.child.ts', [url, toUrl], {
    PAWL_FAULT: 'capture.before_copy:stop',
    TIMEOUT: '1s',
  });
  await until('the worker stops after it has read the rows', () => child.stderr().includes('reached'));
  await client.query("update orders set status = 'second' where id = 1; delete from orders where id = 2");
  await run(copy);
  await copy.settled();
  expect(await wrong()).toBe(0);
  child.resume();
  await until('the late delivery was refused', () => child.stderr().includes('error'));
  expect(await wrong()).toBe(0);
});

test('the other database restarts in the middle: the copy is complete after it is back', async () => {
  const server = await startMigratedServer({ fsync: 'off' });
  onTestFinished(() => server.stop());
  const to = postgres(server.url);
  onTestFinished(() => to.stop());
  const { copy, client, wrong, query } = await openCopy('query', { to, toUrl: server.url });
  await copy.backfill();
  await run(copy);
  const restarting = server.restart('immediate');
  for (let n = 0; n < 30; n += 1) await client.query('update orders set status = $1 where id % 30 = $2', [`r${n}`, n]);
  await restarting;
  await copy.settled();
  expect(await wrong()).toBe(0);
  // No entity caused the outage: none was set aside for it.
  expect(await query('select 1 from pawl.capture_retry')).toEqual([]);
});

test('changes in order are written once to another database, whatever acknowledgement is lost', async () => {
  const { to } = await otherDatabase();
  const scene = await openScene();
  await to.session((session) => session.run('create table seen (n serial, change bigint, key text)'));
  const capture = createCapture(scene.engine, { entity: 'followed', root: 'orders' });
  const follower = capture.follow({
    name: 'far',
    to,
    handler: async (changes, tx) => {
      for (const { id, key } of changes)
        await tx.client.query({ text: 'insert into seen (change, key) values ($1, $2)', values: [id, key] });
    },
  });
  await capture.apply();
  const seen = (): Promise<{ key: string }[]> =>
    to.query<{ key: string }>(statement('test', 'select key from seen order by n', { prepare: false }));
  await scene.client.query("update orders set status = 'x' where id < 7");
  for (const batch of [4, 2, 3]) {
    const disarm = faults.arm('capture.after_copy', 'throw', { occurrence: 1 });
    await expect(follower.next({ batch })).rejects.toThrow('fault');
    disarm();
  }
  while ((await follower.next({ batch: 3 })) > 0);
  expect((await seen()).map(({ key }) => key)).toEqual(['1', '2', '3', '4', '5', '6']);
  // A restore to an earlier time: first of the other database, then of the captured one.
  await to.session((session) => session.run('update pawl.capture_copy_place set delivery = delivery - 1'));
  await scene.client.query("update orders set status = 'y' where id = 9");
  await expect(follower.next()).rejects.toThrow(/this database has had.*rebase/);
  await to.session((session) => session.run('update pawl.capture_copy_place set delivery = delivery + 5'));
  await expect(follower.next()).rejects.toThrow(/captured one knows of.*rebase/);
  expect(await follower.rebase()).toBe(1);
  while ((await follower.next()) > 0);
  expect((await seen()).at(-1)).toEqual({ key: '9' });
});

test('another database that cannot take a copy is refused before anything is installed', async () => {
  const { engine, query } = await openScene();
  const empty = await freshDatabase({ migrated: false });
  const to = postgres(empty.url);
  onTestFinished(() => to.stop());
  const capture = createCapture(engine, { entity: 'order', root: 'orders' });
  expect(() => capture.project({ ...TARGET, build, to: engine })).toThrow(InvalidInput);
  expect(() => capture.follow({ name: 'x', handler: async () => {}, to: engine })).toThrow(InvalidInput);
  const noEngine: unknown = { kind: 'pool' };
  expect(() => capture.project({ ...TARGET, build, to: noEngine as PostgresEngine })).toThrow(/made by postgres\(\)/);
  capture.project({ ...TARGET, build, to });
  expect((await capture.plan()).sql).toMatch(/^-- in the database of order_search:\n-- create table/);
  await expect(capture.apply()).rejects.toThrow(SchemaMismatch);
  const followed = createCapture(engine, { entity: 'followed', root: 'orders' });
  followed.follow({ name: 'far', handler: async () => {}, to });
  await expect(followed.apply()).rejects.toThrow(SchemaMismatch);
  expect(await query('select 1 from pawl.capture_definition')).toEqual([]);
});

const RECORDS = statement(
  'test.records',
  `select 'key' as what, count(*)::int as n from pawl.capture_copy_key union all select 'epoch', count(*)::int from pawl.capture_copy_epoch
  union all select 'known', count(*)::int from pawl.capture_copy_known union all select 'place', count(*)::int from pawl.capture_copy_place`,
  { prepare: false },
);

async function openDetached(): Promise<CopyScene & { records: () => Promise<Record<string, number>> }> {
  const { to, toUrl } = await otherDatabase();
  const scene = await openCopy('query', { to, toUrl });
  const follower = scene.capture.follow({ name: 'changes', handler: async () => {}, to });
  await scene.capture.apply();
  await scene.copy.backfill();
  await scene.client.query("update orders set status = 'x' where id = 1");
  await follower.next();
  const records = async (): Promise<Record<string, number>> =>
    Object.fromEntries((await to.query<{ what: string; n: number }>(RECORDS)).map(({ what, n }) => [what, n]));
  expect(await records()).toEqual({ key: 100, epoch: 1, known: 1, place: 1 });
  return { ...scene, records };
}

test('detach leaves nothing in the other database but the table, and a later apply begins anew', async () => {
  const { capture, copy, client, records, wrong } = await openDetached();
  await capture.detach();
  expect(await records()).toEqual({ key: 0, epoch: 0, known: 0, place: 0 });
  await capture.apply();
  await client.query('delete from order_line where order_id = 7; delete from orders where id = 7');
  await copy.backfill();
  expect(await wrong()).toBe(0);
});

test('detach in a copy of the captured database leaves the records of the copy, which are not its own', async () => {
  const { capture, query, to, records } = await openDetached();
  await query("update pawl.capture_line set database = 'other:1'");
  await to.query(
    statement('test.owner', "update pawl.capture_copy_epoch set database = 'other:1'", { prepare: false }),
  );
  await capture.detach();
  expect(await records()).toEqual({ key: 100, epoch: 1, known: 1, place: 1 });
});

test('detach needs no other database', async () => {
  const { capture, query, to } = await openDetached();
  await to.stop();
  await capture.detach();
  expect(await query('select from pawl.capture_line')).toEqual([]);
});
