import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { ConnectionFailed, InvalidInput, NotSupported } from '../../src/base/errors.ts';
import { type CaptureOptions, createCapture, type Projection, Sql, sql } from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { startProxy } from '../support/proxy.ts';
import { startTestServer } from '../support/servers/embedded.ts';
import { testRole } from '../support/servers/role.ts';
import { EXPECTED, openScene, VIA } from './scene.ts';

test('plan gives the SQL that apply runs; applied again, there is nothing to do; detach leaves nothing', async () => {
  const { capture, client, query, dirty } = await openScene();
  const inventory = `select 'trigger', t.tgname::text from pg_trigger t union all select 'function', p.proname::text from pg_proc p
    union all select 'row', d.entity from pawl.capture_definition d union all select 'row', l.name from pawl.capture_line l
    union all select 'dirty', d.key from pawl.capture_dirty d order by 1, 2`;
  // Roles belong to the whole server: another test may create this one between two plans.
  await client.query(
    'do $$ begin create role pawl_capture nologin; exception when duplicate_object or unique_violation then null; end $$',
  );
  const before = await query(inventory);
  const plan = await capture.plan();
  expect(plan.sql).toMatch(/^begin;\n[^]*share row exclusive[^]*commit;\n$/);
  expect(await query(inventory)).toEqual(before);
  // The numbers of the capture and its consumers are new each time; everything else is the same text.
  const again = await capture.plan();
  expect(again.sql.replaceAll(/\d+/g, '#')).toBe(plan.sql.replaceAll(/\d+/g, '#'));
  await client.query(plan.sql);
  expect(await capture.verify()).toEqual([]);
  expect(await capture.plan()).toEqual({ differences: [], sql: '' });
  expect(await capture.apply()).toEqual([]);
  await client.query("update orders set status = 'x' where id = 1");
  await capture.detach();
  expect(await query(inventory)).toEqual(before);
  await capture.detach();
  await capture.apply();
  await client.query("update orders set status = 'x' where id = 1");
  expect(await dirty()).toEqual(['1']);
});

test('two databases of a new server may get their first capture at the same time', async () => {
  const server = await startTestServer({ fsync: 'off' });
  onTestFinished(() => server.stop());
  const engine = postgres(server.url, { max: 2 });
  onTestFinished(() => engine.stop());
  await engine.migrate();
  for (const text of ['create database other', 'create table root (id int primary key)'])
    await engine.session((session) => session.run(text));
  const other = new pg.Client({ connectionString: server.url.replace(/postgres$/, 'other') });
  await other.connect();
  onTestFinished(() => other.end());
  await other.query('begin; create role pawl_capture nologin');
  const capture = createCapture(engine, { entity: 'root', root: 'root' });
  const applying = capture.apply();
  await until('it waits', async () => {
    const { rows } = await other.query("select 1 from pg_stat_activity where wait_event = 'transactionid'");
    return rows.length > 0;
  });
  await other.query('commit');
  await applying;
  expect(await capture.verify()).toEqual([]);
});

test('verify finds every way in which a capture can be undone, and apply repairs it', async () => {
  const { capture, client } = await openScene();
  await capture.apply();
  const sabotage: Record<string, RegExp> = {
    'drop trigger pawl_capture_order_update on orders': /orders: update.*missing/,
    'alter table orders disable trigger pawl_capture_order_delete': /orders: delete.*always/,
    'alter table note_2025 disable trigger pawl_capture_order_insert': /note_2025: insert.*always/,
    'alter table order_line enable trigger pawl_capture_order_move': /order_line: move.*always/,
    'drop trigger pawl_capture_order_truncate on note_2026': /note_2026: truncate.*missing/,
    'alter function pawl.capture_order_0_move() reset search_path': /search_path/,
    'alter function pawl.capture_order_0_insert() set search_path = public': /settings of the session/,
    'alter function pawl.capture_order_1_update() security invoker': /runs as the role that writes/,
    'alter function pawl.capture_order_1_update() owner to current_user': /belongs to/,
    'grant execute on function pawl.capture_order_1_update() to public': /every role/,
    'grant select on pawl.capture_dirty to pawl_capture': /more than insert/,
    'revoke insert on pawl.capture_dirty from pawl_capture': /may not insert/,
    'alter sequence pawl.capture_dirty_id_seq cache 10': /CACHE/,
    [`drop trigger pawl_capture_order_move on order_line; create trigger pawl_capture_order_move after update on order_line for each row
      when (false) execute function pawl.capture_order_1_move(); alter table order_line enable always trigger pawl_capture_order_move`]:
      /order_line: move.*differs from the declaration/,
    [`drop trigger pawl_capture_order_delete on order_line; create trigger pawl_capture_order_delete after delete on order_line
      referencing old table as pawl_old for each statement when (pg_trigger_depth() > 5) execute function pawl.capture_order_1_delete();
      alter table order_line enable always trigger pawl_capture_order_delete`]:
      /order_line: delete.*differs from the declaration/,
    [`drop trigger pawl_capture_order_update on note; create trigger pawl_capture_order_update after update of body on note for each row
      execute function pawl.capture_order_2_update(); alter table note enable always trigger pawl_capture_order_update`]:
      /note: update.*differs from the declaration/,
    'create table note_2027 partition of note for values from (2027) to (2028)':
      /note_2027: was attached, detached or replaced/,
    'alter table note detach partition note_2027': /note_2027: was attached, detached or replaced/,
    'drop function pawl.capture_order_3_insert() cascade': /missing/,
    [`create or replace function pawl.capture_order_0_insert() returns trigger language plpgsql security definer
      set search_path = pg_catalog, pg_temp as 'begin return null; end'`]: /differs from the declaration/,
    'alter table order_search drop column notes cascade': /no column notes/,
    'drop index order_search_pawl_words': /missing/,
  };
  for (const [statement, problem] of Object.entries(sabotage)) {
    await client.query(statement);
    const told = (await capture.verify()).map((one) => `${one.object}: ${one.problem}`).join('\n');
    expect(told, statement).toMatch(problem);
    await capture.apply();
    expect(await capture.verify(), statement).toEqual([]);
  }
});

test('the condition of a trigger follows its column through a rename', async () => {
  const { capture, client, projection, diff } = await openScene({
    build: sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await projection.backfill();
  // The last step of a migration from int to bigint.
  await client.query(`alter table order_line add column order_id2 bigint; update order_line set order_id2 = order_id;
    begin; alter table order_line rename column order_id to order_id_old; alter table order_line rename column order_id2 to order_id; commit`);
  expect((await capture.verify()).map(({ object }) => object)).toContain('order_line: move');
  await client.query('update order_line set order_id = 12 where id = 10');
  await capture.apply();
  expect(await capture.verify()).toEqual([]);
  await client.query('update order_line set order_id = 14 where id = 13');
  await work(projection);
  expect(await diff()).toBe(0);
});

const HOLES: Record<string, readonly [hole: string, meanwhile: string]> = {
  'a trigger was disabled': [
    'alter table order_line disable trigger user',
    'update order_line set qty = 99 where order_id = 5; alter table order_line enable trigger user',
  ],
  'a function did nothing': [
    `create or replace function pawl.capture_order_0_update() returns trigger language plpgsql security definer
      set search_path = pg_catalog, pg_temp as 'begin return null; end'`,
    "update orders set status = 'unseen' where id = 5",
  ],
  'a partition was attached with rows': [
    "create table note_2027 (like note including all); insert into note_2027 values (9001, 5, 2027, 'attached')",
    'alter table note attach partition note_2027 for values from (2027) to (2028)',
  ],
  'a partition was detached': ['select 1', 'alter table note detach partition note_2026'],
  'a partition was dropped': ['select 1', 'drop table note_2025'],
  'a partition was truncated before the next apply()': [
    "create table note_2027 partition of note for values from (2027) to (2028); insert into note values (9001, 5, 2027, 'new')",
    'truncate note_2027',
  ],
  'another table replaced a captured one': [
    'create table swapped (like orders including all); insert into swapped select id, customer_id, $$swapped$$ from orders',
    'alter table orders rename to orders_old; alter table swapped rename to orders',
  ],
};

// Invariant C23.
test.each(Object.keys(HOLES))('apply() repairs the data, too: %s', async (what) => {
  const { capture, client, projection, diff, query } = await openScene({
    build: sql`${new Sql(EXPECTED)} where o.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await projection.backfill();
  const [hole = '', meanwhile = ''] = HOLES[what] ?? [];
  await client.query(hole);
  await work(projection);
  await client.query(meanwhile);
  await work(projection);
  expect(await diff()).toBeGreaterThan(0);
  expect(await capture.verify()).not.toEqual([]);
  await capture.apply();
  expect(await capture.verify()).toEqual([]);
  await work(projection);
  expect(await diff()).toBe(0);
  // Where no change was missed, no sweep starts.
  await capture.apply();
  expect(await query('select 1 from pawl.capture_dirty')).toEqual([]);
});

test('a second projection, or another declaration, misses no change: no sweep starts for it', async () => {
  const { capture, engine, client, query, projection } = await openScene();
  await capture.apply();
  await projection.backfill();
  capture.project({ into: 'second', columns: {}, build: async () => [] });
  await capture.apply();
  await client.query('alter table order_line drop column extra');
  const wider = createCapture(engine, {
    entity: 'order',
    root: 'orders',
    via: { ...VIA, note: 'order_id' },
    history: { orders: 'keys' },
  });
  expect(await wider.apply()).not.toEqual([]);
  expect(await query('select 1 from pawl.capture_dirty')).toEqual([]);
});

test('a target whose key or columns have another type is reported, and not rewritten', async () => {
  const { engine, client } = await openScene();
  await client.query(`create table narrow (id smallint primary key, status text, n int);
    create table wide (id numeric primary key, status varchar(9)); create table same (id bigint primary key, status varchar(9))`);
  const told = async (into: string, columns: Record<string, string>): Promise<string[]> => {
    const capture = createCapture(engine, { entity: 'order', root: 'orders' });
    capture.project({ into, columns, build: async () => [] });
    return (await capture.verify()).filter(({ kind }) => kind === 'target').map(({ problem }) => problem);
  };
  expect(await told('narrow', { status: 'text not null', n: 'bigint' })).toEqual([
    expect.stringMatching(/key id is of type smallint.*bigint/),
    expect.stringMatching(/column n is of type integer.*bigint/),
  ]);
  expect(await told('wide', { status: 'varchar(20)' })).toEqual([expect.stringMatching(/type numeric/)]);
  expect(await told('same', { status: 'character varying' })).toEqual([]);
});

async function work(projection: Projection): Promise<void> {
  await using worker = projection.run({ poll: '20ms' });
  await worker.started;
  await projection.settled();
}

describe('what cannot be captured is refused before anything is done', async () => {
  const cases: [string, Partial<CaptureOptions>, RegExp][] = [
    ['a table that does not exist', { root: 'order' }, /no table "order"/],
    ['a text that is no name', { root: 'a.b.c.d' }, /no name of a table|no table/],
    ['a column that does not exist', { via: { order_line: 'ordr_id' } }, /did you mean "order_id"/],
    ['rows without a key', { via: { order_line: 'order_id' } }, /nulls: 'ignore'/],
    ['a root whose key may be NULL', { root: 'order_line', key: 'order_id' }, /may be NULL/],
    ['a root with a primary key of several columns', { root: 'note' }, /primary key of several columns/],
    ['a view', { via: { pg_stat_activity: 'pid' } }, /belongs to the system/],
    ['a table of Pawl', { via: { 'pawl.queue_job': 'id' } }, /belongs to the system or to Pawl/],
    ['a key whose text may differ', { root: 'order_line', key: 'qty' }, /cannot be a key/],
    ['the same table twice', { via: { 'public.orders': 'id' } }, /the same table/],
    [
      'a link to a table that is not captured',
      { via: { customer: { column: 'id', to: 'other.customer_id' } } },
      /no column of a captured table/,
    ],
    ['a query with a mistake in it', { via: { customer: sql`select id from order where x` } }, /cannot be run/],
    ['a query that returns NULL', { via: { customer: sql`select null::bigint from changed` } }, /returns NULL/],
    [
      'a history of a column that does not exist',
      { history: { orders: { rows: 'both', columns: ['nothing'] } } },
      /no column "nothing"/,
    ],
  ];
  test('a bad declaration', async () => {
    const { engine, query, client } = await openScene();
    await client.query('insert into order_line (id, sku) values (999, $$s1$$)');
    for (const [what, options, message] of cases) {
      const refused = createCapture(engine, { entity: 'order', root: 'orders', ...options });
      await expect(refused.apply(), what).rejects.toThrow(message);
      await expect(refused.apply(), what).rejects.toThrow(InvalidInput);
    }
    expect(await query('select 1 from pawl.capture_definition')).toEqual([]);
    expect(() => createCapture(engine, { entity: 'No Name', root: 'orders' })).toThrow(InvalidInput);
    expect(() => createCapture(engine, { entity: 'order', root: 'orders', history: { item: 'keys' } })).toThrow(
      /not captured/,
    );
    await client.query('create table parent (id int primary key); create table child () inherits (parent)');
    await expect(createCapture(engine, { entity: 'p', root: 'parent' }).apply()).rejects.toThrow(NotSupported);
  });

  test('not a database that is away: that is told as it is, and is no difference', async () => {
    const { url } = await openScene();
    const proxy = await startProxy(url);
    onTestFinished(() => proxy.stop());
    const engine = postgres(proxy.url, { max: 2, logger: recordLog() });
    onTestFinished(() => engine.stop());
    const away = createCapture(engine, { entity: 'order', root: 'orders', via: VIA });
    await away.apply();
    proxy.refuse();
    for (const asked of [away.verify(), away.plan()]) {
      await expect(asked).rejects.toThrow(ConnectionFailed);
    }
  });

  test('a table of another role, and a target without the searched columns', async () => {
    const { engine, client, url, capture, query } = await openScene();
    const role = await testRole(url);
    await client.query(
      `grant usage on schema pawl to ${role.name}; grant select on all tables in schema pawl to ${role.name}`,
    );
    const user = postgres(role.url, { max: 1 });
    onTestFinished(() => user.stop());
    await expect(createCapture(user, { entity: 'order', root: 'orders', via: VIA }).apply()).rejects.toThrow(
      /belongs to another role/,
    );
    await client.query('create table bare (id bigint primary key)');
    const target = createCapture(engine, { entity: 'order', root: 'orders' });
    target.project({ into: 'bare', build: async () => [], text: ['words'] });
    await expect(target.apply()).rejects.toThrow(/no column words/);
    expect(await query('select 1 from pawl.capture_definition')).toEqual([]);
    expect(await capture.apply()).not.toEqual([]);
  });
});
