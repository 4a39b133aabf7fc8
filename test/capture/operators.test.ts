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
