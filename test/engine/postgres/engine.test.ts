import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  Conflict,
  ConnectionFailed,
  DatabaseError,
  DuplicateKey,
  InvalidInput,
  LeaseLost,
  LockNotAvailable,
  NotFound,
  SchemaMismatch,
  StatementTimeout,
  Stopped,
} from '../../../src/base/errors.ts';
import {
  isTransient,
  type PostgresEngine,
  postgres,
  type Step,
  statement,
} from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';

const once1 = (text: string) => statement('test.adhoc', text, { prepare: false });
const caught = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

let database: Awaited<ReturnType<typeof freshDatabase>>;
let engine: PostgresEngine;
let proxy: Proxy;

beforeAll(async () => {
  database = await freshDatabase({ migrated: false });
  engine = postgres(database.url);
  proxy = await startProxy(database.url);
  await engine.query(once1('create table thing (id int primary key, body text)'));
});

afterAll(async () => {
  await engine.stop();
  await proxy.stop();
  await database.drop();
});

describe('query', () => {
  test('runs a prepared statement on the pool and gives its rows', async () => {
    const sql = statement('test.sum', 'select $1::int + $2::int as sum');
    expect(await engine.query(sql, [1, 2])).toEqual([{ sum: 3 }]);
    expect(await engine.query(sql, [3, 4])).toEqual([{ sum: 7 }]);
    const prepared = await engine.session(async (session) => {
      await session.query(sql, [1, 1]);
      return session.query<{ name: string }>(once1('select name from pg_prepared_statements'));
    });
    expect(prepared.map((row) => row.name)).toContain('pawl:test.sum');
  });

  test('prepares nothing when that is switched off', async () => {
    await using plain = postgres(database.url, { prepare: false, max: 1 });
    const sql = statement('test.plain', 'select $1::int as n');
    expect(await plain.query(sql, [1])).toEqual([{ n: 1 }]);
    expect(await plain.query(once1('select name from pg_prepared_statements'))).toEqual([]);
  });

  test('plans a prepared statement anew after a migration changed its result', async () => {
    await using single = postgres(database.url, { max: 1 });
    await single.query(once1('create table widening (id int)'));
    const sql = statement('test.widening', 'select * from widening');
    expect(await single.query(sql)).toEqual([]);
    await single.query(once1('alter table widening add column extra int'));
    await single.query(once1('insert into widening values (1, 2)'));
    expect(await single.query(sql)).toEqual([{ id: 1, extra: 2 }]);
  });

  test('keeps the connection after a refused statement', async () => {
    await using single = postgres(database.url, { max: 1 });
    const pid = once1('select pg_backend_pid() as pid');
    const before = await single.query(pid);
    await caught(single.query(once1('select 1/0')));
    expect(await single.query(pid)).toEqual(before);
  });
});

describe('a failure of the database', () => {
  test('is a ConnectionFailed when the backend is terminated in the middle of a statement', async () => {
    await using victim = postgres(database.url, { max: 1 });
    const [row] = await victim.query<{ pid: number }>(once1('select pg_backend_pid() as pid'));
    const sleeping = caught(victim.query(once1('select pg_sleep(60)')));
    await eventually(async () => {
      const [activity] = await engine.query<{ state: string }>(
        once1('select state from pg_stat_activity where pid = $1'),
        [row?.pid],
      );
      expect(activity?.state).toBe('active');
    });
    await engine.query(once1('select pg_terminate_backend($1)'), [row?.pid]);
    const error = await sleeping;
    expect(error).toBeInstanceOf(ConnectionFailed);
    expect(error).toMatchObject({ outcome: 'unknown', cause: { code: '57P01' } });
    expect(isTransient(error)).toBe(true);
    // The engine has thrown that connection away and goes on.
    expect(await victim.query(once1('select 1 as n'))).toEqual([{ n: 1 }]);
  });

  test('is a ConnectionFailed with nothing written when no server listens on the port', async () => {
    const gone = await startProxy(database.url);
    await gone.stop();
    await using unreachable = postgres(gone.url);
    const error = await caught(unreachable.query(once1('select 1')));
    expect(error).toBeInstanceOf(ConnectionFailed);
    expect(error).toMatchObject({ outcome: 'nothing_written' });
    expect(isTransient(error)).toBe(true);
  });

  test('is a ConnectionFailed with unknown outcome when the network cuts a statement off', async () => {
    await using remote = postgres(proxy.url);
    await remote.query(once1('select 1'));
    const running = caught(remote.query(once1('select pg_sleep(60)')));
    await eventually(async () => {
      const active = await engine.query(
        once1(
          "select 1 from pg_stat_activity where datname = current_database() and query like '%pg_sleep(60)' and state = 'active'",
        ),
      );
      expect(active).toHaveLength(1);
    });
    proxy.cut();
    expect(await running).toMatchObject({ code: 'connection_failed', outcome: 'unknown' });
  });

  test('survives an idle connection being lost', async () => {
    const log = recordLog();
    await using remote = postgres(proxy.url, { logger: log });
    await remote.query(once1('select 1'));
    proxy.cut();
    await eventually(() => expect(log.count('debug', /idle connection/)).toBe(1));
    expect(await remote.query(once1('select 1 as n'))).toEqual([{ n: 1 }]);
  });

  test('is a LockNotAvailable when a row is held and was asked for with nowait', async () => {
    await engine.query(once1('insert into thing values (1)'));
    await engine.transaction(async (tx) => {
      await tx.query(once1('select from thing where id = 1 for update'));
      const error = await caught(engine.query(once1('select from thing where id = 1 for update nowait')));
      expect(error).toBeInstanceOf(LockNotAvailable);
    });
  });

  test('is a DuplicateKey that names the constraint', async () => {
    await engine.query(once1('insert into thing values (2)'));
    const error = await caught(engine.query(once1('insert into thing values (2)')));
    expect(error).toBeInstanceOf(DuplicateKey);
    expect(error).toMatchObject({ constraint: 'thing_pkey', cause: { code: '23505' } });
  });

  test('is a StatementTimeout when the statement ran too long', async () => {
    const error = await caught(
      engine.session((session) => session.run("set statement_timeout = '20ms'; select pg_sleep(5)")),
    );
    expect(error).toBeInstanceOf(StatementTimeout);
  });

  test.each([
    ['select * from pawl.nothing_here', 'pawl.nothing_here'],
    ["select pawl.nothing_here('{}'::jsonb)", 'pawl.nothing_here'],
  ])('is a SchemaMismatch that says what to do for %s', async (text, name) => {
    const error = await caught(engine.query(once1(text)));
    expect(error).toBeInstanceOf(SchemaMismatch);
    expect(String(error)).toContain('run "pawl migrate"');
    expect(String(error)).toContain(name.split('.')[0]);
  });

  test("is a DatabaseError, not ours, when a table of the user's own is missing", async () => {
    const error = await caught(engine.query(once1('select * from orders')));
    expect(error).toBeInstanceOf(DatabaseError);
    expect(error).toMatchObject({ sqlState: '42P01' });
  });

  test.each([
    ['PW001', InvalidInput],
    ['PW002', NotFound],
    ['PW003', Conflict],
    ['PW004', LeaseLost],
    ['PW999', DatabaseError],
  ])('raised by our own functions as %s keeps its message', async (state, type) => {
    const error = await caught(
      engine.query(once1(`do $$ begin raise exception 'say this' using errcode = '${state}'; end $$`)),
    );
    expect(error).toBeInstanceOf(type);
    expect(error).toMatchObject({ message: 'say this', cause: { code: state } });
  });
});

describe('a session', () => {
  test('answers a text of several statements with one result each', async () => {
    const results = await engine.session((session) =>
      session.run("select 1 as a; begin; insert into thing values (10, 'x') returning id; commit; select 2 as b"),
    );
    expect(results.map((result) => result.command)).toEqual(['SELECT', 'BEGIN', 'INSERT', 'COMMIT', 'SELECT']);
    expect(results.map((result) => result.rows)).toEqual([[{ a: 1 }], [], [{ id: 10 }], [], [{ b: 2 }]]);
    expect(results[2]?.rowCount).toBe(1);
  });

  test('left inside a transaction is rolled back, and never reaches the next user', async () => {
    await using single = postgres(database.url, { max: 1 });
    const session = await single.connect();
    await session.run('begin; insert into thing values (11)');
    session.release();
    session.release();
    expect(await single.query(once1('select pg_current_xact_id_if_assigned() as xid'))).toEqual([{ xid: null }]);
    expect(await single.query(once1('select from thing where id = 11'))).toEqual([]);
  });

  test('whose text began a transaction and failed never reaches the next user', async () => {
    const narrow = postgres(database.url, { max: 1 });
    for (let n = 0; n < 50; n += 1) {
      const failed = await caught(narrow.session((session) => session.run('begin; select 1; select 1 / 0')));
      expect(failed).toBeInstanceOf(DatabaseError);
      expect(await narrow.query(once1('select 1 as one'))).toEqual([{ one: 1 }]);
    }
    await narrow.stop();
  });

  describe('that sends several statements at once', () => {
    const BEGIN = { statement: statement('batch.begin', 'begin'), values: [] };
    const COMMIT = { statement: statement('batch.commit', 'commit'), values: [] };
    const ADD = statement('batch.add', 'insert into thing values ($1::int, $2::text)');
    const add = (key: number, body: string | null): Step => ({ statement: ADD, values: [key, body] });
    const bodies = statement('batch.bodies', 'select id, body from thing where id = any ($1::int[]) order by id');

    test('gets the rows of each, and prepares them once', async () => {
      const session = await engine.connect();
      const read = { statement: bodies, values: ['{71,72}'] };
      const first = await session.batch([BEGIN, add(71, 'one'), add(72, null), read, COMMIT]);
      const second = await session.batch([read]);
      const known = await session.run("select name from pg_prepared_statements where name ~ '^pawl_batch'");
      session.release();
      const rows = [
        ['71', 'one'],
        ['72', null],
      ];
      expect(first).toEqual([[], [], [], rows, []]);
      expect(second).toEqual([rows]);
      expect(known[0]?.rows).toHaveLength(4);
    });

    test('sends every text as it is, however long', async () => {
      const session = await engine.connect();
      const echo = statement('batch.echo', 'select $1::text');
      const texts = ['', 'ü', `${'x'.repeat(100)}é`, `${'😀'.repeat(3000)}`, 'y'.repeat(70), "it's \\"];
      const answers = await session.batch(texts.map((text) => ({ statement: echo, values: [text] })));
      session.release();
      expect(answers).toEqual(texts.map((text) => [[text]]));
    });

    test('runs none after one that fails, and never reaches the next user inside its transaction', async () => {
      const session = await engine.connect();
      const error = await caught(session.batch([BEGIN, add(73, 'kept'), COMMIT, BEGIN, add(73, 'again'), COMMIT]));
      expect(error).toBeInstanceOf(DuplicateKey);
      expect(session.isBroken).toBe(false);
      session.release();
      expect(await engine.query(bodies, ['{73}'])).toEqual([{ id: 73, body: 'kept' }]);
    });

    test('may do so again after a failure, on the same connection', async () => {
      const session = await engine.connect();
      const divide: Step = { statement: statement('batch.divide', 'select 1 / $1::int'), values: [0] };
      expect(await caught(session.batch([divide]))).toBeInstanceOf(DatabaseError);
      expect(await session.batch([{ ...divide, values: [1] }])).toEqual([[['1']]]);
      session.release();
    });

    test('only where statements may be prepared, and the driver takes messages one by one', async () => {
      const unprepared = postgres(database.url, { prepare: false });
      const pool = new pg.Pool({ connectionString: database.url, pipeline: true } as pg.PoolConfig);
      pool.on('error', () => {});
      for (const one of [engine, unprepared, postgres(pool, { logger: recordLog() })]) {
        const session = await one.connect();
        expect(session.takesBatches).toBe(one === engine);
        session.release();
      }
      await unprepared.stop();
      await pool.end();
    });

    test('fails as a connection does when the network is cut', async () => {
      const cut = postgres(proxy.url);
      const session = await cut.connect();
      const sleep: Step = { statement: statement('batch.sleep', 'select pg_sleep(30)'), values: [] };
      const failing = caught(session.batch([sleep]));
      proxy.cut();
      expect(await failing).toBeInstanceOf(ConnectionFailed);
      expect(session.isBroken).toBe(true);
      session.release();
      await cut.stop();
    });
  });

  test('refuses to be used after its release', async () => {
    const session = await engine.connect();
    session.release();
    await expect(session.run('select 1')).rejects.toBeInstanceOf(Stopped);
  });
});

describe("a user's own pool", () => {
  test('is warned about once when it has no error listener, and never ended', async () => {
    const log = recordLog();
    const pool = new pg.Pool({ connectionString: database.url });
    const adopted = postgres(pool, { logger: log });
    await adopted.query(once1('select 1'));
    await adopted.query(once1('select 1'));
    expect(log.count('warn', /no "error" listener/)).toBe(1);
    expect(pool.listenerCount('error')).toBe(1);
    await adopted.stop();
    expect(pool.listenerCount('error')).toBe(0);
    pool.on('error', () => {});
    expect((await pool.query('select 1 as n')).rows).toEqual([{ n: 1 }]);
    await pool.end();
  });

  test('with a listener is not warned about', async () => {
    const log = recordLog();
    const pool = new pg.Pool({ connectionString: database.url });
    pool.on('error', () => {});
    await using adopted = postgres(pool, { logger: log });
    await adopted.query(once1('select 1'));
    expect(log.lines).toEqual([]);
    await adopted.stop();
    await pool.end();
  });
});

describe('construction', () => {
  test('refuses an unknown option, a bad one, and a source that is no source', () => {
    const unknown: object = { prepared: true };
    expect(() => postgres(database.url, unknown)).toThrow(
      'unknown option "prepared" for postgres; did you mean "prepare"?',
    );
    expect(() => postgres(database.url, { max: 0 })).toThrow(
      '"max" for postgres must be a whole number of 1 or more, but was 0',
    );
    const hasty: object = { connectTimeoutMs: '5s', logger: console };
    expect(() => postgres(database.url, hasty)).toThrow(/connectTimeoutMs.*but was "5s"/);
    const mute: object = { logger: { info: () => {} } };
    expect(() => postgres(database.url, mute)).toThrow(/must be a logger with debug, info, warn and error/);
    expect(() => postgres(database.url, { directUrl: 'http://secret@host' })).toThrow(
      /directUrl.*must be a URL such as/,
    );
    expect(() => postgres(database.url, { directUrl: 'http://secret@host' })).not.toThrow(/secret@/);
    const unreadable = (): unknown => postgres(database.url, { directUrl: 'postgres://me:sec/ret@host/db' });
    expect(unreadable).toThrow(InvalidInput);
    expect(unreadable).toThrow(/"directUrl".*cannot be read/);
    expect(unreadable).not.toThrow(/ret@/);
    expect(() => postgres('mysql://secret@host')).toThrow(InvalidInput);
    expect(() => postgres('mysql://secret@host')).not.toThrow(/secret@/);
  });

  test('describes itself without the password', async () => {
    const url = new URL(database.url);
    url.password ||= 'hunter2';
    await using described = postgres(url.toString());
    const description = await described.describe();
    expect(description).toMatchObject({ kind: 'postgres', embedded: false, dataDir: null, temporary: false });
    expect(description.url).toContain(':***@');
    expect(description.serverVersion).toMatch(/^\d+/);
    expect(JSON.stringify(description)).not.toContain(url.password);
  });
});

test('no part of a password is shown of a URL of a socket, whatever characters it has', async () => {
  for (const password of ['hunter2', 'hun:ter2', 'hun@ter2', 'h:un@ter2@']) {
    await using described = postgres(`postgres://app:${password}@/db?host=/nowhere`);
    expect(await described.address()).toBe('postgres://app:***@/db?host=/nowhere');
  }
});

describe('stop', () => {
  test('waits for what is under way, refuses what comes later, and may be called twice', async () => {
    const stopping = postgres(database.url);
    const running = stopping.query(once1('select pg_sleep(0.2), 5 as n'));
    const stopped = stopping.stop();
    await expect(stopping.query(once1('select 1'))).rejects.toBeInstanceOf(Stopped);
    expect(await running).toMatchObject([{ n: 5 }]);
    await stopped;
    await stopping.stop();
  });

  test('waits for what is under way with times beyond those of a timer of Node, which would end at once', async () => {
    const stopping = postgres(database.url, { connectTimeoutMs: 2 ** 31, stopTimeoutMs: 2 ** 31 });
    const running = stopping.query(once1('select pg_sleep(0.2), 5 as n'));
    const stopped = stopping.stop();
    expect(await running).toMatchObject([{ n: 5 }]);
    await stopped;
  });

  test('breaks off what does not end in time', async () => {
    const stopping = postgres(database.url, { stopTimeoutMs: 50 });
    const forgotten = await stopping.connect();
    const running = caught(stopping.query(once1('select pg_sleep(60) /* to be broken off */')));
    const active =
      "select 1 from pg_stat_activity where datname = current_database() and query like '%off */' and state = 'active'";
    await eventually(async () => expect(await engine.query(once1(active))).toHaveLength(1));
    await stopping.stop();
    expect(await running).toBeInstanceOf(ConnectionFailed);
    forgotten.release();
  });

  test('of an engine that was never used does nothing', async () => {
    await postgres(database.url).stop();
    await postgres().stop();
  });

  test('leaves no handle open: the process ends by itself', async () => {
    const program = `
      import { postgres, statement } from ${JSON.stringify(new URL('../../../dist/engine/postgres/index.js', import.meta.url).href)};
      const engine = postgres(${JSON.stringify(database.url)});
      let hear;
      const heard = new Promise((resolve) => { hear = resolve; });
      await engine.listen('bye', hear);
      await engine.migrate();
      await Promise.all([heard, engine.query(statement('t', "select pg_notify('bye', 'x')"))]);
      await engine.transaction((tx) => tx.query(statement('u', 'select 1')));
      await engine.stop();
      console.log('stopped', process.getActiveResourcesInfo().filter((r) => r !== 'PipeWrap' && r !== 'TTYWrap').join());
    `;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      cwd: fileURLToPath(new URL('../../..', import.meta.url)),
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let out = '';
    child.stdout.on('data', (data) => {
      out += data;
    });
    // When its output has come, too.
    const [code] = await once(child, 'close');
    expect({ code, out }).toEqual({ code: 0, out: 'stopped \n' });
  });
});
