import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, NotSupported, SchemaMismatch } from '../../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { migrate, status } from '../../../../src/engine/postgres/migrate/migrate.ts';
import { type Migration, type Schema, schema } from '../../../../src/engine/postgres/schema.gen.ts';
import { freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';

const run = promisify(execFile);

// Each file leaves a row per time it ran, and the first takes long enough for the others to wait for it.
const FILES: Migration[] = [
  {
    line: 'alpha',
    number: 1,
    name: 'tables',
    sql: '-- First.\ncreate table pawl.ran (file text);\nselect pg_sleep(0.2);\ninsert into pawl.ran values (1);',
  },
  { line: 'alpha', number: 2, name: 'more', sql: "-- Second; a '' quote.\ninsert into pawl.ran values ('it''s 2');" },
  { line: 'beta', number: 1, name: 'other', sql: '-- Third.\ninsert into pawl.ran values (3);' },
];

const SCHEMA: Schema = { version: '1.0.0', migrations: FILES, functions: [] };

const RAN = statement('test.ran', 'select file from pawl.ran order by file', { prepare: false });

const WAITING = statement(
  'test.waiting',
  `select from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
   where l.locktype = 'advisory' and not l.granted`,
  { prepare: false },
);

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

function withFiles(files: Migration[]): Schema {
  return { ...SCHEMA, migrations: files };
}

async function ran(): Promise<string[]> {
  return (await engine.query<{ file: string }>(RAN)).map((row) => row.file);
}

describe('migrate', () => {
  test('applies each file once, in order, and nothing the second time', async () => {
    const first = await migrate(engine, {}, SCHEMA);
    expect(first.applied.map((step) => `${step.line}/${step.number}_${step.name}`)).toEqual([
      'alpha/1_tables',
      'alpha/2_more',
      'beta/1_other',
    ]);
    expect(await migrate(engine, {}, SCHEMA)).toEqual({ applied: [], functions: [], sql: null });
    expect(await ran()).toEqual(['1', '3', "it's 2"]);
    expect(await status(engine, SCHEMA)).toMatchObject({ state: 'current', pending: [], problem: null });
  });

  test('applies the schema of this version', async () => {
    const report = await engine.migrate();
    expect(report.applied).toHaveLength(schema.migrations.length);
    expect(await engine.status()).toMatchObject({ state: 'current', pending: [] });
  });

  test('applies only the lines that were asked for, and refuses one that does not exist', async () => {
    await migrate(engine, { lines: ['alpha'] }, SCHEMA);
    expect(await status(engine, SCHEMA)).toMatchObject({ state: 'behind', pending: [{ line: 'beta', number: 1 }] });
    await expect(migrate(engine, { lines: ['gamma'] }, SCHEMA)).rejects.toBeInstanceOf(InvalidInput);
  });

  test('applies each file once when ten processes start at the same time', async () => {
    const program = `
      import { postgres } from ${JSON.stringify(new URL('../../../../dist/engine/postgres/index.js', import.meta.url).href)};
      import { migrate } from ${JSON.stringify(new URL('../../../../dist/engine/postgres/migrate/migrate.js', import.meta.url).href)};
      const engine = postgres(${JSON.stringify(database.url)});
      const { applied } = await migrate(engine, {}, ${JSON.stringify(SCHEMA)});
      console.log(applied.length);
      await engine.stop();
    `;
    const results = await Promise.all(
      Array.from({ length: 10 }, () => run(process.execPath, ['--input-type=module', '-e', program])),
    );
    const counts = results.map((result) => Number(result.stdout));
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(FILES.length);
    expect(await ran()).toEqual(['1', '3', "it's 2"]);
  });

  test.each(['repeatable read', 'serializable'])(
    'applies each file once when two processes wait for a third, with %s as the default of the database',
    async (isolation) => {
      await engine.session((session) =>
        session.run(`alter database "${database.name}" set default_transaction_isolation = '${isolation}'`),
      );
      const others = [postgres(database.url), postgres(database.url)];
      onTestFinished(async () => void (await Promise.all(others.map((other) => other.stop()))));
      const both = await engine.session(async (third) => {
        await third.run('begin; select pg_advisory_xact_lock(1885435756, 1)');
        const migrations = Promise.all(others.map((other) => migrate(other, {}, SCHEMA)));
        migrations.catch(() => {});
        await until('both wait', async () => (await engine.query(WAITING)).length === 2);
        await third.run('commit');
        return migrations;
      });
      expect(both.flatMap(({ applied }) => applied)).toHaveLength(FILES.length);
      expect(await ran()).toEqual(['1', '3', "it's 2"]);
    },
  );

  test('as a dry run changes nothing and gives SQL that does it all', async () => {
    const { applied, sql } = await migrate(engine, { dryRun: true }, SCHEMA);
    expect(applied).toEqual([]);
    expect(await status(engine, SCHEMA)).toMatchObject({ state: 'behind', applied: [] });
    await engine.session((session) => session.run(sql ?? ''));
    expect(await ran()).toEqual(['1', '3', "it's 2"]);
    expect(await migrate(engine, {}, SCHEMA)).toMatchObject({ applied: [] });
    expect(await migrate(engine, { dryRun: true }, SCHEMA)).toEqual({ applied: [], functions: [], sql: '' });
  });

  test('leaves nothing of a file that fails, and keeps the files before it', async () => {
    const broken: Migration[] = [
      ...FILES.slice(0, 2),
      { line: 'beta', number: 1, name: 'broken', sql: 'insert into pawl.ran values (9); select 1/0;' },
    ];
    await expect(migrate(engine, {}, withFiles(broken))).rejects.toMatchObject({ sqlState: '22012' });
    expect(await ran()).toEqual(['1', "it's 2"]);
    expect(await migrate(engine, {}, SCHEMA)).toMatchObject({ applied: [{ line: 'beta', number: 1 }] });
  });

  test('refuses a database that is newer than the code, and says what to do', async () => {
    await migrate(engine, {}, SCHEMA);
    const older = withFiles(FILES.slice(0, 2));
    const failed = migrate(engine, {}, older);
    await expect(failed).rejects.toBeInstanceOf(SchemaMismatch);
    await expect(failed).rejects.toThrow(/beta\/001_other.*newer than the code; upgrade pawl/);
    expect(await status(engine, older)).toMatchObject({ state: 'newer', problem: expect.stringContaining('beta/001') });
  });

  test('refuses a file that was changed after it was applied', async () => {
    await migrate(engine, {}, SCHEMA);
    const changed = withFiles(
      FILES.map((file) => (file.number === 2 ? { ...file, sql: `${file.sql} select 1;` } : file)),
    );
    await expect(migrate(engine, {}, changed)).rejects.toThrow(/alpha\/002_more differs/);
    expect(await status(engine, changed)).toMatchObject({ state: 'changed' });
  });

  test('takes the same file with other line ends for the same', async () => {
    await migrate(engine, {}, SCHEMA);
    const windows = withFiles(FILES.map((file) => ({ ...file, sql: file.sql.replaceAll('\n', '\r\n') })));
    expect(await migrate(engine, {}, windows)).toMatchObject({ applied: [] });
  });

  test('refuses a file that ends its own transaction', async () => {
    const files = withFiles([{ line: 'alpha', number: 1, name: 'commits', sql: 'select 1; commit;' }]);
    await expect(migrate(engine, {}, files)).rejects.toThrow(/ends its own transaction/);
  });

  test('needs no right to create schemas where the schema is already there', async () => {
    const role = `owner_${new URL(database.url).pathname.slice(1)}`;
    await engine.session((session) =>
      session.run(`create role ${role} login password 'modest'; create schema pawl authorization ${role}`),
    );
    const url = new URL(database.url);
    url.username = role;
    url.password = 'modest';
    const modest = postgres(url.toString());
    expect((await migrate(modest, {}, SCHEMA)).applied).toHaveLength(3);
    await modest.stop();
    await engine.session((session) => session.run(`drop owned by ${role}; drop role ${role}`));
  });

  test('a database that cannot hold every text is refused by name of its encoding', async () => {
    const latin = `${new URL(database.url).pathname.slice(1)}_latin`;
    await engine.session((session) =>
      session.run(`create database "${latin}" template template0 encoding 'LATIN1' locale 'C'`),
    );
    const url = new URL(database.url);
    url.pathname = `/${latin}`;
    const there = postgres(url.toString());
    const failed = migrate(there, {}, SCHEMA);
    await expect(failed).rejects.toThrow(/is encoded in LATIN1.*needs one in UTF8/);
    await expect(failed).rejects.toBeInstanceOf(NotSupported);
    await there.stop();
    await engine.session((session) => session.run(`drop database "${latin}" with (force)`));
  });
});
