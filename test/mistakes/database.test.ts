import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { ConnectionFailed, DatabaseError } from '../../src/base/errors.ts';
import { type PostgresEngine, type PostgresOptions, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue, type Unit } from '../../src/queue/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';

const ONE = statement('one', 'select 1');

async function openEngine(options: PostgresOptions = {}): Promise<PostgresEngine> {
  const { url } = await freshDatabase();
  const engine = postgres(url, options);
  onTestFinished(() => engine.stop());
  return engine;
}

/** Runs one job with the handler until the job has ended; `error` is the stored error. */
async function ended(
  engine: PostgresEngine,
  handler: (unit: Unit) => unknown,
): Promise<{ status: string; error: string }> {
  const queue = createQueue(engine, 'q', { kinds: { job: { attempts: 1 } } });
  const worker = queue.work(
    { job: (unit) => handler(unit as Unit) },
    { hold: 'transaction', concurrency: 1, poll: '50ms' },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  const { id } = await queue.enqueue('job', 1);
  const { status, error } = await until('the job has ended', async () => {
    const job = await queue.get(id);
    return job.status === 'error' || job.status === 'complete' ? job : undefined;
  });
  return { status, error: error ?? '' };
}

test('a job whose handler swallows the error of its own SQL ends in error, with the name of that error', async () => {
  const engine = await openEngine();
  const { status, error } = await ended(engine, async ({ tx }) => {
    await tx.query(statement('gone', 'select * from no_such_table')).catch(() => {});
  });
  expect(status).toBe('error');
  expect(error).toMatch(/relation "no_such_table" does not exist/);
});

test('a job whose handler swallows an error of the driver ends in error, and the error says why', async () => {
  const engine = await openEngine();
  const { status, error } = await ended(engine, async ({ tx }) => {
    await tx.client.query({ text: 'select * from no_such_table' }).catch(() => {});
  });
  expect(status).toBe('error');
  expect(error).toMatch(/a statement of the handler failed, and its error was caught/);
});

test('the log names a handler that commits by hand', async () => {
  const log = recordLog();
  const engine = await openEngine({ logger: log });
  const errors: string[] = [];
  const queue = createQueue(engine, 'q', { kinds: { job: {} } });
  const worker = queue.work(
    { job: ({ tx }) => tx.client.query({ text: 'commit' }) },
    { hold: 'transaction', concurrency: 1, poll: '50ms' },
  );
  onTestFinished(() => worker.stop({ timeout: 0 }));
  worker.events.on('error', ({ error }) => errors.push(String(error)));
  const { id } = await queue.enqueue('job', 1);
  await until('the log has the line', () => errors[0]);
  expect(errors[0]).toMatch(
    new RegExp(`kind "job" has ended the transaction of job ${id} itself, by a commit or rollback`),
  );
});

const THROWN: Readonly<Record<string, readonly [unknown, string]>> = {
  undefined: [undefined, 'undefined was thrown'],
  'an object with a bigint': [{ n: 1n }, '{ n: 1n } was thrown'],
  'an empty text': ['', "'' was thrown"],
};

test.for(Object.entries(THROWN))('a handler throws %s: the stored error says so', async ([, [thrown, words]]) => {
  const { error } = await ended(await openEngine(), () => {
    throw thrown;
  });
  expect(error).toBe(words);
});

test('the errors of a refused password and of a missing database say what to check', async () => {
  const { url } = await freshDatabase();
  const wrong = new URL(url);
  wrong.pathname = '/no_such_database';
  const engine = postgres(wrong.href);
  onTestFinished(() => engine.stop());
  await expect(engine.query(ONE)).rejects.toThrow(
    /^the database refused the connection: database "no_such_database" does not exist \(SQLSTATE 3D000\); create it, or mend the URL$/,
  );
});

test('a role without rights gets an error that says what to grant, for the objects of Pawl only', async () => {
  const { url } = await freshDatabase();
  const role = `test_${randomBytes(6).toString('hex')}`;
  const admin = new pg.Client({ connectionString: url });
  await admin.connect();
  await admin.query(`create role ${role} login password 'p'; create table own (id int)`);
  const login = new URL(url);
  login.username = role;
  login.password = 'p';
  const engine = postgres(login.href);
  onTestFinished(async () => {
    await engine.stop();
    await admin.query(`drop owned by ${role}; drop role ${role}`);
    await admin.end();
  });
  const refused = createQueue(engine, 'q', { kinds: { a: {} } }).enqueue('a', 1);
  await expect(refused).rejects.toThrow(/permission denied for schema pawl.*grant usage on schema pawl to ROLE/);
  const own: unknown = await engine.query(statement('own', 'select * from own')).catch((error: unknown) => error);
  expect(own).toBeInstanceOf(DatabaseError);
  expect(String(own)).not.toContain('grant');
});

test('a URL that requires TLS of a server without it is a failed connection', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(`${url}${url.includes('?') ? '&' : '?'}sslmode=require`);
  onTestFinished(() => engine.stop());
  const error: unknown = await engine.query(ONE).catch((cause: unknown) => cause);
  expect(error).toBeInstanceOf(ConnectionFailed);
  expect(String(error)).toMatch(/the server speaks no TLS, which the URL asks for/);
});

test('a transaction is not repeated when its own function has waited for a connection without success', async () => {
  const engine = await openEngine({ max: 1, connectTimeoutMs: 3_000 });
  const queue = createQueue(engine, 'q', { kinds: { job: {} } });
  await queue.register();
  let runs = 0;
  const forgotten = engine.transaction(async () => {
    runs += 1;
    await queue.enqueue('job', 1);
  });
  await expect(forgotten).rejects.toThrow(/was not given its \{ tx \}/);
  expect(runs).toBe(1);
});

test('writes that another connection has not confirmed are not reported as not written, and not repeated', async () => {
  const engine = await openEngine();
  let runs = 0;
  const lost = new ConnectionFailed('the answer of another connection was lost');
  const transaction = engine.transaction(async (tx) => {
    runs += 1;
    await tx.query(ONE);
    throw lost;
  });
  await expect(transaction).rejects.toBe(lost);
  expect(lost.outcome).toBe('unknown');
  expect(runs).toBe(1);
});

test('the main entry of the package exports the engine', async () => {
  const { postgres: front } = await import('../../src/index.ts');
  expect(front).toBe(postgres);
});
