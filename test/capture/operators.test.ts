// Types with operators in two schemas, next to operators of another role that would fit better.
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { createCapture, sql } from '../../src/capture/index.ts';
import { postgres, statement } from '../../src/engine/postgres/index.ts';
import { freshDatabase } from '../support/database.ts';

/**
 * citext in a schema of its own, and in `public` an operator `=`, `<` and `>` for each pair of types; the sequence shows
 * whether one was called.
 */
const STRANGERS = `
create schema ext;
create extension citext schema ext;
create sequence heard;
${['=', '<', '>']
  .flatMap((sign, n) =>
    ['ext.citext, text', 'text, ext.citext', 'ext.citext, int', 'ext.citext, ext.citext'].map((types, m) => {
      const [left, right] = types.split(', ');
      return `create function public.f${n}${m}(${types}) returns boolean volatile language plpgsql
        as $$ begin perform nextval('public.heard'); return false; end $$;
        create operator public.${sign} (leftarg = ${left}, rightarg = ${right}, function = public.f${n}${m});`;
    }),
  )
  .join('\n')}`;

async function open(): Promise<{
  engine: ReturnType<typeof postgres>;
  client: pg.Client;
  heard: () => Promise<unknown>;
}> {
  const database = await freshDatabase();
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query(STRANGERS);
  await client.query(`alter database "${database.name}" set search_path = public, ext`);
  const engine = postgres(database.url, { max: 4 });
  onTestFinished(async () => {
    await engine.stop();
    await client.end();
    await database.drop();
  });
  const heard = async (): Promise<unknown> => (await client.query('select is_called from heard')).rows[0];
  return { engine, client, heard };
}

test.each([
  ['text', 'ext.citext', ['a', 'A']],
  ['ext.citext', 'text', ['a']],
])(
  'a link from a column of type %s to one of type %s is followed by the operator of the second',
  async (from, to, keys) => {
    const { engine, client, heard } = await open();
    await client.query(`create table ord (id text primary key, code ${to} not null);
    create table note (id int primary key, code ${from} not null);
    insert into ord values ('a', 'x'), ('A', 'X'), ('b', 'y'); insert into note values (1, 'y')`);
    const capture = createCapture(engine, {
      entity: 'ord',
      root: 'ord',
      via: { note: { column: 'code', to: 'ord.code' } },
    });
    const built: string[] = [];
    const projection = capture.project({
      into: 'ord_search',
      columns: { code: 'text' },
      build: async (ids, tx) => {
        built.push(...ids);
        return tx.query(statement('test.build', 'select id, code::text from ord where id = any ($1::text[])'), [ids]);
      },
    });
    await capture.apply();
    await client.query("insert into note values (2, 'x')");
    await using worker = projection.run({ poll: '20ms' });
    await worker.started;
    await projection.settled();
    expect(built.toSorted()).toEqual(keys.toSorted());
    expect(await heard()).toEqual({ is_called: false });
  },
);

test('a search in the order of such a column continues through every window', async () => {
  const { engine, client, heard } = await open();
  await client.query(`create table doc (id int primary key, title text not null, place ext.citext not null);
    insert into doc select i, 'word', lpad((i % 7)::text, 3, '0') from generate_series(1, 1300) i`);
  const capture = createCapture(engine, { entity: 'doc', root: 'doc' });
  const projection = capture.project({
    into: 'doc_search',
    columns: { title: 'text', place: 'ext.citext' },
    text: ['title'],
    order: 'place',
    build: sql`select * from doc where id = any ($1::int[])`,
  });
  await capture.apply();
  await projection.backfill();
  const seen: unknown[] = [];
  let cursor: string | null = null;
  do {
    const page = await projection.search('word', { limit: 400, cursor });
    seen.push(...page.rows.map(({ row }) => row['id']));
    cursor = page.next;
  } while (cursor !== null);
  expect(new Set(seen).size).toBe(1300);
  expect(seen.length).toBe(1300);
  expect(await heard()).toEqual({ is_called: false });
});

/** Everything that the text of a trigger could name, in a schema that the writer's path has before Postgres' own. */
const SHADOWS = `
create schema shadow;
create sequence shadow.heard;
grant usage on schema shadow to public;
grant all on shadow.heard to public;
create function shadow.note() returns boolean language plpgsql as $$ begin perform pg_catalog.nextval('shadow.heard'); return true; end $$;
${['tid', 'text', 'regtype', 'int2', 'int4', 'int8', 'uuid'].map((type) => `create domain shadow.${type} as pg_catalog.${type} check (shadow.note());`).join('\n')}
${['tid', 'text', 'oid', 'regtype', 'int2', 'int4', 'int8', 'uuid']
  .flatMap((type) => ['=', '<>', '<', '>'].map((sign) => shadow(sign, type, type)))
  .join('\n')}
${shadow('>', 'int8', 'int4')}
create function shadow.pg_typeof(anyelement) returns pg_catalog.regtype language plpgsql
  as $$ begin perform shadow.note(); return pg_catalog.pg_typeof($1); end $$;
create function shadow.unnest(anyarray) returns setof anyelement language plpgsql
  as $$ begin perform shadow.note(); return query select * from pg_catalog.unnest($1); end $$;
create table shadow.pawl_new (id pg_catalog.int8); create table shadow.capture_dirty (line int);`;

function shadow(sign: string, left: string, right: string): string {
  const name = `shadow."${left} ${sign} ${right}"`;
  return `create function ${name}(pg_catalog.${left}, pg_catalog.${right}) returns boolean language plpgsql
    as $$ begin perform shadow.note(); return $1 operator(pg_catalog.${sign}) $2; end $$;
    create operator shadow.${sign} (leftarg = pg_catalog.${left}, rightarg = pg_catalog.${right}, function = ${name});`;
}

const KEYS = { bigint: ['1', '2', '3'], smallint: ['1', '2', '3'], text: ['a', 'b', 'c'], uuid: [1, 2, 3].map(uuid) };

function uuid(n: number): string {
  return `00000000-0000-4000-8000-00000000000${n}`;
}

// Invariant C20.
test.each([
  ['bigint', 1],
  ['bigint', 2],
  ['smallint', 1],
  ['text', 2],
  ['uuid', 1],
] as const)(
  'a trigger for keys of type %s, and %i projections, calls nothing that the writer’s path offers',
  async (type, lines) => {
    const { engine, client } = await open();
    await client.query(`create table thing (id ${type} primary key, n int not null default 0)`);
    const capture = createCapture(engine, { entity: 'thing', root: 'thing' });
    for (let n = 0; n < lines; n += 1) capture.project({ into: `copy_${n}`, build: async () => [], columns: {} });
    await capture.apply();
    await client.query(SHADOWS);
    await client.query('set search_path = shadow, pg_catalog, public');
    const [one, two, three] = KEYS[type];
    const noted = async (text: string): Promise<string[]> => {
      await client.query(text);
      const { rows } = await client.query<{ key: string }>(
        'with gone as (delete from pawl.capture_dirty returning source, key) select source || key as key from gone order by 1',
      );
      return rows.map(({ key }) => key);
    };
    const dirty = (...keys: (string | undefined)[]): string[] =>
      keys.flatMap((key) => Array.from({ length: lines }, () => `0${key}`)).toSorted();
    const ids = `'${two}', '${three}'`;
    expect(await noted(`insert into thing values ('${one}')`)).toEqual(dirty(one));
    expect(await noted(`insert into thing values ('${two}'), ('${three}')`)).toEqual(dirty(two, three));
    expect(await noted(`update thing set n = 1 where id::pg_catalog.text operator(pg_catalog.=) '${one}'`)).toEqual(
      dirty(one),
    );
    expect(await noted(`update thing set n = 2`)).toEqual(dirty(one, two, three));
    await client.query('alter table thing rename id to other');
    expect(new Set(await noted('update thing set n = 3'))).toEqual(new Set(['-1']));
    await client.query('alter table thing rename other to id');
    expect(
      await noted(
        `delete from thing where id::pg_catalog.text operator(pg_catalog.=) any (array[${ids}]::pg_catalog.text[])`,
      ),
    ).toEqual(dirty(two, three));
    expect((await client.query('select is_called from shadow.heard')).rows).toEqual([{ is_called: false }]);
  },
);
