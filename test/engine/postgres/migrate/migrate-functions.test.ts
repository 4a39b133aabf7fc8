import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SchemaMismatch } from '../../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { migrate, status } from '../../../../src/engine/postgres/migrate/migrate.ts';
import { type FunctionSet, type Migration, type Schema, schema } from '../../../../src/engine/postgres/schema.gen.ts';
import { createQueue } from '../../../../src/queue/index.ts';
import { freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';

const run = promisify(execFile);

const TABLES: Migration[] = [{ line: 'alpha', number: 1, name: 'tables', sql: 'create table pawl.number (n int);' }];

const ANSWER = statement('test.answer', 'select pawl.answer() as answer', { prepare: false });

let database: Awaited<ReturnType<typeof freshDatabase>>;
let engine: PostgresEngine;

beforeEach(async () => {
  database = await freshDatabase({ migrated: false });
  engine = postgres(database.url);
});

afterEach(async () => {
  await engine.stop();
  await database.drop();
});

/** A line whose function calls one that is defined behind it, and a line of a view. */
function answering(n: number, version = '1.0.0'): Schema {
  return {
    version,
    migrations: TABLES,
    functions: [
      {
        line: 'alpha',
        sql: `create or replace function pawl.answer() returns int language sql as $$ select pawl.base() + ${n} $$;
create or replace function pawl.base() returns int language sql as $$ select 40 $$;`,
      },
      { line: 'beta', sql: 'create or replace view pawl.numbers as select n.n from pawl.number n;' },
    ],
  };
}

function withFunctions(sql: string, version = '1.0.0'): Schema {
  return { version, migrations: TABLES, functions: [{ line: 'alpha', sql }] };
}

async function answer(): Promise<number | undefined> {
  return (await engine.query<{ answer: number }>(ANSWER))[0]?.answer;
}

describe('functions and views', () => {
  test('are applied after the tables, then only where they differ, whatever they call', async () => {
    expect(await migrate(engine, {}, answering(2))).toMatchObject({ functions: ['alpha', 'beta'] });
    expect(await answer()).toBe(42);
    expect(await migrate(engine, {}, answering(2))).toEqual({ applied: [], functions: [], sql: null });
    expect(await migrate(engine, {}, answering(3))).toEqual({ applied: [], functions: ['alpha'], sql: null });
    expect(await answer()).toBe(43);
    expect(await status(engine, answering(3))).toMatchObject({ state: 'current' });
  });

  test('that differ are shown by status and by a plan that psql could run', async () => {
    await migrate(engine, {}, answering(2));
    expect(await status(engine, answering(3))).toMatchObject({
      state: 'behind',
      pending: [],
      functions: [
        { line: 'alpha', state: 'behind', appliedAt: expect.any(Date), retired: [] },
        { line: 'beta', state: 'current' },
      ],
    });
    const { sql } = await migrate(engine, { dryRun: true }, answering(3));
    expect(sql).toContain('pawl.base() + 3');
    expect(sql).not.toContain('pawl.numbers');
    expect(await answer()).toBe(42);
    await engine.session((session) => session.run(sql ?? ''));
    expect(await answer()).toBe(43);
    expect(await status(engine, answering(3))).toMatchObject({ state: 'current' });
  });

  test('are pinned', async () => {
    const text =
      "create or replace function pawl.answer() returns text language plpgsql as $$ begin return 'x'; end $$;";
    await migrate(engine, {}, withFunctions(text));
    const [row] = await engine.query<{ path: string }>(
      statement('test.path', "select proconfig::text as path from pg_proc where oid = 'pawl.answer()'::regprocedure"),
    );
    expect(row?.path).toContain('search_path=pg_catalog, pg_temp');
  });

  test('that fail leave those that were there', async () => {
    await migrate(engine, {}, answering(2));
    const broken = withFunctions(
      `${answering(3).functions[0]?.sql} create or replace view pawl.v as select 1 / 0 from x;`,
    );
    await expect(migrate(engine, {}, broken)).rejects.toMatchObject({ sqlState: '42P01' });
    expect(await answer()).toBe(42);
    expect(await status(engine, answering(2))).toMatchObject({ state: 'current' });
  });

  test('that end their own transaction are refused', async () => {
    await expect(migrate(engine, {}, withFunctions('commit;'))).rejects.toThrow(/"alpha" ends its own transaction/);
  });

  test('are applied again after each numbered file of their line, which may have dropped them', async () => {
    const { functions } = answering(2);
    await migrate(engine, {}, answering(2));
    const dropping: Migration = {
      line: 'alpha',
      number: 2,
      name: 'drop',
      sql: 'drop function pawl.answer(); drop view if exists pawl.numbers; drop table pawl.number;',
    };
    const after: Schema = { version: '1.0.0', migrations: [...TABLES, dropping], functions: functions.slice(0, 1) };
    expect(await migrate(engine, {}, after)).toMatchObject({ applied: [{ number: 2 }], functions: ['alpha'] });
    expect(await answer()).toBe(42);
  });

  test('of a signature that changes stay for processes of the version before, and are shown, until a later file drops them', async () => {
    const old = 'create or replace function pawl.twice(a int) returns int language sql as $$ select a * 2 $$;';
    const next = withFunctions(old.replaceAll('int', 'bigint'), '1.1.0');
    await migrate(engine, {}, withFunctions(old));
    await migrate(engine, {}, next);
    const twice = statement('test.twice', 'select pawl.twice(4::int)::int as n');
    expect(await engine.query(twice)).toEqual([{ n: 8 }]);
    expect((await status(engine, next)).functions[0]?.retired).toEqual(['pawl.twice(integer)']);

    const sql = 'drop function if exists pawl.twice(int);';
    const later = {
      ...next,
      version: '1.2.0',
      migrations: [...TABLES, { line: 'alpha', number: 2, name: 'drop', sql }],
    };
    await migrate(engine, {}, later);
    expect((await status(engine, later)).functions[0]?.retired).toEqual([]);
  });

  test('of a newer version are not overwritten by an older process', async () => {
    await migrate(engine, {}, answering(3, '1.10.0'));
    const older = answering(2, '1.9.1');
    await expect(migrate(engine, {}, older)).rejects.toBeInstanceOf(SchemaMismatch);
    await expect(migrate(engine, {}, older)).rejects.toThrow(
      /"alpha".* pawl 1\.10\.0, and this is 1\.9\.1.*upgrade pawl/,
    );
    expect(await status(engine, older)).toMatchObject({ state: 'newer', problem: expect.stringContaining('1.10.0') });
    expect(await answer()).toBe(43);
  });

  test('are not applied where a numbered file was edited', async () => {
    await migrate(engine, {}, answering(2));
    const edited = { ...answering(3), migrations: TABLES.map((file) => ({ ...file, sql: `${file.sql}\nselect 1;` })) };
    await expect(migrate(engine, {}, edited)).rejects.toThrow(/alpha\/001_tables differs/);
    expect(await answer()).toBe(42);
  });

  test('are applied once when ten processes start at the same time', async () => {
    await migrate(engine, {}, answering(2));
    const program = `
      import { postgres } from ${JSON.stringify(new URL('../../../../dist/engine/postgres/index.js', import.meta.url).href)};
      import { migrate } from ${JSON.stringify(new URL('../../../../dist/engine/postgres/migrate/migrate.js', import.meta.url).href)};
      const engine = postgres(${JSON.stringify(database.url)});
      const { functions } = await migrate(engine, {}, ${JSON.stringify(answering(3))});
      console.log(functions.length);
      await engine.stop();
    `;
    const results = await Promise.all(
      Array.from({ length: 10 }, () => run(process.execPath, ['--input-type=module', '-e', program])),
    );
    expect(results.reduce((sum, { stdout }) => sum + Number(stdout), 0)).toBe(1);
    expect(await answer()).toBe(43);
  });
});

describe('the functions of this version', () => {
  test('have bodies that the server takes, once all of them are there', async () => {
    await engine.migrate();
    const checked = schema.functions.map(({ sql }) => sql).join('\n');
    await engine.session((session) => session.run(`set check_function_bodies = on; ${checked}`));
  });

  test('land under a worker of the version before, which goes on: each job is done once', async () => {
    await engine.migrate();
    const done: number[] = [];
    const jobs = createQueue(engine, 'q', { kinds: { job: {} } });
    await using _worker = jobs.work({ job: (unit) => void done.push((unit.payload as { n: number }).n) });
    let n = 0;
    const enqueue = async (count: number): Promise<void> => {
      for (const end = n + count; n < end; n += 1) await jobs.enqueue('job', { n });
    };
    const other = postgres(database.url);
    const edited = (set: FunctionSet): FunctionSet => ({ ...set, sql: `${set.sql}\n-- another version\n` });
    const landing = migrate(other, {}, { ...schema, functions: schema.functions.map(edited) });
    await enqueue(50);
    expect((await landing).functions).toEqual(schema.functions.map(({ line }) => line));
    await enqueue(50);
    await until('all jobs are done', () => done.length >= n);
    expect(done.toSorted((a, b) => a - b)).toEqual(Array.from({ length: n }, (_, index) => index));
    await other.stop();
  });

  test('refuse a database whose tables were made by other numbered files, and leave it alone', async () => {
    const other: Migration[] = schema.migrations.map((file) => ({ ...file, sql: '-- An earlier text of the file.' }));
    await migrate(engine, {}, { version: '0.0.1', migrations: other, functions: [] });
    await expect(engine.migrate()).rejects.toBeInstanceOf(SchemaMismatch);
    await expect(engine.migrate()).rejects.toThrow(/actor\/001_actor differs from what was applied/);
    expect((await engine.status()).applied).toHaveLength(other.length);
  });
});
