import pg from 'pg';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { createCapture } from '../../../../src/capture/index.ts';
import { type PostgresEngine, postgres } from '../../../../src/engine/postgres/index.ts';
import { migrate } from '../../../../src/engine/postgres/migrate/migrate.ts';
import type { Schema } from '../../../../src/engine/postgres/schema.gen.ts';
import { freshDatabase } from '../../../support/database.ts';

const FIRST: Schema = {
  version: '1.0.0',
  migrations: [
    {
      line: 'line',
      number: 1,
      name: 'tables',
      sql: `create table pawl.thing (id bigint primary key, name text not null default 'none', size int,
          constraint thing_size check (size > 0), constraint thing_name unique (name));
        create index thing_by_size on pawl.thing (size);
        create sequence pawl.thing_number;
        create type pawl.thing_pair as (one int, two text);
        create function pawl.touch() returns trigger language plpgsql as 'begin return new; end';
        create trigger thing_touch before update on pawl.thing for each row execute function pawl.touch();`,
    },
  ],
  functions: [
    {
      line: 'line',
      sql: `create or replace function pawl.double(p_n int) returns int language sql as 'select p_n * 2';
        create or replace function pawl.halve(p_n int) returns int language plpgsql as 'begin return p_n / 2; end';
        create or replace view pawl.things as select t.id, t.name from pawl.thing t;`,
    },
  ],
};

const SECOND: Schema = {
  version: '2.0.0',
  migrations: [
    ...FIRST.migrations,
    { line: 'line', number: 2, name: 'more', sql: 'alter table pawl.thing drop column size, add column weight int;' },
  ],
  functions: [
    {
      line: 'line',
      sql: `create or replace function pawl.double(p_n int) returns int language sql as 'select p_n + p_n';
        create or replace view pawl.things as select t.id, t.name, t.weight from pawl.thing t;`,
    },
  ],
};

let url: string;
let client: pg.Client;
let engine: PostgresEngine;

async function open(migrated: boolean): Promise<void> {
  const database = await freshDatabase({ migrated });
  url = database.url;
  engine = postgres(url);
  client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await Promise.all([engine.stop(), client.end()]);
    await database.drop();
  });
}

/** `kind name: problem` of each difference. */
async function told(of: PostgresEngine = engine): Promise<string[]> {
  return (await of.drift()).map(({ kind, name, problem }) => `${kind} ${name}: ${problem}`);
}

describe('nothing differs', () => {
  test('in a new database, and when captures, months of the log and another search path are added', async () => {
    await open(true);
    expect(await told()).toEqual([]);
    await client.query('create table orders (id int primary key)');
    const capture = createCapture(engine, {
      entity: 'orders',
      root: 'orders',
      history: { orders: { rows: 'both', columns: ['id'] } },
    });
    await capture.apply();
    expect(await told()).toEqual([]);
    await client.query(
      `do $$ begin execute format('alter database %I set search_path = pawl, public', current_database()); end $$`,
    );
    const other = postgres(url);
    expect(await told(other)).toEqual([]);
    await other.stop();
  });

  test('in a schema of another name, and in one that a script has made', async () => {
    await open(false);
    const jobs = postgres(url, { schema: 'jobs' });
    onTestFinished(() => jobs.stop());
    await client.query((await jobs.migrate({ dryRun: true })).sql ?? '');
    expect(await told(jobs)).toEqual([]);
  });

  test('after an upgrade that drops, adds and changes objects', async () => {
    await open(false);
    await migrate(engine, {}, FIRST);
    expect(await told()).toEqual([]);
    await migrate(engine, {}, SECOND);
    expect(await told()).toEqual([]);
  });

  test('to a role that may only read', async () => {
    await open(true);
    await client.query(`create role drift_reader login password 'x'; grant usage on schema pawl to drift_reader;
      grant select on all tables in schema pawl to drift_reader`);
    const as = new URL(url);
    [as.username, as.password] = ['drift_reader', 'x'];
    const reader = postgres(as.href);
    expect(await told(reader)).toEqual([]);
    await reader.stop();
    await client.query('drop owned by drift_reader; drop role drift_reader');
  });

  test('because the server of another version writes definitions in another way; what is missing is told there, too', async () => {
    await open(false);
    await migrate(engine, {}, FIRST);
    await client.query(`update pawl.migration_object set server = 13;
      update pawl.migration_object set definition = definition || ' ' where kind in ('default', 'index', 'constraint', 'trigger', 'view')`);
    expect(await told()).toEqual([]);
    await client.query('drop index pawl.thing_by_size; alter table pawl.thing alter column name drop not null');
    expect(await told()).toEqual([
      'column thing.name: it was changed: it is "text", and was "text not null"',
      'index thing_by_size: it is missing',
    ]);
  });

  test('where nothing was installed', async () => {
    await open(false);
    expect(await told()).toEqual([]);
  });
});

describe('what a person has changed is told, and what it says mends it', () => {
  beforeEach(async () => {
    await open(false);
    await migrate(engine, {}, FIRST);
  });

  afterEach(async () => {
    expect(await told()).toEqual([]);
  });

  test.for([
    ['drop index pawl.thing_by_size', 'index thing_by_size: it is missing'],
    [
      'drop index pawl.thing_by_size; create index thing_by_size on pawl.thing (name)',
      'index thing_by_size: it was changed',
    ],
    ['create index mine on pawl.thing (size, id)', 'index mine: Pawl has not made it'],
    [
      "update pg_index set indisvalid = false where indexrelid = 'pawl.thing_by_size'::regclass",
      'index thing_by_size: it is not valid',
    ],
    ['alter table pawl.thing drop constraint thing_size', 'constraint thing.thing_size: it is missing'],
    ['alter table pawl.thing drop constraint thing_name', 'constraint thing.thing_name: it is missing'],
    [
      'alter table pawl.thing drop constraint thing_size; alter table pawl.thing add constraint thing_size check (size > 0) not valid',
      'constraint thing.thing_size: it is not valid',
    ],
    ['alter table pawl.thing add constraint mine check (id > 0)', 'constraint thing.mine: Pawl has not made it'],
    [
      'alter table pawl.thing alter column name drop not null',
      'column thing.name: it was changed: it is "text", and was "text not null"',
    ],
    ['alter table pawl.thing add column mine int', 'column thing.mine: Pawl has not made it'],
    ['alter table pawl.thing alter column name drop default', 'default thing.name: it is missing'],
    ["alter table pawl.thing alter column name set default 'other'", 'default thing.name: it was changed'],
    ['alter table pawl.thing disable trigger thing_touch', 'trigger thing.thing_touch: it is disabled'],
    ['drop trigger thing_touch on pawl.thing', 'trigger thing.thing_touch: it is missing'],
    [
      'create trigger mine before insert on pawl.thing for each row execute function pawl.touch()',
      'trigger thing.mine: Pawl has not made it',
    ],
    [
      "create or replace function pawl.double(p_n int) returns int language sql as 'select 2'",
      'function double(int4): it was changed',
    ],
    ['alter function pawl.halve(int) reset search_path', 'function halve(int4): it was changed'],
    ['drop function pawl.double(int)', 'function double(int4): it is missing'],
    [
      "create function pawl.mine(text) returns int language sql as 'select 2'",
      'function mine(text): Pawl has not made it',
    ],
    [
      'create or replace view pawl.things as select t.id, upper(t.name) as name from pawl.thing t',
      'view things: it was changed',
    ],
    ['drop view pawl.things', 'view things: it is missing'],
    ['create view pawl.mine as select 1 as one', 'view mine: Pawl has not made it'],
    ['create table pawl.mine (id int primary key)', 'table mine: Pawl has not made it'],
    ['create sequence pawl.mine', 'sequence mine: Pawl has not made it'],
  ] as const)('%s', async ([change, expected]) => {
    await client.query(change);
    const found = await engine.drift();
    expect(found.map(({ kind, name, problem }) => `${kind} ${name}: ${problem}`)).toEqual([
      expect.stringContaining(expected),
    ]);
    await mend(found[0]?.mend ?? '');
  });

  test('a column of another type, and one that is gone with its index and its check', async () => {
    await client.query('alter table pawl.thing alter column size type bigint');
    expect(await told()).toEqual(['column thing.size: it was changed: it is "bigint", and was "integer"']);
    for (const { mend: text } of await engine.drift()) await mend(text);
    await client.query('alter table pawl.thing drop column size');
    expect(await told()).toEqual([
      'column thing.size: it is missing',
      'constraint thing.thing_size: it is missing',
      'index thing_by_size: it is missing',
    ]);
    for (const { mend: text } of await engine.drift()) await mend(text);
  });

  test('an upgrade does not take what was changed before it for right, except where it makes it anew', async () => {
    await client.query(
      `alter table pawl.thing drop constraint thing_name; create or replace function pawl.double(p_n int) returns int language sql as 'select 7'`,
    );
    await migrate(engine, {}, SECOND);
    expect(await told()).toEqual(['constraint thing.thing_name: it is missing']);
    await mend((await engine.drift())[0]?.mend ?? '');
  });

  /** SQL, and a migration where it says so. */
  async function mend(text: string): Promise<void> {
    const [statements = '', then] = text.split('; then: pawl migrate');
    await client.query(statements);
    if (then !== undefined) await migrate(engine, {}, FIRST);
  }
});

test('a table that is missing is told once, without its columns and indexes', async () => {
  await open(false);
  await migrate(engine, {}, FIRST);
  await client.query('drop table pawl.thing cascade');
  expect(await told()).toEqual(['table thing: it is missing', 'view things: it is missing']);
});
