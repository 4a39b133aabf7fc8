import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { faults } from '../../src/base/fault.ts';
import {
  createCapture,
  createCaptureAdmin,
  type FailedEntity,
  type Projection,
  type RunOptions,
  Sql,
  sql,
} from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { LONG } from '../support/long.ts';
import { spawnChild } from '../support/process.ts';
import { startProxy } from '../support/proxy.ts';
import { awakeMs } from '../support/time/awake.ts';
import { openCluster, projectDocs } from './citus/cluster.ts';
import { build, EXPECTED, openScene, TARGET, VIA } from './scene.ts';

async function run(projection: Projection, options: RunOptions = {}): Promise<void> {
  const worker = projection.run({ poll: '50ms', ...options });
  onTestFinished(() => worker.stop());
  await worker.started;
}

// Invariant C21.
test('a back-fill writes all entities while changes go on, and leaves no gap', async () => {
  const { capture, projection, client, diff } = await openScene();
  await capture.apply();
  await client.query('insert into order_search (id) values (-5), (7), (100000)');
  const seen: number[] = [];
  const changing = (async () => {
    for (let i = 0; i < 40; i += 1) {
      await client.query('update orders set status = $2 where id = $1', [1 + ((i * 13) % 100), `s${i}`]);
      await client.query('insert into orders (id, customer_id) values ($1, 1)', [50_000 + i]);
      await client.query('delete from orders where id = $1', [1 + ((i * 7) % 50)]);
    }
  })();
  const done = await projection.backfill({ batch: 10, onProgress: ({ done: n }) => void seen.push(n) });
  await changing;
  expect(done.phase).toBe('done');
  expect(seen.length).toBeGreaterThan(5);
  await run(projection);
  await projection.settled();
  expect(await diff()).toBe(0);
});

test('changes in every table reach the row of their entity, and rows of deleted entities go', async () => {
  const { capture, projection, client, diff, query } = await openScene();
  await capture.apply();
  await projection.backfill();
  await run(projection);
  await client.query("update customer set name = 'Smith' where id = 3");
  await client.query("update item set title = 'Anvil' where sku = 's4'");
  await client.query('delete from orders where id = 50');
  await client.query('insert into orders (id, customer_id) values (777, 3)');
  await projection.settled();
  expect(await diff()).toBe(0);
  expect(await query('select id::int as id from order_search where id in (50, 777)')).toEqual([{ id: 777 }]);
  await client.query('truncate order_line');
  await projection.settled();
  expect(await diff()).toBe(0);
  await client.query('truncate orders cascade');
  await projection.settled();
  expect(await query('select 1 from order_search')).toEqual([]);
});

test('a link to a row that was not visible to the trigger is followed anyway', async () => {
  // The customer is renamed by one transaction while another one inserts an order for it; neither sees the other.
  const { capture, projection, client, connect, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  await run(projection);
  const other = await connect();
  await client.query("begin; update customer set name = 'renamed' where id = 4");
  await other.query('insert into orders (id, customer_id) values (600, 4)');
  await projection.settled();
  await client.query('commit');
  await projection.settled();
  expect(await diff()).toBe(0);
});

// Invariant C13.
test('a change during the aggregation is not swallowed', async () => {
  const { capture, projection, client, connect, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  const other = await connect();
  // The late change has a lower id than those that the worker sees. It is committed after the worker has read, and before it
  // acknowledges.
  await client.query("begin; update orders set status = 'late' where id = 5");
  await other.query("update note set body = 'early' where order_id = 5");
  const disarm = faults.arm('capture.after_upsert', () => client.query('commit'), { occurrence: 1 });
  onTestFinished(disarm);
  await run(projection);
  await projection.settled();
  expect(await diff()).toBe(0);
});

// Invariant C10.
test('a change that is committed late is not missed, however many batches come before it', async () => {
  const { capture, projection, client, connect, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  await run(projection, { batch: 1 });
  const late = await connect();
  await late.query(
    "begin; update orders set status = 'late' where id = 1; update order_line set qty = 9 where order_id = 2",
  );
  const rounds = LONG ? 1000 : 40;
  for (let n = 0; n < rounds; n += 1)
    await client.query('update orders set status = $1 where id = $2', [`r${n}`, 3 + (n % 90)]);
  await projection.settled();
  await late.query('commit');
  await projection.settled();
  expect(await diff()).toBe(0);
});

// Invariant C11.
test('open transactions of others delay nothing', async () => {
  const { capture, projection, client, connect, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  const idle = await connect();
  await idle.query('begin; create table elsewhere (id int); insert into elsewhere values (1); select * from orders');
  await run(projection);
  await client.query("update orders set status = 'now' where id = 8");
  await projection.settled();
  expect(await diff()).toBe(0);
  await idle.query('rollback');
});

// Invariant C16.
test('an entity that cannot be projected backs off alone, and is projected when it can be', async () => {
  let isBroken = true;
  const failed: FailedEntity[] = [];
  const scene = await openScene({
    build: async (ids, tx) => {
      if (isBroken && ids.includes('13')) throw new Error('13 is unlucky');
      return build(ids, tx);
    },
  });
  const { capture, projection, client, diff, query } = scene;
  await capture.apply();
  projection.events.on('failed', (one) => failed.push(one));
  await projection.backfill();
  await run(projection, { backoff: { min: '100ms', max: '100ms' } });
  await projection.settled();
  await client.query("update orders set status = 'x' where id < 40");
  await until('it was tried again', () => failed.some(({ attempt }) => attempt >= 3));
  await projection.settled();
  expect(await diff()).toBe(1);
  expect(new Set(failed.map(({ key }) => key))).toEqual(new Set(['13']));
  const [row] = await query<{ key: string; error: string }>('select key, error from pawl.capture_retry');
  expect(row).toEqual({ key: '13', error: '13 is unlucky' });
  isBroken = false;
  await until('its row is written', async () => (await diff()) === 0);
  expect(await query('select 1 from pawl.capture_retry')).toEqual([]);
});

test('a row of another key, and a second row of one key, are refused, and the entity is set aside', async () => {
  const { capture, projection, query } = await openScene({
    build: async (ids, tx) => [
      ...(await build(ids, tx)),
      ...(ids.includes('4') ? [{ id: 4 }] : []),
      ...(ids.includes('6') ? [{ id: 9999 }] : []),
    ],
  });
  await capture.apply();
  await projection.backfill({ batch: 100 });
  await run(projection);
  await projection.settled();
  const rows = await query<{ key: string; error: string }>('select key, error from pawl.capture_retry order by key');
  expect(rows).toEqual([
    { key: '4', error: expect.stringContaining('two rows') },
    { key: '6', error: expect.stringContaining('not asked for') },
  ]);
});

test('a value of which nothing would be stored is refused, and its entity alone is set aside', async () => {
  const values: Record<string, unknown> = {
    '1': { n: [new Date('soon')] },
    '2': new Map([['a', 1]]),
    '3': new Set([1]),
    '4': Promise.resolve(1),
    '5': () => 1,
    '6': { a: new Date(0), b: 1n, c: [Number.NaN, null, undefined] },
  };
  const { capture, projection, client, query } = await openScene({
    into: 'order_value',
    columns: { made: 'json' },
    text: [],
    build: async (ids) => ids.map((id) => ({ id, made: values[id], unused: new Map() })),
  });
  await client.query('delete from order_line; delete from note; delete from orders where id > 6');
  await capture.apply();
  await projection.backfill();
  await run(projection);
  await projection.settled();
  const refused = (key: string, why: string): unknown => ({
    key,
    error: expect.stringContaining(`a row for ${key} that cannot be stored: ${why}`),
  });
  expect(await query('select key, error from pawl.capture_retry order by key')).toEqual([
    refused('1', 'made.n[0] is an invalid Date, which JSON would make null'),
    refused('2', 'made is a Map, which JSON would make {}; write Object.fromEntries'),
    refused('3', 'made is a Set, which JSON would make {}; write [...set]'),
    refused('4', 'made is a Promise'),
    refused('5', 'made is a function'),
  ]);
  expect(await query('select id::int as id, made from order_value')).toEqual([
    { id: 6, made: { a: '1970-01-01T00:00:00.000Z', b: '1', c: ['NaN', null, null] } },
  ]);
});

test('bytes that a program makes are stored as these bytes', async () => {
  const { capture, projection, query } = await openScene({
    into: 'order_photo',
    columns: { photo: 'bytea', parts: 'bytea[]' },
    text: [],
    build: async (ids) =>
      ids.map((id) => ({ id, photo: Buffer.from([0, 255, 92]), parts: [Uint8Array.of(1, 2), Buffer.alloc(0)] })),
  });
  await capture.apply();
  await projection.backfill();
  expect(await query("select distinct encode(photo, 'hex') as photo, parts::text as parts from order_photo")).toEqual([
    { photo: '00ff5c', parts: '{"\\\\x0102","\\\\x"}' },
  ]);
  expect(await projection.reconcile()).toMatchObject({ drifted: 0 });
});

// Invariant C12.
test.each(['after_claim', 'after_upsert', 'before_commit', 'after_commit'])(
  'a worker killed at %s loses nothing and does nothing twice',
  async (point) => {
    const { url, capture, projection, client, diff, query } = await openScene();
    await capture.apply();
    await projection.backfill();
    await client.query("update orders set status = 'killed'");
    const child = spawnChild('capture/worker.child.ts', [url], { PAWL_FAULT: `capture.${point}:kill` });
    expect((await child.exited).signal).toBe('SIGKILL');
    // Before COMMIT the rows are unchanged, and the log still has the changes.
    await until('the server noticed', async () => {
      const busy =
        "select 1 from pg_stat_activity where application_name = 'capture child' and datname = current_database()";
      return (await query(busy)).length === 0;
    });
    expect(await diff()).toBe(point === 'after_commit' ? 0 : 100);
    await run(projection);
    await projection.settled();
    expect(await diff()).toBe(0);
  },
);

// Invariant C15.
test('a paused worker loses its batch after the timeout, and cannot write it any more', async () => {
  const { url, capture, projection, client, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  await client.query("update orders set status = 'first' where id = 1");
  const child = spawnChild('capture/worker.child.ts', [url], {
    PAWL_FAULT: 'capture.after_upsert:stop',
    TIMEOUT: '1s',
  });
  await until('the worker is paused', () => child.stderr().includes('reached'));
  await client.query("update orders set status = 'second' where id = 1");
  await run(projection);
  await projection.settled();
  expect(await diff()).toBe(0);
  child.resume();
  await sleep(200);
  await client.query("update orders set status = 'third' where id = 1");
  await projection.settled();
  expect(await diff()).toBe(0);
});

test('connections are ended at random under load: in the end every row is right', async () => {
  const { capture, projection, client, query, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  await run(projection);
  const shoot = `select count(pg_terminate_backend(pid))::int as n from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and query ilike '%capture%' and application_name <> 'psql'`;
  for (let n = 0; n < 10; n += 1) {
    await client.query('update orders set status = $1 where id % 10 = $2', [`r${n}`, n]).catch(() => {});
    await query(shoot).catch(() => {});
  }
  await projection.settled();
  expect(await diff()).toBe(0);
});

test('a worker whose connections go silent continues on new ones', async () => {
  const { url, capture, client, diff } = await openScene({
    build: sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])`,
  });
  const proxy = await startProxy(url);
  const behind = postgres(proxy.url, { max: 6 });
  onTestFinished(() => behind.stop().then(() => proxy.stop()));
  const projection = createCapture(behind, { entity: 'order', root: 'orders', via: VIA }).project({
    ...TARGET,
    build: sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])`,
  });
  const seen: string[] = [];
  const follower = createCapture(behind, { entity: 'followed', root: 'orders' }).follow({
    name: 'f',
    handler: async (changes) => void seen.push(...changes.map(({ key }) => key ?? '')),
  });
  await capture.apply();
  await projection.backfill();
  await follower.next();
  await run(projection, { timeout: '1s' });
  const following = follower.run({ timeout: '1s', poll: '50ms' });
  onTestFinished(() => following.stop());
  await client.query("update orders set status = 'before' where id = 1");
  await until('both work', async () => (await diff()) === 0 && seen.includes('1'));
  // New connections work; the open ones never receive anything again.
  proxy.silence();
  proxy.accept();
  await client.query("update orders set status = 'after' where id = 2");
  await until('both workers work again', async () => (await diff()) === 0 && seen.includes('2'));
});

test('reconcile finds rows that differ, and repairs them through the log', async () => {
  const { capture, projection, client, diff } = await openScene();
  await capture.apply();
  await projection.backfill();
  await client.query(
    "update order_search set status = 'forged' where id = 3; delete from order_search where id = 4; insert into order_search (id) values (4711)",
  );
  // Its change is in the log, so it is no drift.
  await client.query("update orders set status = 'changed' where id = 9");
  expect(await projection.reconcile({ repair: false, batch: 30 })).toEqual({
    checked: 101,
    drifted: 3,
    keys: ['3', '4', '4711'],
  });
  expect(await diff()).toBe(4);
  expect((await projection.reconcile()).drifted).toBe(3);
  await run(projection);
  await projection.settled();
  expect(await diff()).toBe(0);
  expect(await projection.reconcile()).toEqual({ checked: 100, drifted: 0, keys: [] });
});

test('a projection that is declared after apply installs itself; a second one has its own changes', async () => {
  const { capture, projection, client, diff, query } = await openScene();
  await capture.apply();
  const names = capture.project({
    into: 'order_name',
    columns: { name: 'text' },
    build: async (ids, tx) => (await build(ids, tx)).map((row) => ({ id: row['id'], name: row['customer'] })),
  });
  await names.backfill();
  await projection.backfill();
  await client.query("update customer set name = 'both' where id = 7");
  await run(projection);
  await projection.settled();
  expect(await diff()).toBe(0);
  await run(names);
  await names.settled();
  expect(await query("select count(*)::int as n from order_name where name = 'both'")).toEqual([{ n: 5 }]);
});

test('status and culprits list outstanding changes, failing entities, and the transactions that hold keys', async () => {
  const { engine, url, capture, projection, client } = await openScene();
  await capture.apply();
  const admin = createCaptureAdmin(engine);
  await client.query("update orders set status = 'x' where id < 4");
  const child = spawnChild('capture/worker.child.ts', [url], { PAWL_FAULT: 'capture.after_claim:stop' });
  await until('the worker is paused', () => child.stderr().includes('reached'));
  const [line] = await admin.status('order');
  expect(line).toMatchObject({
    name: 'order_search',
    guarantee: 'latest',
    outstanding: 3,
    failing: 0,
    sweepDone: null,
  });
  expect(line?.oldestMs).toBeGreaterThan(0);
  const culprit = await until('the transaction is listed', async () =>
    (await admin.culprits(100)).find(({ application }) => application === 'capture child'),
  );
  expect(culprit).toMatchObject({ holdsKeys: true, state: 'idle in transaction', pid: expect.any(Number) });
  await expect(admin.status('ordr')).rejects.toThrow(/did you mean "order"/);
  await child.kill();
  await run(projection);
  await projection.settled();
  expect(await admin.status()).toMatchObject([{ outstanding: 0, oldestMs: null }]);
});

test('a query makes the rows in the database: exactly, in sets, with the same promises', async () => {
  const { capture, client, diff, query, projection } = await openScene({
    build: sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await projection.backfill();
  expect(await diff()).toBe(0);
  await client.query(
    "update customer set name = 'Ümit' where id = 3; delete from orders where id = 50; update order_search set status = 'forged' where id = 60",
  );
  await run(projection);
  await projection.settled();
  expect(await diff()).toBe(1);
  expect(await projection.reconcile()).toEqual({ checked: 99, drifted: 1, keys: ['60'] });
  await projection.settled();
  expect(await diff()).toBe(0);
  // An entity for which the query fails is set aside alone.
  await client.query(
    "alter table order_search add check (status <> 'poison'); update orders set status = case when id = 7 then 'poison' else 'fine' end where id < 20",
  );
  await projection.settled();
  expect(await diff()).toBe(1);
  expect((await query('select key from pawl.capture_retry')).length).toBe(1);
});

test('projections and followers stop within 5 s though the database answers no more', async () => {
  const { url, client } = await openScene();
  const proxy = await startProxy(url);
  onTestFinished(() => proxy.stop());
  const engine = postgres(proxy.url, { max: 12, logger: recordLog(), stopTimeoutMs: 1_000 });
  const capture = createCapture(engine, { entity: 'order', root: 'orders', via: VIA });
  const projection = capture.project({ ...TARGET, build });
  const follower = capture.follow({ name: 'copy', handler: async () => {} });
  await capture.apply();
  const workers = [projection.run({ poll: '50ms' }), follower.run({ poll: '50ms' }), capture.run()];
  await Promise.all(workers.map(({ started }) => started));
  proxy.silence();
  await client.query("update orders set status = 'late' where id = 1");
  const late = [projection.run(), follower.run()];
  const since = awakeMs();
  await Promise.all([...workers, ...late].map((worker) => worker.stop()));
  const stoppedMs = awakeMs() - since;
  await engine.stop();
  // 3 s more for a busy machine.
  expect(stoppedMs).toBeLessThan(5_000 + 3_000);
  expect(awakeMs() - since).toBeLessThan(5_000 + 1_000 + 2_000 + 4_000);
});

test('a page of a comparison is looked up in the log by hash, and not key by key, whatever plan the server keeps', async () => {
  const { engine, client, sent } = await openCluster(20, { hasCitus: false });
  const { capture, projection } = projectDocs(engine, {});
  await capture.apply();
  await projection.backfill();
  await client.query("update doc_search set title = 'wrong' where id = 3");
  sent();
  expect(await projection.reconcile()).toMatchObject({ drifted: 1 });
  const [text] = sent().filter((each) => each.includes('capture.dirty_among'));
  await client.query(`set plan_cache_mode = force_generic_plan; prepare among as ${text}`);
  const { rows } = await client.query<{ 'QUERY PLAN': string }>("explain execute among (1, '{1,2}')");
  const plan = rows.map((row) => row['QUERY PLAN']).join('\n');
  expect(plan.match(/Filter: .*hashed SubPlan \d/g)).toHaveLength(2);
  expect(plan).not.toMatch(/ANY \(\$2/);
});

test('a comparison asks the log a few times, and not for each page, which of the entities that differ are dirty', async () => {
  const { engine, client, sent } = await openCluster(100, { hasCitus: false });
  const { capture, projection } = projectDocs(engine, {});
  await capture.apply();
  await projection.backfill();
  await client.query("update doc set title = 'later'; update doc_search set title = 'wrong' where id = 3");
  await client.query("delete from pawl.capture_dirty where key in ('3', '70')");
  sent();
  const drift = await projection.reconcile({ batch: 2, repair: false });
  expect(drift).toEqual({ checked: 100, drifted: 2, keys: ['3', '70'] });
  // For 2, 4, 8, 16, 32 and 38 of the 100 that differ.
  expect(sent().filter((each) => each.includes('capture.dirty_among'))).toHaveLength(6);
});

test('a back-fill goes on after a page that has lost a race', async () => {
  const { capture, projection, client, diff } = await openScene();
  await capture.apply();
  await client.query(`create sequence races;
    create function lose_race() returns trigger language plpgsql as $$ begin
      if nextval('public.races') = 3 then raise 'deadlock detected' using errcode = '40P01'; end if;
      return new;
    end $$;
    create trigger lose before insert on order_search for each row execute function lose_race()`);
  await projection.backfill({ batch: 25 });
  expect(await diff()).toBe(0);
});
