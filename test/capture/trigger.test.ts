import { spawnSync } from 'node:child_process';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { createCapture } from '../../src/capture/index.ts';
import { until } from '../support/eventually.ts';
import { spawnChild } from '../support/process.ts';
import { openScene } from './scene.ts';

// Invariants C1, C3.
test('whatever statement makes a committed change, its entities are captured', async () => {
  const { capture, client, dirty } = await openScene();
  await capture.apply();
  const noted = async (text: string): Promise<string[]> => {
    await client.query(text);
    return dirty();
  };
  expect(await noted('insert into orders (id, customer_id) values (201, 1), (202, 1)')).toEqual(['201', '202']);
  expect(await noted("update orders set status = 'paid' where id in (3, 4)")).toEqual(['3', '4']);
  expect(await noted('update orders set status = status where id < 0')).toEqual([]);
  expect(await noted('delete from order_line where order_id = 5')).toEqual(['5']);
  // Through a foreign key: the lines of the order are deleted with it.
  expect(await noted('delete from orders where id = 201')).toEqual(['201']);
  await client.query("insert into order_line (id, order_id, sku) values (900, 202, 's1')");
  await dirty();
  expect(await noted('delete from orders where id = 202')).toEqual(['202']);
  // Upsert, either way.
  const upsert =
    "insert into order_line (id, order_id, sku) values (1000, 7, 's1') on conflict (id) do update set order_id = 8";
  expect(await noted(upsert)).toEqual(['7']);
  expect(await noted(upsert)).toEqual(['7', '8']);
  const cte =
    'with gone as (delete from order_line where order_id = 9 returning *) update orders set status = $$x$$ where id = 10';
  expect(await noted(cte)).toEqual(['10', '9']);
  await client.query(
    `create function change() returns void language sql as 'update orders set status = ''y'' where id = 11'`,
  );
  expect(await noted('select change()')).toEqual(['11']);
  expect(await noted("do $$ begin update note set body = 'z' where order_id = 12; end $$")).toEqual(['12']);
  // A row that leads to entities through other tables is captured as a link, which is followed later.
  expect(await noted("update customer set name = 'new' where id = 3")).toEqual(['link:3']);
  expect(await noted("update item set title = 'new' where sku = 's4'")).toEqual(['link:s4']);
  // A foreign key passes the new name of an item on to the lines.
  expect(await noted("update item set sku = 's4b' where sku = 's4'")).toEqual(
    expect.arrayContaining(['link:s4', 'link:s4b', '4', '24']),
  );
  const [version] = await client.query('show server_version_num').then(({ rows }) => rows);
  if (Number(version.server_version_num) >= 150_000) {
    const merge = `merge into orders o using (values (13), (300)) v (id) on o.id = v.id
      when matched then update set status = 'm' when not matched then insert (id, customer_id) values (v.id, 1)`;
    expect(await noted(merge)).toEqual(['13', '300']);
  }
});

test('one index has links and keys: a claim takes the links of each source, up to the limit, and no key', async () => {
  const { capture, client, query } = await openScene();
  await capture.apply();
  await client.query('update customer set name = name; update item set title = title where sku in ($$s1$$, $$s2$$)');
  await client.query('update orders set status = status; truncate note');
  const taken =
    'select l.source, count(*)::int as n from pawl.capture_line c cross join lateral pawl.capture_take_links(c.id, 15) l';
  const rounds = [];
  for (let n = 0; n < 3; n += 1) {
    rounds.push((await query<{ source: number; n: number }>(`${taken} group by 1 order by 1`)).map((row) => row.n));
  }
  // First the whole table, customers, items; then the rest of the customers; then nothing.
  expect(rounds).toEqual([[1, 15, 2], [5], []]);
  expect(await query('select d.source, count(*)::int as n from pawl.capture_dirty d group by 1')).toEqual([
    { source: 0, n: 100 },
  ]);
  expect(
    await query(
      "select indexrelid::regclass::text as name from pg_index where indrelid = 'pawl.capture_dirty'::regclass",
    ),
  ).toEqual([{ name: 'pawl.capture_dirty_pkey' }]);
});

// Invariant C3.
test('changes by COPY and by psql are captured', async ({ skip }) => {
  const { url, capture, dirty } = await openScene();
  await capture.apply();
  const found = spawnSync('psql', [url, '-q', '-c', 'copy orders (id, customer_id) from stdin'], {
    input: '401\t1\n402\t2\n',
  });
  skip(found.error !== undefined, 'there is no psql');
  expect(found.stderr.toString()).toBe('');
  expect(await dirty()).toEqual(['401', '402']);
});

// Invariant C2.
test('changes that are rolled back are not captured: whole, to a savepoint, by an error, prepared', async () => {
  const { capture, client, connect, dirty, query } = await openScene();
  await capture.apply();
  await client.query("begin; update orders set status = 'x' where id = 1; rollback");
  expect(await dirty()).toEqual([]);
  await client.query(`begin; update orders set status = 'x' where id = 1; savepoint s; update orders set status = 'x' where id = 2;
    rollback to s; update orders set status = 'x' where id = 3; commit`);
  expect(await dirty()).toEqual(['1', '3']);
  await expect(client.query('update orders set customer_id = -1 where id = 4')).rejects.toThrow('foreign key');
  await expect(client.query('update orders set status = (1 / (id - 5))::text where id in (4, 5, 6)')).rejects.toThrow(
    'zero',
  );
  expect(await dirty()).toEqual([]);
  const other = await connect();
  await other.query('begin isolation level repeatable read; update orders set status = $$r$$ where id = 8');
  await client.query("update orders set status = 'first' where id = 9");
  await expect(other.query("update orders set status = 'second' where id = 9")).rejects.toThrow('serialize');
  await other.query('rollback');
  expect(await dirty()).toEqual(['9']);
  const [limit] = await query<{ setting: string }>(
    "select setting from pg_settings where name = 'max_prepared_transactions'",
  );
  if (limit?.setting !== '0') {
    await client.query("begin; update orders set status = 'x' where id = 7; prepare transaction 'capture'");
    await client.query("rollback prepared 'capture'");
    expect(await dirty()).toEqual([]);
  }
});

// Invariant C1.
test('the log has the committed changes of a killed writer, and no others', async () => {
  const { url, capture, query, dirty } = await openScene();
  await capture.apply();
  for (let round = 0; round < 3; round += 1) {
    const writer = spawnChild('capture/writer.child.ts', [url]);
    for (let n = 0; n < 10 + round; n += 1) await writer.message();
    await writer.kill();
  }
  // The server may still run the last statement of the writer.
  const busy =
    "select 1 from pg_stat_activity where application_name = 'capture writer' and datname = current_database()";
  await until('the server noticed', async () => (await query(busy)).length === 0);
  const changed = await query<{ key: string }>("select id::text as key from orders where status <> 'new' order by 1");
  expect(changed.length).toBeGreaterThan(5);
  expect(await dirty()).toEqual(changed.map(({ key }) => key).sort());
});

// Invariants C8, C9.
test('moving a child, and exchanging keys, captures both sides', async () => {
  const { capture, client, dirty } = await openScene();
  await capture.apply();
  await client.query('update order_line set order_id = 2 where id = 300');
  expect(await dirty()).toEqual(['1', '2']);
  await client.query('update order_line set order_id = null where id = 300');
  expect(await dirty()).toEqual(['2']);
  await client.query('update note set order_id = 50 where order_id = 51');
  expect(await dirty()).toEqual(['50', '51']);
  await client.query('insert into orders (id, customer_id) values (501, 1), (502, 2)');
  await client.query(
    'alter table orders drop constraint orders_pkey cascade; alter table orders add primary key (id) deferrable',
  );
  await dirty();
  await client.query('update orders set id = 1003 - id where id in (501, 502)');
  expect(await dirty()).toEqual(['501', '502']);
});

// Invariants C4, C5.
test('partitions written directly, attached and made later are captured', async () => {
  const { capture, client, dirty } = await openScene();
  await capture.apply();
  await client.query("insert into note_2025 values (901, 1, 2025, 'direct')");
  await client.query("update note_2026 set body = 'direct' where order_id = 2");
  expect(await dirty()).toEqual(['1', '2']);
  await client.query(`create table note_2027 partition of note for values from (2027) to (2028);
    create table late (like note including all); alter table note attach partition late for values from (2028) to (2029)`);
  await client.query("insert into note_2027 values (1, 3, 2027, 'x'); insert into late values (1, 4, 2028, 'x')");
  expect(await dirty()).toEqual(['3', '4']);
  await client.query('update note set year = 2026, id = 999 where year = 2028');
  expect(await dirty()).toEqual(['4']);
  // A truncate of only the new partitions would be missed: verify reports it, and apply repairs it.
  expect((await capture.verify()).map(({ object }) => object).sort()).toEqual([
    'late, note_2027',
    'late: truncate',
    'note_2027: truncate',
  ]);
  await capture.apply();
  expect(await capture.verify()).toEqual([]);
  await client.query('truncate note_2027');
  expect(await dirty()).toEqual(['whole']);
});

// Invariant C7.
test('TRUNCATE makes everything dirty, also through CASCADE', async () => {
  const { capture, client, dirty } = await openScene();
  await capture.apply();
  await client.query('truncate note');
  expect(await dirty()).toEqual(['whole']);
  await client.query('truncate orders cascade');
  expect(await dirty()).toEqual(['whole']);
});

// Invariant C6.
test('session_replication_role = replica does not keep changes from being captured', async () => {
  const { capture, client, dirty } = await openScene();
  await capture.apply();
  await client.query(
    "set session_replication_role = replica; update orders set status = 'r' where id = 1; update note set body = 'r' where order_id = 2",
  );
  expect(await dirty()).toEqual(['1', '2']);
});

// Invariant C5.
test('tables and columns may be renamed, added and changed under load, and no write fails', async () => {
  const { capture, client, dirty } = await openScene();
  await capture.apply();
  await client.query(
    "alter table order_line rename to line; alter table line add column color text default 'red'; update line set qty = 2 where order_id = 1",
  );
  expect(await dirty()).toEqual(['1']);
  await client.query('alter table line alter column qty type text; update line set qty = 3 where order_id = 2');
  expect(await dirty()).toEqual(['2']);
  // The column that leads to the order does not exist any more. Any order may have changed, so all are dirty.
  await client.query(
    'alter table line rename column order_id to order_ref; update line set color = $$blue$$ where id = 1',
  );
  expect(await dirty()).toEqual(['whole']);
  await client.query('alter table note rename column order_id to order_ref; update note set body = $$b$$ where id = 1');
  expect(await dirty()).toEqual(['whole']);
  expect((await capture.verify()).length).toBeGreaterThan(0);
});

// Invariant C5.
test('columns may have the names that a trigger uses itself, and still be renamed', async () => {
  const { engine, client, dirty } = await openScene();
  const names = ['found', 'written', 'tg_op', 'new', 'key', 'gone', 'r', 'k', 'pawl_new', 'order', 'Odd "one"'];
  const via: Record<string, { column: string; nulls: 'ignore' }> = {};
  for (const [index, name] of names.entries()) {
    await client.query(`create table named_${index} (${pg.escapeIdentifier(name)} bigint, n int default 0)`);
    via[`named_${index}`] = { column: name, nulls: 'ignore' };
  }
  const capture = createCapture(engine, { entity: 'named', root: 'orders', via });
  capture.project({ into: 'named', build: async () => [], columns: {} });
  capture.project({ into: 'named_too', build: async () => [], columns: {} });
  await capture.apply();
  for (const [index, name] of names.entries()) {
    const column = pg.escapeIdentifier(name);
    await client.query(
      `insert into named_${index} values (1), (2), (2), (null); update named_${index} set n = 1 where ${column} = 2`,
    );
    expect(await dirty(), name).toEqual(['1', '2']);
    await client.query(
      `update named_${index} set ${column} = 3 where ${column} = 1; delete from named_${index} where ${column} = 2`,
    );
    expect(await dirty(), name).toEqual(['1', '2', '3']);
    await client.query(
      `alter table named_${index} rename ${column} to other; update named_${index} set n = 2 where other = 3`,
    );
    expect(await dirty(), name).toEqual(['whole']);
  }
});

// Invariant C8.
test('two keys that a collation takes for equal are two keys', async () => {
  const { engine, client, dirty } = await openScene();
  await client.query(`create collation loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
    create table thing (id text primary key); create table part (id int, thing_id text collate loose);
    create table drawer (id int, thing_id text collate loose, year int) partition by list (year); create table drawer_1 partition of drawer for values in (1)`);
  const via = { part: { column: 'thing_id' }, drawer: { column: 'thing_id' } };
  const capture = createCapture(engine, { entity: 'thing', root: 'thing', via });
  capture.project({ into: 'things', build: async () => [], columns: {} });
  await capture.apply();
  await client.query("insert into part values (1, 'a'), (2, 'A'); insert into drawer values (3, 'b', 1), (4, 'B', 1)");
  expect(await dirty()).toEqual(['A', 'B', 'a', 'b']);
  await client.query(
    "update part set thing_id = 'C' where id = 1; update part set thing_id = 'c' where id = 1; update drawer set thing_id = 'B' where id = 3",
  );
  expect(await dirty()).toEqual(['B', 'C', 'a', 'b', 'c']);
});

// Invariant C17.
test('nothing in a row makes a write fail', async () => {
  const { engine, client, dirty, query } = await openScene();
  await client.query(`create domain code as text check (length(value) < 100);
    create table odd (id code primary key, j json, jb jsonb, n numeric, f float8, t text, b bytea, a text[], x xml, r int4range)`);
  const columns = ['j', 'jb', 'n', 'f', 't', 'b', 'a', 'r'];
  const odd = createCapture(engine, { entity: 'odd', root: 'odd', history: { odd: { rows: 'both', columns } } });
  await odd.apply();
  await client.query(
    `insert into odd values ('a', '{"x":"\\u0000"}', '{}', 'NaN', 'Infinity', repeat('x', 1000000), decode(repeat('00', 1000000), 'hex'), array[null, 'q"'], null, 'empty')`,
  );
  await client.query(
    `insert into odd select repeat('🦀', 90), null, null, (repeat('9', 130000) || '.1')::numeric, 'NaN', null, null, null, null, '[1,)'`,
  );
  await client.query('update odd set n = -n, t = repeat(t, 20), b = b || b; delete from odd');
  const kept = await query<{ n: number; longest: number }>(
    'select count(*)::int as n, max(length(after::text)) as longest from pawl.capture_change',
  );
  expect(kept[0]?.n).toBe(6);
  expect(kept[0]?.longest).toBeLessThan(400_000);
  expect(await dirty()).toEqual([]);
});

test('the copies of a bulk statement count for temp_file_limit, and those of a small one do not', async () => {
  const { capture, client, dirty } = await openScene();
  const bulk = "update orders set status = repeat('x', 1500)";
  await client.query("set temp_file_limit = '64kB'; set work_mem = '64kB'");
  await client.query(bulk);
  await capture.apply();
  await expect(client.query(bulk)).rejects.toThrow('temp_file_limit');
  expect(await dirty()).toEqual([]);
  await client.query(`${bulk} where id < 4`);
  expect(await dirty()).toEqual(['1', '2', '3']);
});

// Invariant C18.
test('writers of the same entities in opposite order wait for each other only where they did before', async () => {
  const { capture, client, connect } = await openScene();
  await capture.apply();
  const other = await connect();
  await client.query('begin; update order_line set qty = 5 where id = 1');
  await other.query('begin; update order_line set qty = 5 where id = 2');
  // Each writer has changed a line of the same order: neither has to wait.
  await client.query("update note set body = 'a' where order_id = 3");
  await other.query('update order_line set qty = 6 where id = 102');
  await client.query('update order_line set qty = 6 where id = 101');
  await other.query('commit');
  await client.query('commit');
});

// Invariant C20.
test('an unprivileged writer can neither read, change nor empty the log, nor make its owner run anything', async () => {
  const { capture, client, connect, dirty, database } = await openScene();
  await capture.apply();
  const role = `${database.name}_app`;
  await client.query(`create role "${role}"; grant usage on schema public to "${role}"; grant usage, create on schema public to "${role}";
    grant select, insert, update, delete on all tables in schema public to "${role}"; grant usage on schema pawl to "${role}"`);
  onTestFinished(() =>
    client.query(`reset role; drop owned by "${role}"; drop role "${role}"`).then(
      () => {},
      () => {},
    ),
  );
  const app = await connect();
  await app.query(`set role "${role}"`);
  for (const text of [
    'select * from pawl.capture_dirty',
    'delete from pawl.capture_dirty',
    'truncate pawl.capture_dirty',
    "insert into pawl.capture_dirty (line, source, key) values (1, 0, '1')",
    'select * from pawl.capture_change',
    'alter table pawl.capture_dirty disable trigger all',
    'select pawl.capture_order_0_insert()',
    'create trigger mine after insert on item for each statement execute function pawl.capture_order_0_insert()',
  ]) {
    await expect(app.query(text), text).rejects.toThrow(
      /permission denied|must be owner|can only be called as trigger/,
    );
  }
  // Functions and operators that this writer made, in the search path before the system's: they would run as the owner of the
  // trigger's function.
  await app.query(`create function public.text(bigint) returns text language plpgsql as $$ begin raise exception 'run as %', current_user; end $$;
    create temp table capture_dirty (line int, source int, key text); create temp table pg_attribute (attname text);
    set search_path = pg_temp, public, pg_catalog`);
  await app.query("update public.orders set status = 'mine' where id = 1");
  await app.query('reset search_path');
  expect(await dirty()).toEqual(['1']);
  expect((await app.query('select count(*)::int as n from pg_temp.capture_dirty')).rows).toEqual([{ n: 0 }]);
});
