import { beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput } from '../../src/base/errors.ts';
import { createCapture, type Projection, sql } from '../../src/capture/index.ts';
import { SearchStatements } from '../../src/capture/postgres/search.ts';
import { openTarget } from '../../src/capture/postgres/target/target.ts';
import { parseSearch } from '../../src/capture/search-query.ts';
import { type PostgresEngine, postgres, statement, VERBATIM } from '../../src/engine/postgres/index.ts';
import { freshDatabase } from '../support/database.ts';

let engine: PostgresEngine;
let projection: Projection;
const run = (text: string): Promise<unknown> => engine.session((session) => session.run(text));
const keys = (page: { rows: readonly { row: Readonly<Record<string, unknown>> }[] }): unknown[] =>
  page.rows.map(({ row }) => row['id']);

// One table of 12,000 rows for all: every word of `common` is in many, `rare` in few.
beforeAll(async () => {
  const database = await freshDatabase();
  engine = postgres(database.url);
  await run(`create table doc (id int primary key, title text, body text, code text, owner int, at int);
    insert into doc select i, case i % 2 when 0 then 'even common' else 'odd common' end || case when i % 4000 = 7 then ' rare' else '' end,
      'the body of number ' || i || ' says warranty card ' || (i % 10), 'AB-' || lpad(i::text, 6, '0') || '-X', i % 3, i from generate_series(1, 12000) i`);
  const capture = createCapture(engine, { entity: 'doc', root: 'doc' });
  projection = capture.project({
    into: 'doc_search',
    columns: { title: 'text', body: 'text', code: 'text', owner: 'int', at: 'int' },
    text: ['title', 'body'],
    fragments: ['code'],
    order: 'at',
    tenant: 'owner',
    build: async (ids, tx) => tx.query(statement('doc', 'select * from doc where id = any ($1::int[])'), [ids]),
  });
  await capture.apply();
  await projection.backfill({ batch: 5000 });
  return async () => {
    await engine.stop();
    await database.drop();
  };
});

test('words, phrases, beginnings and excluded words', async () => {
  const found = async (query: string, tenant: number): Promise<unknown[]> =>
    keys(await projection.search(query, { tenant, limit: 50 }));
  expect(await found('rare', 1)).toEqual([7]);
  expect(await found('RARE common', 1)).toEqual([7]);
  expect((await found('rar*', 1)).length + (await found('rar*', 2)).length + (await found('rar*', 0)).length).toBe(3);
  expect(await found('"number 77"', 2)).toEqual([77]);
  expect(await found('"77 number"', 2)).toEqual([]);
  expect(await found('number 77 -odd', 2)).toEqual([]);
  expect(await found('"number 78" -odd', 0)).toEqual([78]);
  expect(await found('000301', 1)).toEqual([301]);
  expect(await found('b-000301-x', 1)).toEqual([301]);
});

test('any text is a query, except one without a word', async () => {
  for (const query of [
    "o'clock",
    '\\',
    'a:b:*',
    "'':*",
    '!&|()<->',
    '<b>',
    '%_*',
    'naïve*',
    '"unclosed phrase',
    "x'*",
    '\u{1F980}*',
    'a '.repeat(5000),
    `${'-a '.repeat(40)}rare`,
  ]) {
    const answer = projection.search(query, { tenant: 1 }).catch((error: unknown) => error);
    expect(await answer, query).toSatisfy(
      (value) => value instanceof InvalidInput || Array.isArray((value as { rows: unknown }).rows),
    );
  }
  for (const query of ['', '   ', '-', '!&|()', '-word', '""', '***']) {
    await expect(projection.search(query, { tenant: 1 }), query).rejects.toThrow(InvalidInput);
  }
  await expect(projection.search('word')).rejects.toThrow(/option "tenant"/);
  await expect(projection.search('word', { tenant: 1, filter: { titel: 'x' } })).rejects.toThrow(
    /did you mean "title"/,
  );
  await expect(projection.search('word', { tenant: 1, cursor: 'nonsense' })).rejects.toThrow(/no cursor/);
});

test('where very many rows match, the first in the declared order are ranked, and the answer says so', async () => {
  const page = await projection.search('common', { tenant: 1, limit: 3 });
  expect(page).toMatchObject({ capped: true, matches: 3000 });
  const [first] = page.rows;
  expect(Number(first?.row['id'])).toBeGreaterThan(12_000 - 3 * 500);
  expect(first?.snippet).toContain('<mark>common</mark>');
  const few = await projection.search('common', { tenant: 1, filter: { id: 4 }, limit: 3 });
  expect(few).toMatchObject({ capped: false, matches: 1, next: null });
  // The matches are far apart in the order, so that a walk does not find enough of them.
  await run("update doc_search set title = title || ' oldword' where id < 9300");
  const old = await projection.search('oldword', { tenant: 2, limit: 5 });
  expect(keys(old).length).toBe(5);
});

test.for([
  ['of all', []],
  ['of one tenant', [['owner', '1']]],
] as const)('a walk through the rows %s stops at the last one that is ranked', async ([, filters]) => {
  const options = {
    into: 'doc_search',
    columns: {},
    text: ['title', 'body'],
    fragments: [],
    order: 'at',
    tenant: 'owner',
    language: 'simple',
    distribute: undefined,
  };
  const statements = new SearchStatements(await openTarget(engine, options), options);
  const { text, values } = statements.wide(statements.condition(parseSearch('common'), filters), {}, 500, 3500);
  await run('analyze doc_search');
  const explain = statement('explain', `explain (analyze, format json) ${text}`, VERBATIM);
  const [row] = await engine.transaction(async (tx) => {
    await tx.client.query({ text: 'set local enable_seqscan = off' });
    return tx.query<{ 'QUERY PLAN': object }>(explain, values);
  });
  const rows = [...JSON.stringify(row?.['QUERY PLAN']).matchAll(/"Actual Rows":\s*(\d+)/g)].map(([, n]) => Number(n));
  expect(rows.length).toBeGreaterThan(2);
  expect(Math.max(...rows)).toBeLessThan(600);
});

test('pages follow each other without a gap or a repetition, through every window', async () => {
  const seen: unknown[] = [];
  let cursor: string | null = null;
  do {
    const page = await projection.search('warranty odd', { tenant: 1, limit: 300, cursor });
    seen.push(...keys(page));
    cursor = page.next;
  } while (cursor !== null);
  expect(seen.length).toBe(2000);
  expect(new Set(seen).size).toBe(2000);
});

test('a snippet is safe to show, whatever the row holds', async () => {
  await run('update doc_search set body = \'<script>alert(1)</script> snippety & "quoted"\' where id = 500');
  const { rows } = await projection.search('snippety', { tenant: 2 });
  expect(rows[0]?.snippet).not.toMatch(/<(?!\/?mark>)/);
  expect(rows[0]?.snippet).toContain('<mark>snippety</mark> &amp;');
});

test('the index has no list of pending entries, so a search never has to read one', async () => {
  const options = await engine.query<{ options: string[] }>(
    statement('options', "select reloptions as options from pg_class where relname = 'doc_search_pawl_words'"),
  );
  expect(options[0]?.options).toEqual(['fastupdate=off']);
});

test('tenants do not see rows of each other, whatever their role queries', async () => {
  const role = `pawl_tenant_${process.pid}_${Date.now()}`;
  await run(`create role "${role}"; grant select on doc_search to "${role}"`);
  onTestFinished(() => run(`drop owned by "${role}"; drop role "${role}"`).then(() => {}));
  await engine.transaction(async (tx) => {
    await tx.client.query({ text: `set local role "${role}"` });
    const count = statement(
      'count',
      'select count(*)::int as n, count(distinct owner)::int as owners from doc_search',
      { prepare: false },
    );
    expect(await tx.query(count)).toEqual([{ n: 0, owners: 0 }]);
    await tx.client.query({ text: "select set_config('pawl.tenant', '2', true)" });
    expect(await tx.query(count)).toEqual([{ n: 4000, owners: 1 }]);
  });
});

test('a row with words for a megabyte is projected and found', async () => {
  await run(`insert into doc select 20001, 'huge', (select string_agg(md5(i::text), ' ') from generate_series(1, 40000) i), null, 1, 20001;
    insert into doc select 20002, repeat('😀漢字', 400000), repeat('w ', 500000) || ' ' || repeat('x', 300000), null, 1, 20002`);
  const worker = projection.run({ poll: '50ms' });
  onTestFinished(() => worker.stop());
  await projection.settled();
  expect(keys(await projection.search('huge', { tenant: 1 }))).toEqual([20001]);
  expect(await engine.query(statement('retries', 'select key, error from pawl.capture_retry'))).toEqual([]);
});

test('a word that the language ignores is ignored in a query; a query of such words only is refused', async () => {
  await run(
    "create table talk (id int primary key, said text, at date); insert into talk values (1, 'he has made the call', now())",
  );
  const capture = createCapture(engine, { entity: 'talk', root: 'talk' });
  const english = capture.project({
    into: 'talk_search',
    columns: { said: 'text', at: 'date' },
    text: ['said'],
    order: 'at',
    language: 'english',
    build: sql`select * from talk where id = any ($1::int[])`,
  });
  await capture.apply();
  await english.backfill();
  for (const query of ['call', 'the call', '"the call"', 'call the', 'calls -nothing'])
    expect(keys(await english.search(query)), query).toEqual([1]);
  expect(keys(await english.search('the phone'))).toEqual([]);
  expect(keys(await english.search('call -made'))).toEqual([]);
  await expect(english.search('the')).rejects.toThrow(/at least one word/);
  // A value that does not fit the type of its column is the caller's mistake, wherever it comes from.
  await expect(english.search('call', { filter: { at: 'soon' } })).rejects.toThrow(InvalidInput);
  await expect(english.search('call', { filter: { id: '99999999999' } })).rejects.toThrow(InvalidInput);
  const forged = Buffer.from(JSON.stringify({ row: ['0.1', 'soon', '1'] })).toString('base64url');
  await expect(english.search('call', { cursor: forged })).rejects.toMatchObject({
    code: 'invalid_input',
    field: 'cursor',
  });
});

test('text without spaces between words is found as a whole, by its beginning, and by three characters of a fragment', async () => {
  await run(`create table place (id int primary key, name text, code text);
    insert into place values (1, '東京タワー', '東京タワー'), (2, '京都', '京都'), (3, '東京 タワー', 'x')`);
  const capture = createCapture(engine, { entity: 'place', root: 'place' });
  const places = capture.project({
    into: 'place_search',
    columns: { name: 'text', code: 'text' },
    text: ['name'],
    fragments: ['code'],
    build: sql`select id, name, code from place where id = any ($1::int[])`,
  });
  await capture.apply();
  await places.backfill();
  const found = async (query: string): Promise<unknown[]> =>
    keys(await places.search(query))
      .map(Number)
      .toSorted((a, b) => a - b);
  expect(await found('東京タワー')).toEqual([1]);
  expect(await found('東京*')).toEqual([1, 3]);
  // A word of the third; in the first no word begins so, but its code has these three characters.
  expect(await found('タワー')).toEqual([1, 3]);
  // In the middle of a fragment, three characters are found, and two are not.
  expect(await found('京タワ')).toEqual([1]);
  expect(await found('京タ')).toEqual([]);
});
