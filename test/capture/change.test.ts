import { expect, onTestFinished, test } from 'vitest';
import { Conflict, InvalidInput, LockNotAvailable } from '../../src/base/errors.ts';
import { faults } from '../../src/base/fault.ts';
import { type Capture, type CapturedChange, createCapture, sql } from '../../src/capture/index.ts';
import { maintainLogPartitions } from '../../src/capture/postgres/log-partitions.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';
import { openScene, type Scene, VIA } from './scene.ts';

const CANARY = 'canary-4711-secret';

/** Declares another capture, with a history; the scene's capture has none. */
async function withHistory(scene: Scene): Promise<Capture> {
  await scene.client.query('alter table orders add column secret text');
  const capture = createCapture(scene.engine, {
    entity: 'audited',
    root: 'orders',
    via: { order_line: { column: 'order_id', nulls: 'ignore' }, note: { column: 'order_id', nulls: 'ignore' } },
    history: {
      orders: { rows: 'both', columns: ['status', 'customer_id'] },
      order_line: { rows: 'after', columns: ['sku', 'qty'] },
      note: 'keys',
    },
  });
  await capture.apply();
  return capture;
}

test('words of a history are found in values as they are, and not in the names of columns or the marks of JSON', async () => {
  const scene = await openScene();
  const capture = await withHistory(scene);
  await scene.client.query('update orders set status = $1 where id = 42', ['say "hi" \\ \n now']);
  const found = async (words: string): Promise<number> => (await capture.history({ words })).length;
  expect(await found('paid')).toBe(0);
  expect(await found('status')).toBe(0);
  expect(await found(' : ')).toBe(0);
  expect(await found('Say "HI" \\ \n now')).toBe(1);
});

test('the history says who changed what of an entity, when and why', async () => {
  const scene = await openScene();
  const capture = await withHistory(scene);
  await scene.client.query(`begin; select set_config('pawl.actor', 'anna', true), set_config('pawl.reason', 'paid', true);
    update orders set status = 'paid' where id = 42; update order_line set qty = 7 where id = 41; commit`);
  await scene.client.query(
    'update order_line set order_id = 43 where id = 41; delete from note where order_id = 42; delete from order_line where id = 141',
  );
  const found = await capture.history({ key: 42 });
  expect(found.map(({ table, op, key, oldKey }) => [table, op, key, oldKey])).toEqual([
    ['order_line', 'delete', '42', null],
    ['note', 'delete', '42', null],
    ['order_line', 'update', '43', '42'],
    ['order_line', 'update', '42', null],
    ['orders', 'update', '42', null],
  ]);
  expect(found[4]).toMatchObject({
    actor: 'anna',
    reason: 'paid',
    before: { status: 'new', customer_id: '3' },
    after: { status: 'paid', customer_id: '3' },
    dbUser: expect.any(String),
  });
  expect(found[0]).toMatchObject({ actor: null, before: { sku: 's2', qty: '1' }, after: null });
  expect(found[1]).toMatchObject({ before: null, after: null });
  expect(found.every(({ at }) => Math.abs(Date.now() - at.getTime()) < 60_000)).toBe(true);
  expect((await capture.history({ words: 'paid' })).map(({ key }) => key)).toEqual(['42']);
  expect((await capture.history({ actor: 'anna', table: 'order_line' })).length).toBe(1);
  expect((await capture.history({ key: 42, before: found[1]?.id ?? '', limit: 2 })).map(({ id }) => id)).toEqual([
    found[2]?.id,
    found[3]?.id,
  ]);
  await expect(capture.history({ table: 'customer' })).rejects.toThrow(/not captured/);
});

// Invariant C19.
test('a column that is not listed is stored nowhere: not in the log, and not in error messages', async () => {
  const scene = await openScene();
  const capture = await withHistory(scene);
  const { client, query } = scene;
  await client.query('update orders set secret = $1, status = $2 where id < 10', [CANARY, 'x']);
  await client.query('delete from orders where id = 5');
  expect((await capture.history({ limit: 1000 })).length).toBeGreaterThan(9);
  // The database also stores the error of a row that cannot be projected, without the values of the row.
  const found = capture.project({
    into: 'audited_search',
    columns: { status: 'text' },
    build: sql`select o.id, o.status from orders o where o.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await client.query(
    `alter table audited_search add check (status <> 'x'); update orders set secret = '${CANARY}' where id = 3`,
  );
  await using worker = found.run();
  await worker.started;
  await until('it failed', async () => (await query('select 1 from pawl.capture_retry')).length > 0);
  const tables = await query<{ name: string }>(
    "select c.oid::regclass::text as name from pg_class c where c.relnamespace = 'pawl'::regnamespace and c.relkind in ('r', 'p')",
  );
  expect(tables.length).toBeGreaterThan(10);
  for (const { name } of tables) {
    expect(await query(`select 1 from ${name} t where t::text like '%${CANARY}%'`), name).toEqual([]);
  }
});

// Invariant C22.
test('months are made ahead, and dropped whole, but none that a follower has not received in full', async () => {
  const scene = await openScene();
  const capture = await withHistory(scene);
  const { client, query } = scene;
  const follower = capture.follow({ name: 'copy', handler: async () => {} });
  await capture.apply();
  await client.query(
    `create table pawl.capture_change_202001 partition of pawl.capture_change for values from ('2020-01-01') to ('2020-02-01')`,
  );
  await client.query(`insert into pawl.capture_change (at, capture, source, op, key)
    select '2020-01-15', d.id, 0, 'update', '1' from pawl.capture_definition d where d.entity = 'audited'`);
  const there = "select 1 from pg_class where relname = 'capture_change_202001'";
  expect(await capture.prune({ keep: '365d' })).toEqual([]);
  expect((await query(there)).length).toBe(1);
  while ((await follower.next()) > 0);
  expect(await capture.prune({ keep: '365d' })).toEqual(['capture_change_202001']);
  expect(await query(there)).toEqual([]);
  const ahead = await query<{ n: number }>(
    "select count(*)::int as n from pg_inherits where inhparent = 'pawl.capture_change'::regclass",
  );
  expect(ahead[0]?.n).toBe(4);
});

test('workers make and drop months as the captures declare, and only where all of them agree', async () => {
  const { engine, client, query } = await openScene();
  const make = (entity: string, keep?: '30d' | '400d'): Capture =>
    createCapture(engine, { entity, root: 'orders', history: { orders: 'keys' }, ...(keep ? { keep } : {}) });
  const short = make('short', '30d');
  await short.apply();
  await make('long', '400d').apply();
  await make('ever').apply();
  const old = async (month: string, ...entities: string[]): Promise<void> => {
    await client.query(`create table pawl.capture_change_${month} partition of pawl.capture_change
      for values from (to_date('${month}', 'YYYYMM')) to (to_date('${month}', 'YYYYMM') + interval '1 month')`);
    await client.query(
      `insert into pawl.capture_change (at, capture, source, op, key)
      select to_date('${month}', 'YYYYMM') + interval '3 days', d.id, 0, 'update', '1' from pawl.capture_definition d where d.entity = any ($1)`,
      [entities],
    );
  };
  await old('202001', 'short');
  await old('202002', 'short', 'long');
  await old('202003', 'short', 'ever');
  await client.query(
    'drop table pawl.capture_change_' +
      new Date(Date.now() + 40 * 86_400_000).toISOString().slice(0, 7).replace('-', ''),
  );
  const projection = short.project({ into: 'short', columns: {}, build: async () => [] });
  await using worker = projection.run();
  await worker.started;
  const months = (): Promise<{ name: string }[]> =>
    query<{ name: string }>(
      "select right(inhrelid::regclass::text, 6) as name from pg_inherits where inhparent = 'pawl.capture_change'::regclass and inhrelid::regclass::text ~ '\\d$' order by 1",
    );
  await until('months are made and dropped', async () => (await months()).length === 4);
  expect((await months())[0]).toEqual({ name: '202003' });
  expect(() => createCapture(engine, { entity: 'x', root: 'orders', keep: '1h' })).toThrow(InvalidInput);
});

// Invariant C22.
test('while a month is dropped, a writer waits no longer than one try takes, even if a transaction reads the log for long', async () => {
  const scene = await openScene();
  const capture = await withHistory(scene);
  const { client, connect, engine } = scene;
  await client.query(
    `create table pawl.capture_change_202001 partition of pawl.capture_change for values from ('2020-01-01') to ('2020-02-01')`,
  );
  await client.query(`insert into pawl.capture_change (at, capture, source, op, key)
    select '2020-01-15', d.id, 0, 'update', '1' from pawl.capture_definition d where d.entity = 'audited'`);
  const reader = await connect();
  await reader.query('begin; select count(*) from pawl.capture_change');
  // It gives up after some tries, which may come before two of them were seen.
  const prune = (): Promise<readonly string[]> =>
    capture.prune({ keep: '365d' }).catch((error: unknown) => {
      if (error instanceof LockNotAvailable) return prune();
      throw error;
    });
  const pruning = prune();
  const writer = await connect();
  // A writer that had to wait for the reader would fail. A try is 20 ms long, and as long as the machine stands still.
  await writer.query("set lock_timeout = '20s'");
  let isOver = false;
  const waiting = client.query(TWO_TRIES).then(() => {
    isOver = true;
  });
  for (let n = 0; !isOver; n += 1) await writer.query('update orders set status = $1 where id = 1', [`s${n}`]);
  await waiting;
  await reader.query('commit');
  expect(await pruning).toEqual(['capture_change_202001']);
  expect(await maintainLogPartitions(engine)).toEqual([]);
});

/** Waits in the server, which looks more often than a test can, until somebody has tried to lock the log, given up, and tried again. */
const TRIED = `exists (select from pg_locks where mode = 'AccessExclusiveLock' and relation = 'pawl.capture_change'::regclass
  and database = (select oid from pg_database where datname = current_database()))`;
const TWO_TRIES = `do $$ begin
  while not ${TRIED} loop perform pg_sleep(0.004); end loop;
  while ${TRIED} loop perform pg_sleep(0.004); end loop;
  while not ${TRIED} loop perform pg_sleep(0.004); end loop;
end $$`;

interface FollowerScene {
  readonly scene: Scene;
  readonly seen: CapturedChange[];
  readonly next: () => Promise<number>;
  readonly capture: Capture;
  readonly rebase: () => Promise<number>;
}

async function follow(): Promise<FollowerScene> {
  const scene = await openScene();
  const seen: CapturedChange[] = [];
  const capture = createCapture(scene.engine, {
    entity: 'followed',
    root: 'orders',
    history: { orders: { rows: 'after', columns: ['status'] } },
  });
  const follower = capture.follow({ name: 'copy', handler: async (changes) => void seen.push(...changes) });
  await capture.apply();
  return { scene, seen, capture, next: () => follower.next({ batch: 3 }), rebase: () => follower.rebase() };
}

// Invariant C10.
test('every change is delivered once, and those of a row in order, even if a transaction commits late', async () => {
  const { scene, seen, next } = await follow();
  const { client, connect } = scene;
  const late = await connect();
  await late.query("begin; update orders set status = 'late' where id = 1");
  const rounds = LONG ? 1000 : 30;
  for (let n = 0; n < rounds; n += 1) {
    await client.query(
      'begin; update orders set status = $$a$$ where id = 2; savepoint s; update orders set status = $$never$$ where id = 3; rollback to s',
    );
    await client.query(`savepoint t; update orders set status = 'r${n}' where id = 4; release t; commit`);
    await next();
  }
  // This transaction waits for the late one. Its change has to come after that, although it began earlier and has a lower
  // transaction number.
  const waiting = await connect();
  await waiting.query("begin; update orders set status = 'first' where id = 50");
  const blocked = waiting.query("update orders set status = 'after late' where id = 1");
  await until(
    'it waits',
    async () =>
      (
        await scene.query(
          "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
        )
      ).length > 0,
  );
  await late.query('commit');
  await blocked;
  await waiting.query('commit');
  while ((await next()) > 0);
  expect(seen.length).toBe(2 * rounds + 3);
  expect(new Set(seen.map(({ id }) => id)).size).toBe(seen.length);
  expect(seen.filter(({ key }) => key === '4').map(({ after }) => after?.['status'])).toEqual(
    Array.from({ length: rounds }, (_, n) => `r${n}`),
  );
  expect(seen.filter(({ key }) => key === '1').map(({ after }) => after?.['status'])).toEqual(['late', 'after late']);
  expect(seen.some(({ key }) => key === '3')).toBe(false);
});

// Invariant C11.
test('a transaction that stays open anywhere does not delay changes of others', async () => {
  const { scene, seen, next } = await follow();
  const idle = await scene.connect();
  await idle.query('begin; create table elsewhere (id int); insert into elsewhere values (1)');
  await scene.client.query("update orders set status = 'now' where id = 9");
  while ((await next()) > 0);
  expect(seen.map(({ key }) => key)).toEqual(['9']);
  await idle.query("update orders set status = 'then' where id = 10; commit");
  while ((await next()) > 0);
  expect(seen.map(({ key }) => key)).toEqual(['9', '10']);
});

test('a handler that fails receives the same changes again, and its writes are rolled back', async () => {
  const scene = await openScene();
  const capture = createCapture(scene.engine, { entity: 'followed', root: 'orders' });
  const follower = capture.follow({
    name: 'copy',
    // The handler writes to a captured table, too: these changes come in the next batch.
    handler: async (changes, tx) => {
      const mine = changes.filter(({ key }) => Number(key) < 1000);
      for (const { key } of mine) {
        await tx.client.query({
          text: 'insert into orders (id, customer_id) values ($1, 1)',
          values: [Number(key) + 1000],
        });
      }
    },
  });
  await capture.apply();
  await scene.client.query("update orders set status = 'x' where id in (1, 2)");
  onTestFinished(faults.arm('capture.after_handler', 'throw', { occurrence: 1 }));
  await expect(follower.next()).rejects.toThrow('fault');
  expect(await scene.query('select 1 from orders where id > 1000')).toEqual([]);
  expect(await follower.next()).toBe(2);
  expect(await follower.next()).toBe(2);
  expect(await follower.next()).toBe(0);
  expect((await scene.query('select 1 from orders where id > 1000')).length).toBe(2);
});

test('two processes share a follower: one at a time receives changes, and none comes twice', async () => {
  const scene = await openScene();
  const seen: string[] = [];
  const make = (): Capture => createCapture(scene.engine, { entity: 'followed', root: 'orders' });
  const handler = async (changes: readonly CapturedChange[]): Promise<void> =>
    void seen.push(...changes.map(({ id }) => id));
  const followers = [make(), make()].map((capture) => ({
    capture,
    follower: capture.follow({ name: 'copy', handler }),
  }));
  await followers[0]?.capture.apply();
  const running = followers.map(({ follower }) => follower.run({ poll: '20ms', batch: 7 }));
  onTestFinished(() => Promise.all(running.map((loop) => loop.stop())).then(() => {}));
  for (let n = 0; n < 30; n += 1)
    await scene.client.query('update orders set status = $1 where id % 10 = $2', [`s${n}`, n % 10]);
  await until('all changes arrive', () => seen.length >= 300);
  expect(new Set(seen).size).toBe(300);
  expect(seen.length).toBe(300);
});

// Invariant C21.
test('a log that was restored into a cluster with lower transaction numbers is refused, and the error says what to do', async () => {
  const { scene, seen, next, rebase } = await follow();
  const { client } = scene;
  await client.query("update orders set status = 'had' where id = 1");
  while ((await next()) > 0);
  await client.query("update orders set status = 'missed' where id = 2");
  // The numbers that a dump of a cluster with more transactions would have.
  await client.query(`update pawl.capture_change set xid = (xid::text::bigint + 1000000000)::text::xid8;
    update pawl.capture_line set seen = format('%s:%s:', pg_snapshot_xmax(seen)::text::bigint - 1 + 1000000000, pg_snapshot_xmax(seen)::text::bigint - 1 + 1000000000)::pg_snapshot where guarantee = 'ordered'`);
  await expect(next()).rejects.toThrow(Conflict);
  await expect(next()).rejects.toThrow(/rebase/);
  expect(await rebase()).toBe(1);
  await client.query("update orders set status = 'new' where id = 3");
  while ((await next()) > 0);
  expect(seen.map(({ after }) => after?.['status'])).toEqual(['had', 'missed', 'new']);
});

test('a table with a history is captured on every path, like one without', async () => {
  const scene = await openScene();
  const capture = createCapture(scene.engine, {
    entity: 'order2',
    root: 'orders',
    via: VIA,
    history: { order_line: 'keys' },
  });
  const projection = capture.project({ into: 'other', columns: {}, build: async () => [] });
  await capture.apply();
  await projection.backfill();
  await scene.client.query('update order_line set order_id = 2 where id = 300; truncate note');
  expect(await scene.dirty()).toEqual(['1', '2', 'whole']);
  expect(await capture.verify()).toEqual([]);
});
