import { expect, test } from 'vitest';
import { createCapture, sql } from '../../../src/capture/index.ts';
import { until } from '../../support/eventually.ts';
import { openWorld } from './world.ts';

// Links that lead nowhere, or by another way of writing a key.

test('a link that cannot be followed stops no other change, and counts as a change of everything', async () => {
  const { engine, query } = await openWorld(`
    create table root (id bigint primary key, word text);
    create table note (id int primary key, ref text, body text);
    insert into root select i, 'old' from generate_series(1, 50) i;
    insert into note select i, i::text, 'old' from generate_series(1, 50) i`);
  const capture = createCapture(engine, {
    entity: 'root',
    root: 'root',
    via: { note: { column: 'ref', keys: sql`select c.ref::bigint from changed c` } },
  });
  const projection = capture.project({
    into: 'projected',
    columns: { word: 'text', body: 'text' },
    build: sql`select r.id, r.word, (select n.body from note n where n.ref = r.id::text) as body
      from root r where r.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await projection.backfill();
  await query(`update note set body = 'new'; insert into note values (51, 'no number', '')`);
  await query(`update root set word = 'new' where id = 1; alter table root disable trigger all`);
  await query(`update root set word = 'not captured' where id = 2`);
  await using worker = projection.run();
  await projection.settled();
  expect(await query('select id::int, word, body from projected where id <= 3 order by id')).toEqual([
    { id: 1, word: 'new', body: 'new' },
    { id: 2, word: 'not captured', body: 'new' },
    { id: 3, word: 'old', body: 'new' },
  ]);
  expect(worker.problem).toBeUndefined();
});

test('if a link can never be followed, changes of entities are projected anyway', async () => {
  const { engine, query } = await openWorld(`
    create table root (id bigint primary key, word text);
    create table note (id int primary key);
    create table way (note int, root bigint);
    insert into root values (1, 'old')`);
  const capture = createCapture(engine, {
    entity: 'root',
    root: 'root',
    via: { note: sql`select w.root from way w join changed c on c.id = w.note` },
  });
  const projection = capture.project({
    into: 'projected',
    columns: { word: 'text' },
    build: sql`select id, word from root where id = any ($1::bigint[])`,
  });
  await capture.apply();
  await projection.backfill();
  await query(`drop table way; insert into note values (1); update root set word = 'new'`);
  await using worker = projection.run();
  const projected = async (): Promise<boolean> => (await query("select from projected where word = 'new'")).length > 0;
  await until('the entity is projected', projected);
  await until('the link is reported', () => Promise.resolve(worker.problem?.includes('way') === true));
});

test('a key that is written in another way in a linked table, as citext allows, leads to its entity', async () => {
  const { engine, query } = await openWorld(`
    create extension citext;
    create table root (id citext primary key);
    create table line (id int primary key, root citext references root, n int);
    insert into root values ('Abc'), ('x');
    insert into line values (1, 'ABC', 5)`);
  const capture = createCapture(engine, {
    entity: 'root',
    root: 'root',
    via: { line: 'root' },
    history: { line: 'keys' },
  });
  const projection = capture.project({
    into: 'projected',
    columns: { n: 'int' },
    build: sql`select r.id, (select l.n from line l where l.root = r.id) as n from root r where r.id = any ($1::citext[])`,
  });
  await capture.apply();
  await projection.backfill();
  await query('update line set n = 7');
  await using _worker = projection.run();
  await projection.settled();
  expect(await query('select id, n from projected order by id')).toEqual([
    { id: 'Abc', n: 7 },
    { id: 'x', n: null },
  ]);
  expect((await capture.history({ key: 'ABC' })).map(({ table }) => table)).toEqual(['line']);
});

test('reconcile does not count what a sweep has not come to yet; a TRUNCATE next to the sweep does not begin it anew', async () => {
  const { engine, query } = await openWorld(`
    create table root (id bigint primary key);
    create table line (id int primary key, root bigint);
    insert into root select i from generate_series(1, 40) i;
    insert into line select i, i from generate_series(1, 40) i`);
  const capture = createCapture(engine, {
    entity: 'root',
    root: 'root',
    via: { line: { column: 'root', nulls: 'ignore' } },
  });
  let paused = Promise.resolve();
  const order: string[] = [];
  const projection = capture.project({
    into: 'projected',
    columns: { n: 'int' },
    build: async (ids, tx) => {
      order.push(ids.join());
      await paused;
      const made = await tx.client.query({
        text: `select r.id, (select count(*)::int from line l where l.root = r.id) as n from root r where r.id = any ($1::bigint[])`,
        values: [ids],
      });
      return Array.isArray(made) ? [] : (made.rows as Record<string, unknown>[]);
    },
  });
  await capture.apply();
  await projection.backfill();
  let go = (): void => {};
  paused = new Promise((resolve) => {
    go = resolve;
  });
  order.length = 0;
  await query('truncate line');
  await using _worker = projection.run({ batch: 10, timeout: '1h' });
  await until('the sweep has begun', () => Promise.resolve(order.length > 0));
  expect(await query("select phase from pawl.capture_sweep where phase <> 'done'")).toHaveLength(1);
  paused = Promise.resolve();
  const reconciled = projection.reconcile({ repair: false });
  expect(await reconciled).toMatchObject({ drifted: 0 });
  await query('truncate line');
  go();
  await projection.settled();
  expect(await query('select from projected where n > 0')).toEqual([]);
});

test('an entity that cannot be projected is set aside at once, however many changes of another one come before its own', async () => {
  const { engine, query } = await openWorld(
    `create table root (id bigint primary key, n int); insert into root select i, 1 from generate_series(1, 9) i`,
  );
  const capture = createCapture(engine, { entity: 'root', root: 'root' });
  let calls = 0;
  const projection = capture.project({
    into: 'projected',
    columns: { n: 'int' },
    build: async (ids) => {
      calls += 1;
      if (ids.includes('7')) throw new Error('not this one');
      return ids.map((id) => ({ id, n: 2 }));
    },
  });
  await capture.apply();
  await query('do $$ begin for i in 1..300 loop update root set n = i where id = 1; end loop; end $$');
  await query('update root set n = 2 where id in (7, 8)');
  await using _worker = projection.run({ batch: 100 });
  await projection.settled();
  expect(await query('select id::int from projected order by id')).toEqual([{ id: 1 }, { id: 8 }]);
  expect(await query('select key from pawl.capture_retry')).toEqual([{ key: '7' }]);
  expect(calls).toBeLessThan(8);
});
