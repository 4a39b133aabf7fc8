import { expect, test } from 'vitest';
import { type Capture, createCapture, type Projection, sql } from '../../../src/capture/index.ts';
import { openWorld } from './world.ts';

// What triggers must bear: columns of any kind, whose types change under them, in sessions that stay open.

function projectIds(capture: Capture): Projection {
  return capture.project({
    into: 'projected',
    columns: { word: 'text' },
    build: sql`select id, word from root where id = any ($1::bigint[])`,
  });
}

test('a session that stays open goes on writing after another one has changed the type of a column with a history', async () => {
  const { engine, query, elsewhere } = await openWorld(
    `create table root (id bigint primary key, n int); insert into root values (1, 1)`,
  );
  const capture = createCapture(engine, {
    entity: 'root',
    root: 'root',
    history: { root: { rows: 'both', columns: ['n'] } },
  });
  await capture.apply();
  await query('update root set n = 2');
  await elsewhere('alter table root alter column n type bigint');
  await query('update root set n = 5000000000');
  await elsewhere('alter table root rename to other');
  await query('update other set n = 4');
  const history = await capture.history({});
  expect(history.map(({ after }) => after?.['n'])).toEqual(['4', '5000000000', '2']);
});

test('a session that stays open goes on writing after the type of a key in a partitioned table has changed', async () => {
  const { engine, query, elsewhere } = await openWorld(`
    create table root (id bigint primary key, word text);
    create table part (id int primary key, root_id int) partition by range (id);
    create table part_1 partition of part for values from (0) to (100);
    insert into root values (1, 'a'), (2, 'b');
    insert into part values (1, 1)`);
  const capture = createCapture(engine, { entity: 'root', root: 'root', via: { part: 'root_id' } });
  projectIds(capture);
  await capture.apply();
  await query('update part set root_id = 2');
  await elsewhere('alter table part alter column root_id type bigint');
  await query('update part set root_id = 1');
  expect(await query('select key from pawl.capture_dirty order by id')).toEqual(
    ['2', '1', '1', '2'].map((key) => ({ key })),
  );
});

test('a link that is longer than an index takes makes no write fail, and the history finds it', async () => {
  const { engine, query } = await openWorld(
    `create table root (id bigint primary key, word text); create table note (id int primary key, ref text)`,
  );
  const keys = sql`select r.id from root r join changed c on c.ref = r.word`;
  const capture = createCapture(engine, {
    entity: 'root',
    root: 'root',
    via: { note: { column: 'ref', keys } },
    history: { note: 'keys' },
  });
  await capture.apply();
  const long = `(select string_agg(md5(i::text), '') from generate_series(1, 400) i)`;
  await query(`insert into note select 1, ${long}`);
  await query(`update note set ref = ref || 'x'`);
  const [ref] = await query<{ ref: string }>('select ref from note');
  expect((await capture.history({ table: 'note', key: ref?.ref ?? '' })).map(({ op }) => op)).toEqual(['update']);
  const before = ref?.ref.slice(0, -1) ?? '';
  expect((await capture.history({ table: 'note', key: before })).map(({ op }) => op)).toEqual(['update', 'insert']);
});

test('a change by a statement on a table from which the captured one inherits is captured', async () => {
  const { engine, query } = await openWorld(`
    create table base (id bigint, word text);
    create table root (primary key (id)) inherits (base);
    insert into root values (1, 'a'), (2, 'b')`);
  const capture = createCapture(engine, { entity: 'root', root: 'root' });
  projectIds(capture);
  await capture.apply();
  await query(`update base set word = 'c' where id = 1`);
  await query('delete from base where id = 2');
  expect(await query('select key from pawl.capture_dirty order by id')).toEqual([{ key: '1' }, { key: '2' }]);
});

test('a captured table that gets a parent is told by verify, and apply mends it and what was missed', async () => {
  const { engine, query } = await openWorld(`
    create table base (id bigint, word text);
    create table root (id bigint primary key, word text);
    insert into root values (1, 'a')`);
  const capture = createCapture(engine, { entity: 'root', root: 'root' });
  const projection = projectIds(capture);
  await capture.apply();
  await projection.backfill();
  await query('alter table root inherit base');
  await query(`update base set word = 'missed'`);
  expect(await capture.verify()).not.toEqual([]);
  await capture.apply();
  expect(await capture.verify()).toEqual([]);
  await using _worker = projection.run();
  await projection.settled();
  expect(await query('select word from projected')).toEqual([{ word: 'missed' }]);
  await query(`update base set word = 'seen'`);
  await projection.settled();
  expect(await query('select word from projected')).toEqual([{ word: 'seen' }]);
});

test('a virtual generated column, which no trigger sees, is refused as a key and in a history', async ({ skip }) => {
  const { engine, query, server } = await openWorld('create table root (id bigint primary key, word text)');
  skip(server < 180_000, 'Postgres 18 has them');
  await query(
    'create table note (id int primary key, ref text, low text generated always as (lower(ref)) virtual, word text)',
  );
  const asKey = createCapture(engine, {
    entity: 'key',
    root: 'root',
    via: { note: { column: 'low', to: 'root.word' } },
  });
  await expect(asKey.apply()).rejects.toThrow(/note.low is a virtual generated column.*STORED/);
  const inHistory = createCapture(engine, {
    entity: 'history',
    root: 'root',
    via: { note: { column: 'ref', to: 'root.word' } },
    history: { note: { rows: 'both', columns: ['low'] } },
  });
  await expect(inHistory.apply()).rejects.toThrow(/note.low is a virtual generated column.*STORED/);
  await query(`insert into note (id, ref) values (1, 'A')`);
});
