import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../../src/actor/index.ts';
import { ConnectionFailed, NotSupported, SchemaMismatch } from '../../../src/base/errors.ts';
import { createCapture, sql } from '../../../src/capture/index.ts';
import { type PoolLike, type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually, until } from '../../support/eventually.ts';
import { type RecordedLog, recordLog } from '../../support/log.ts';
import { most } from '../../support/long.ts';

/** A database and a role of its own, which an administrator changes under a program. */
interface House {
  /** As the program connects. */
  readonly url: string;
  readonly log: RecordedLog;
  /** An engine of the program; stopped with the test. */
  readonly open: () => PostgresEngine;
  /** From another database, as an administrator. `DB` and `ROLE` stand for the names. */
  readonly admin: (text: string) => Promise<void>;
  /** Ends every connection of the program. */
  readonly cut: () => Promise<void>;
}

/** @param as  `superuser`: for what makes triggers; no limit of connections counts for it */
async function openHouse(as = ''): Promise<House> {
  const database = await freshDatabase();
  const role = `test_${randomBytes(6).toString('hex')}`;
  const url = new URL(database.url);
  const outside = new URL(database.url);
  outside.pathname = '/postgres';
  const client = new pg.Client({ connectionString: outside.href });
  await client.connect();
  const admin = async (text: string): Promise<void> => {
    await client.query(text.replaceAll('DB', `"${database.name}"`).replaceAll('ROLE', role));
  };
  await admin(`create role ROLE login ${as} password 'first' in role "${url.username}"`);
  url.username = role;
  url.password = 'first';
  const log = recordLog();
  onTestFinished(async () => {
    await admin('drop owned by ROLE').catch(() => {});
    await database.drop();
    await admin('drop role ROLE');
    await client.end();
  });
  return {
    url: url.href,
    log,
    admin,
    open: () => {
      const engine = postgres(url.href, { max: 6, logger: log });
      onTestFinished(() => engine.stop());
      return engine;
    },
    cut: () => admin(`select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ROLE'`),
  };
}

/** What is in the way for a while, and how it ends. */
const OUTAGES: Readonly<Record<string, readonly [begin: string, end: string]>> = {
  'is read-only': [
    'alter database DB set default_transaction_read_only = on',
    'alter database DB reset default_transaction_read_only',
  ],
  'gives every statement a millisecond': [
    `alter database DB set statement_timeout = '1ms'`,
    'alter database DB reset statement_timeout',
  ],
  'has no connection left': ['alter database DB connection limit 0', 'alter database DB connection limit -1'],
  'takes no connections': ['alter database DB allow_connections false', 'alter database DB allow_connections true'],
  'does not let the role log in': ['alter role ROLE nologin', 'alter role ROLE login'],
  'has another password for the role': [`alter role ROLE password 'second'`, `alter role ROLE password 'first'`],
};

/** What runs for as long as its process: begun now, it has to do its work some time after the outage. */
interface Runner {
  /** Before the outage. */
  readonly prepare: (engine: PostgresEngine) => Promise<void>;
  readonly run: (engine: PostgresEngine) => {
    readonly started: Promise<void>;
    readonly errors: unknown[];
    /** After the outage: resolves when it has done something. */
    readonly works: () => Promise<void>;
    readonly stop: () => Promise<void>;
  };
}

const KINDS = { kinds: { job: {} } };

function queueRunner(hold: 'lease' | 'transaction'): Runner {
  return {
    prepare: (engine) => createQueue(engine, 'q', KINDS).register(),
    run: (engine) => {
      const queue = createQueue(engine, 'q', KINDS);
      const ran = new Set<unknown>();
      const worker = queue.work(
        { job: ({ payload }) => void ran.add(payload) },
        { hold, poll: '200ms', concurrency: 2 },
      );
      const errors: unknown[] = [];
      worker.events.on('error', ({ error }) => errors.push(error));
      return {
        started: worker.started,
        errors,
        works: async () => {
          for (const n of [1, 2, 3]) await queue.enqueue('job', n);
          await until('all have run', () => [1, 2, 3].every((n) => ran.has(n)));
        },
        stop: () => worker.stop({ timeout: 0 }),
      };
    },
  };
}

const Thing = actor('thing', { initial: 'one', states: (state) => ({ one: state({ run: (a) => a.done(7) }) }) });

const RUNNERS: Readonly<Record<string, Runner>> = {
  'a worker (lease)': queueRunner('lease'),
  'a worker (transaction)': queueRunner('transaction'),
  'a dispatcher': {
    prepare: (engine) => createActors(engine, [Thing]).register(),
    run: (engine) => {
      const actors = createActors(engine, [Thing]);
      const dispatcher = actors.run({ poll: '200ms' });
      const errors: unknown[] = [];
      dispatcher.events.on('error', ({ error }) => errors.push(error));
      return {
        started: dispatcher.started,
        errors,
        works: async () => {
          expect((await actors.waitFor(await actors.create(Thing, {}))).result).toBe(7);
        },
        stop: () => dispatcher.stop({ timeout: 0 }),
      };
    },
  },
  'a projection': {
    prepare: async (engine) => {
      await engine.query(statement('test_table', 'create table thing (id bigint primary key, name text)'));
      await projected(engine).capture.apply();
    },
    run: (engine) => {
      const { projection } = projected(engine);
      const errors: unknown[] = [];
      projection.events.on('error', ({ error }) => errors.push(error));
      const worker = projection.run({ poll: '100ms' });
      return {
        started: worker.started,
        errors,
        works: async () => {
          await engine.query(statement('test', `insert into thing values (1, 'a')`));
          await projection.settled();
        },
        stop: () => worker.stop(),
      };
    },
  },
};

function projected(engine: PostgresEngine): {
  capture: ReturnType<typeof createCapture>;
  projection: ReturnType<ReturnType<typeof createCapture>['project']>;
} {
  const capture = createCapture(engine, { entity: 'thing', root: 'thing' });
  const projection = capture.project({
    into: 'thing_copy',
    columns: { name: 'text' },
    build: sql`select t.id, t.name from thing t where t.id = any ($1::bigint[])`,
  });
  return { capture, projection };
}

describe.for(Object.entries(OUTAGES))('a database that %s', ([name, [begin, end]]) => {
  // A projection that finds nothing to do writes nothing, and for its role no limit counts.
  const runners = Object.entries(RUNNERS).filter(
    ([runner]) => runner !== 'a projection' || !['is read-only', 'has no connection left'].includes(name),
  );
  const some = runners.filter((_, at) => name === 'is read-only' || at % 3 === name.length % 3);
  test.for(most(runners, ...some))(
    'is waited for by %s that is started meanwhile',
    async ([runner, { prepare, run }]) => {
      const house = await openHouse(runner === 'a projection' ? 'superuser' : '');
      const before = house.open();
      await prepare(before);
      await before.stop();
      await house.admin(begin);
      const engine = house.open();
      const { started, errors, works, stop } = run(engine);
      onTestFinished(stop);
      let hasStarted: unknown = false;
      started.then(
        () => (hasStarted = true),
        (error: unknown) => (hasStarted = error),
      );
      await until('it has said so, twice', () => errors.length >= 2);
      expect(hasStarted).toBe(false);
      expect(house.log.count('error', /gives up/)).toBe(0);
      await house.admin(end);
      await started;
      await works();
    },
  );
});

test.for(['lease', 'transaction'] as const)(
  'connections to a server that took no writes leave the pool (hold: %s)',
  async (hold) => {
    const house = await openHouse();
    const engine = house.open();
    const { started, works, errors } = queueRunner(hold).run(engine);
    await started;
    const queue = createQueue(engine, 'q', KINDS);
    await house.admin('alter database DB set default_transaction_read_only = on');
    await house.cut();
    // As many as the pool has, opened to the server as it is now.
    await until('calls are refused', async () => {
      const refused = await Promise.all(
        Array.from({ length: 6 }, () =>
          queue.enqueue('job', 0).then(
            () => undefined,
            (error: unknown) => error,
          ),
        ),
      );
      return refused.every((error) => error instanceof ConnectionFailed && error.outcome === 'nothing_written');
    });
    await house.admin('alter database DB reset default_transaction_read_only');
    for (let n = 0; n < 20; n += 1) await queue.enqueue('job', 0).catch((error: unknown) => errors.push(error));
    // Those that were opened meanwhile are met once each, at most.
    expect(errors.filter((error) => !(error instanceof ConnectionFailed))).toEqual([]);
    await Promise.all(Array.from({ length: 6 }, () => queue.enqueue('job', 0).catch(() => {})));
    await works();
  },
);

test('a lock is waited for while the database is read-only', async () => {
  const house = await openHouse();
  const before = house.open();
  await createLocks(before).request('a', () => {});
  await house.admin('alter database DB set default_transaction_read_only = on');
  const engine = house.open();
  const locks = createLocks(engine);
  const asked = locks.acquire('a', { wait: '40s', lease: '30s' });
  await expect(locks.tryAcquire('b')).rejects.toMatchObject({ code: 'connection_failed', outcome: 'nothing_written' });
  await house.admin('alter database DB reset default_transaction_read_only');
  const lock = await asked;
  await lock.release();
});

test('an enqueue in a READ ONLY transaction of the caller names both causes, once', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 2 });
  onTestFinished(() => engine.stop());
  const queue = createQueue(engine, 'q', KINDS);
  await queue.register();
  let runs = 0;
  const enqueued = engine.transaction(
    (tx) => {
      runs += 1;
      return queue.enqueue('job', 1, { tx });
    },
    { readOnly: true },
  );
  await expect(enqueued).rejects.toThrow(/begun READ ONLY, or this connection leads to a standby/);
  expect(runs).toBe(1);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin read only');
  await expect(queue.enqueue('job', 1, { tx: client })).rejects.toMatchObject({ code: 'connection_failed' });
});

test.for(Object.entries(RUNNERS))(
  '%s on a database without a schema says so, and works once it is migrated',
  async ([name, { run }]) => {
    const { url } = await freshDatabase({ migrated: false });
    const log = recordLog();
    const engine = postgres(url, { max: 6, logger: log });
    onTestFinished(() => engine.stop());
    const table = statement('test_table', 'create table thing (id bigint primary key, name text)');
    if (name === 'a projection') await engine.query(table);
    const { started, errors, works, stop } = run(engine);
    onTestFinished(stop);
    await until('it has tried twice', () => errors.length >= 2);
    expect(errors[0]).toBeInstanceOf(SchemaMismatch);
    expect(log.count('warn', /keeps trying$/)).toBeGreaterThan(0);
    expect(log.count('error', /gives up/)).toBe(0);
    await engine.migrate();
    await started;
    await works();
  },
);

const refusing = (): PoolLike => ({
  connect: () => Promise.reject(new NotSupported('this pool lends nothing')),
  on: () => {},
  removeListener: () => {},
  listenerCount: () => 1,
});

test.for(['a worker (lease)', 'a dispatcher'])('%s that can never start says that it gives up', async (name) => {
  const log = recordLog();
  const engine = postgres(refusing(), { max: 4, logger: log });
  onTestFinished(() => engine.stop());
  const { started, errors, stop } = RUNNERS[name]?.run(engine) ?? expect.fail('no such runner');
  onTestFinished(stop);
  await expect(started).rejects.toBeInstanceOf(NotSupported);
  await eventually(() => expect(errors.length).toBe(1));
  expect(log.count('error', /cannot start and gives up/)).toBe(1);
  expect(log.count('warn', /keeps trying/)).toBe(0);
});

test('a refused log-in is told as that, and not as a refused statement', async () => {
  const house = await openHouse();
  await house.admin('alter role ROLE nologin');
  await expect(house.open().describe()).rejects.toThrow(/refused the connection: .* \(SQLSTATE 28000\)/);
  const nowhere = new URL(house.url);
  nowhere.pathname = '/no_such_database';
  await house.admin('alter role ROLE login');
  const engine = postgres(nowhere.href);
  onTestFinished(() => engine.stop());
  await expect(engine.describe()).rejects.toThrow(/refused the connection: .* \(SQLSTATE 3D000\)/);
});
