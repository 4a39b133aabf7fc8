import { expect, onTestFinished, test } from 'vitest';
import { createCapture, Sql, sql } from '../../../src/capture/index.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { openWorld } from '../shape/world.ts';

/** Values whose JSON is not what their type reads, or that a text could change. */
const VALUES: readonly (readonly [type: string, value: string])[] = [
  ['hstore', 'a=>1,b=>NULL'],
  ['int[]', '[0:1]={1,NULL}'],
  ['int[]', '{{1,2},{3,4}}'],
  ['text[]', '{NULL,"NULL","a\\\\b","\\"",""}'],
  ['jsonb', '{"a": [1, null, "é"], "n": 12345678901234567890.5}'],
  ['json', '{"a":1,  "a":2}'],
  ['json_domain', '{"a": "b"}'],
  ['json[]', '{"{\\"a\\": 1}",NULL}'],
  ['pair', '(1,"a ""b""","\\\\x01ff")'],
  ['pair[]', '{"(1,x,)"}'],
  ['bytea', '\\x00ff5c'],
  ['timestamptz', 'infinity'],
  ['interval', '-1 mon +2 days 03:04:05.678901'],
  ['numeric', 'NaN'],
  ['float8', '-Infinity'],
  ['float8', '0.1'],
  ['tstzrange', '["2020-01-01 00:00:00+00",)'],
  ['char(5)', 'ab'],
  ['bit(3)', '101'],
  ['boolean', 'true'],
  ['xml', '<a/>'],
];

test('values of every kind arrive in another database as they are, and columns may have any name', async () => {
  const types = `create extension hstore; create type pair as (n int, t text, b bytea); create domain json_domain as jsonb`;
  const names = VALUES.map((_, index) => ['m', 'made', 'json', 'found', 't', 'n'][index] ?? `c${index}`);
  const columns = VALUES.map(([type], index) => `${names[index]} ${type}`).join(', ');
  const values = VALUES.map(([, value]) => `'${value.replaceAll("'", "''")}'`).join(', ');
  const { engine, query } = await openWorld(
    `${types}; create table root (id bigint primary key, ${columns}); insert into root values (1, ${values}); insert into root values (2)`,
  );
  const other = await freshDatabase();
  const to = postgres(other.url);
  onTestFinished(async () => {
    await to.stop();
    await other.drop();
  });
  await to.session((session) => session.run(types));
  const capture = createCapture(engine, { entity: 'root', root: 'root' });
  const projection = capture.project({
    into: 'copied',
    to,
    columns: Object.fromEntries(VALUES.map(([type], index) => [names[index], type])),
    build: sql`select id, ${new Sql(names.join(', '))} from root where id = any ($1::bigint[])`,
  });
  await capture.apply();
  await projection.backfill();
  await using _worker = projection.run();
  await projection.settled();
  expect(await query('select key, error from pawl.capture_retry')).toEqual([]);
  const texts = (table: string): string =>
    `select id::text as id, ${names.map((name) => `${name}::text as ${name}`).join(', ')} from ${table} order by id`;
  const there = await to.query(statement('test.values', texts('copied'), { prepare: false }));
  expect(there).toEqual(await query(texts('root')));
  expect(await projection.reconcile({ repair: false })).toMatchObject({ checked: 2, drifted: 0 });
});
