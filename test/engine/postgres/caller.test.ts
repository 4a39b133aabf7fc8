import { sql as drizzleSql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import { drizzle as drizzlePostgresJs } from 'drizzle-orm/postgres-js';
import knex from 'knex';
import { Kysely, PostgresDialect } from 'kysely';
import pg from 'pg';
import postgresJs from 'postgres';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { ConnectionFailed, DuplicateKey, InvalidInput, LeaseLost } from '../../../src/base/errors.ts';
import {
  callInTransaction as call,
  type PostgresEngine,
  postgres,
  SchemaName,
  statement,
} from '../../../src/engine/postgres/index.ts';
import { WRITE_TO_BOTH_IN } from '../../../src/engine/postgres/server/citus.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

const callInTransaction = (tx: unknown, text: string, value: string): Promise<Record<string, unknown>[]> =>
  call(tx, new SchemaName('pawl'), { text, value });

/** A library in the user's hands: how it opens a transaction, and what it looks like outside one. */
interface Library {
  name: string;
  /** Runs `fn` in a transaction of the library, which rolls back when it throws. */
  inTransaction(fn: (tx: unknown) => Promise<unknown>): Promise<unknown>;
  /** The library's pool or root object. */
  outside(): unknown;
}

let database: Awaited<ReturnType<typeof freshDatabase>>;
let engine: PostgresEngine;
let pool: pg.Pool;
let knexRoot: ReturnType<typeof knex>;
let sqlRoot: postgresJs.Sql;
let kyselyRoot: Kysely<Record<string, never>>;

beforeAll(async () => {
  database = await freshDatabase({ migrated: false });
  engine = postgres(database.url);
  pool = newPool();
  knexRoot = knex({ client: 'pg', connection: database.url });
  sqlRoot = postgresJs(database.url, { onnotice: () => {} });
  kyselyRoot = new Kysely({ dialect: new PostgresDialect({ pool: newPool() }) });
  await engine.session((session) =>
    session.run(`create schema pawl; create table pawl.both (nothing integer); create table called (key text primary key, payload jsonb not null);
      create function call_me(request jsonb) returns table (key text, type text) language sql as $$
        insert into called values (request ->> 'key', request) returning key, jsonb_typeof(payload)
      $$`),
  );
});

beforeEach(async () => {
  await engine.query(statement('test.truncate', 'truncate called'));
});

afterAll(async () => {
  await knexRoot.destroy();
  await sqlRoot.end();
  await kyselyRoot.destroy();
  await pool.end();
  await engine.stop();
  await database.drop();
});

/** A pool calls itself ended while its connections still say goodbye: removing the database then breaks one, without a listener. */
function newPool(): pg.Pool {
  const newOne = new pg.Pool({ connectionString: database.url }).on('error', () => {});
  // One that a test breaks tells it by an event, too.
  return newOne.on('connect', (client) => client.on('error', () => {}));
}

const libraries: Library[] = [
  {
    name: 'pg',
    inTransaction: async (fn) => {
      const client = await pool.connect();
      try {
        await client.query('begin');
        const value = await fn(client);
        await client.query('commit');
        return value;
      } catch (error) {
        await client.query('rollback');
        throw error;
      } finally {
        client.release();
      }
    },
    outside: () => pool,
  },
  { name: 'postgres.js', inTransaction: (fn) => sqlRoot.begin(fn), outside: () => sqlRoot },
  { name: 'kysely', inTransaction: (fn) => kyselyRoot.transaction().execute(fn), outside: () => kyselyRoot },
  { name: 'knex', inTransaction: (fn) => knexRoot.transaction(fn), outside: () => knexRoot },
  {
    name: 'drizzle on pg',
    inTransaction: (fn) => drizzle(pool).transaction(fn),
    outside: () => drizzle(pool),
  },
  {
    name: 'drizzle on postgres.js',
    // drizzle changes how its client writes jsonb, so it has one of its own.
    inTransaction: async (fn) => {
      const client = postgresJs(database.url);
      try {
        return await drizzlePostgresJs(client).transaction(fn);
      } finally {
        await client.end();
      }
    },
    outside: () => drizzlePostgresJs(postgresJs(database.url)),
  },
  { name: 'Pawl', inTransaction: (fn) => engine.transaction(fn), outside: () => engine },
];

const CALL = 'select key, type, 1 ? 2 as literal from call_me($1::jsonb)'.replace('1 ? 2', `'{"a":1}'::jsonb ? 'a'`);

/** Everything that a library might quote, escape or expand. */
const AWKWARD = { key: 'a', text: `quote ' double " back \\ dollar $1 mark ? colon :x é 漢 \u{1f600}`, list: [1, 2] };

async function stored(): Promise<unknown[]> {
  return (await engine.query<{ payload: unknown }>(statement('test.stored', 'select payload from called'))).map(
    (row) => row.payload,
  );
}

describe.each(libraries)('a call in a transaction of $name', (library) => {
  test('is committed with it, its parameter unchanged', async () => {
    const rows = await library.inTransaction((tx) => callInTransaction(tx, CALL, JSON.stringify(AWKWARD)));
    expect(rows).toEqual([{ key: 'a', type: 'object', literal: true }]);
    expect(await stored()).toEqual([AWKWARD]);
  });

  test('is rolled back with it', async () => {
    const failed = library.inTransaction(async (tx) => {
      await callInTransaction(tx, CALL, '{"key":"b"}');
      throw new RangeError('no');
    });
    await expect(failed).rejects.toThrow('no');
    expect(await stored()).toEqual([]);
  });

  test('fails with an error of ours, whatever the library made of it', async () => {
    const failed = library.inTransaction(async (tx) => {
      await callInTransaction(tx, CALL, '{"key":"c"}');
      const error = await callInTransaction(tx, CALL, '{"key":"c"}').catch((cause: unknown) => cause);
      expect(error).toBeInstanceOf(DuplicateKey);
      expect(error).toMatchObject({ constraint: 'called_pkey' });
      throw error;
    });
    await expect(failed).rejects.toBeInstanceOf(DuplicateKey);
    expect(await stored()).toEqual([]);
  });

  test('has the write before it that Citus needs, which answers with no row', async () => {
    await library.inTransaction(async (tx) => {
      await callInTransaction(tx, WRITE_TO_BOTH_IN, '');
      await callInTransaction(tx, CALL, '{"key":"h"}');
    });
    expect(await stored()).toEqual([{ key: 'h' }]);
  });

  test('is refused outside a transaction, where it would be committed on its own', async () => {
    await expect(callInTransaction(library.outside(), CALL, '{"key":"d"}')).rejects.toBeInstanceOf(InvalidInput);
    expect(await stored()).toEqual([]);
  });
});

/** Not of postgres.js: after a lost connection it throws at the next call, where no caller can catch it. */
describe.each(libraries.filter(({ name }) => !name.includes('postgres.js')))(
  'a call in a transaction of $name',
  (library) => {
    test('whose connection had broken says so, and blames no pool', async () => {
      let failed: unknown;
      const broken = library.inTransaction(async (tx) => {
        const [row] = await callInTransaction(tx, 'select pg_backend_pid() as pid, $1 as given', 'x');
        await engine.query(statement('test.end', 'select pg_terminate_backend($1)'), [row?.['pid']]);
        await until('a call is not sent', async () => {
          failed = await callInTransaction(tx, 'select $1 as given', 'x').catch((cause: unknown) => cause);
          return failed instanceof ConnectionFailed && failed.outcome === 'nothing_written';
        });
        throw failed;
      });
      await expect(broken).rejects.toThrow();
      expect(failed).toHaveProperty('message', expect.stringMatching(/connection .*(broken|lost)/));
      expect(failed).toHaveProperty('message', expect.not.stringMatching(/pool/));
    });
  },
);

/** Refusals of the two engines that prisma has had, as 7.10 with @prisma/adapter-pg and 6.19 told them. */
const OF_PRISMA = [
  {
    engine: 'a driver adapter',
    metaOf: (originalCode: string, originalMessage: string): object => ({
      driverAdapterError: {
        name: 'DriverAdapterError',
        cause: {
          originalCode,
          originalMessage,
          kind: 'postgres',
          column: 'kind',
          constraint: { index: 'called_pkey' },
        },
      },
    }),
    constraint: 'called_pkey',
    field: 'kind',
  },
  {
    engine: 'its own engine',
    metaOf: (code: string, message: string): object => ({ code, message: `ERROR: ${message}` }),
    constraint: undefined,
    field: undefined,
  },
];

describe.each(OF_PRISMA)('a call in a transaction of prisma with $engine', ({ metaOf, constraint, field }) => {
  const refused = (code: string): Promise<unknown> => {
    const error = Object.assign(new Error('Invalid `prisma.$queryRawUnsafe()` invocation'), {
      code: 'P2010',
      meta: metaOf(code, 'what the server said'),
    });
    return callInTransaction({ $queryRawUnsafe: () => Promise.reject(error) }, CALL, '{}').catch(
      (cause: unknown) => cause,
    );
  };

  test('fails with an error of ours, too', async () => {
    const lost = await refused('PW004');
    expect(lost).toBeInstanceOf(LeaseLost);
    expect(lost).toHaveProperty('message', 'what the server said');
    const invalid = await refused('PW001');
    expect(invalid).toBeInstanceOf(InvalidInput);
    expect(invalid).toHaveProperty('field', field);
    const duplicate = await refused('23505');
    expect(duplicate).toBeInstanceOf(DuplicateKey);
    expect(duplicate).toHaveProperty('constraint', constraint);
    expect(await refused('25P02')).toMatchObject({ name: 'DatabaseError', sqlState: '25P02' });
  });
});

describe('a call', () => {
  test('through a pg client outside a transaction is refused', async () => {
    const client = await pool.connect();
    await expect(callInTransaction(client, CALL, '{"key":"e"}')).rejects.toThrow(/outside a transaction/);
    client.release();
  });

  test("through a session is committed with the session's transaction, and refused without one", async () => {
    const session = await engine.connect();
    await expect(callInTransaction(session, CALL, '{"key":"f"}')).rejects.toThrow(/outside a transaction/);
    await session.run('begin');
    await callInTransaction(session, CALL, '{"key":"f"}');
    await session.run('rollback; begin');
    await callInTransaction(session, CALL, '{"key":"g"}');
    await session.run('commit');
    session.release();
    expect(await stored()).toEqual([{ key: 'g' }]);
  });

  test('through a connection of postgres.js that breaks meanwhile is a ConnectionFailed', async () => {
    // What 3.4.9 answers. It then throws where no caller can catch it, so no real connection is broken here.
    const closed = Object.assign(new Error('write CONNECTION_CLOSED 127.0.0.1:5432'), { code: 'CONNECTION_CLOSED' });
    const tx = Object.assign(() => {}, { unsafe: () => Promise.reject(closed), savepoint: () => {} });
    await expect(callInTransaction(tx, CALL, '{}')).rejects.toBeInstanceOf(ConnectionFailed);
  });

  test('in a drizzle transaction sees what drizzle wrote there before', async () => {
    await drizzle(pool).transaction(async (tx) => {
      await tx.execute(drizzleSql`insert into called values ('before', '{}')`);
      const rows = await callInTransaction(tx, 'select count(*)::int as n, $1 as given from called', 'x');
      expect(rows).toEqual([{ n: 1, given: 'x' }]);
    });
  });

  test.each([undefined, null, 7, 'tx', {}, [], () => 1])(
    'with %s for a transaction lists what is accepted',
    async (tx) => {
      await expect(callInTransaction(tx, CALL, '{}')).rejects.toThrow(/postgres\.js, kysely, drizzle, knex, prisma/);
    },
  );

  test('whose statement has another parameter than one $1 is refused', async () => {
    for (const text of ['select 1', 'select $1, $1', 'select $1, $2', 'select $2']) {
      await expect(engine.transaction((tx) => callInTransaction(tx, text, 'x'))).rejects.toBeInstanceOf(InvalidInput);
    }
  });
});
