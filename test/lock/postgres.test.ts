import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ConnectionFailed, Stopped } from '../../src/base/errors.ts';
import { currentTask } from '../../src/base/work/current-task.ts';
import { type PostgresEngine, type PostgresOptions, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createLocks, type Lock, type LockOptions, locksOfJobs, RemoteLocks } from '../../src/lock/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { startProxy } from '../support/proxy.ts';
import { awakeMs } from '../support/time/awake.ts';
import { atTestEnd } from '../support/together.ts';
import { describeLocks } from './contract.ts';
import { describeEndsOfWaits, SLOW_MS } from './ends.ts';

let database: FreshDatabase;
const engines: PostgresEngine[] = [];

beforeAll(async () => {
  database = await freshDatabase();
});

afterAll(async () => {
  await Promise.all(engines.map((engine) => engine.stop()));
});

function engineOn(url: string, options: PostgresOptions = {}): PostgresEngine {
  const engine = postgres(url, { stopTimeoutMs: 500, max: 4, ...options });
  engines.push(engine);
  return engine;
}

describeLocks('postgres', () => ({ engine: (options) => engineOn(database.url, options) }));

describeEndsOfWaits('postgres', () => ({
  engine: () => engineOn(database.url),
  hasSets: true,
  unsteady: async () => {
    const proxy = await startProxy(database.url);
    atTestEnd(() => proxy.stop());
    return {
      engine: engineOn(proxy.url, { logger: recordLog() }),
      become: (condition) => {
        proxy.delay(condition === 'slow' ? SLOW_MS : 0);
        if (condition === 'gone') proxy.refuse();
        else if (condition === 'silent') proxy.silence();
        else proxy.accept();
      },
      // A refused connection, and an accepted one without an answer, count as requests.
      get asked() {
        return proxy.sent + proxy.refused + proxy.accepted;
      },
      answered: () => proxy.answered(),
    };
  },
}));

test('a lock names the job whose handler requested it, whatever way it is taken and lost', async () => {
  const engine = engineOn(database.url);
  const locks = createLocks(engine, { namespace: 'for jobs' });
  const forJob = (id: string, name: string | string[], options?: LockOptions, by = engine): Promise<Lock> =>
    currentTask.run({ id }, by, () => locks.acquire(name, options), undefined);
  const jobs = async (name: string): Promise<(string | null)[]> =>
    (await locks.explain(name)).holders.map(({ job }) => job);
  const past = async (name: string): Promise<unknown[]> =>
    (await locks.history({ name })).map(({ job, outcome }) => [job, outcome]);
  const waiting = (n: number): Promise<unknown> =>
    until('they wait', async () => (await locks.query()).waiting.length === n);

  const big = String(2n ** 53n + 1n);
  const first = await forJob(big, 'one');
  expect(await jobs('one')).toEqual([big]);
  const second = forJob('2', 'one');
  await waiting(1);
  expect((await locks.explain('one')).waiters).toMatchObject([{ job: '2' }]);
  expect(await locksOfJobs(engine, ['2'])).toMatchObject([{ name: 'one', state: 'waiting', token: null }]);
  // First a direct hand-off to the next waiter; later, in the same row, a holder without a job.
  await first.release();
  const handed = await second;
  expect(await jobs('one')).toEqual(['2']);
  await handed.release();
  const plain = await locks.acquire('one');
  expect(await jobs('one')).toEqual([null]);
  await plain.release();
  expect(await past('one')).toEqual([
    [null, 'released'],
    ['2', 'released'],
    [big, 'released'],
  ]);

  const writer = await forJob('3', ['two', 'three']);
  const readers = ['4', '5'].map((job) => forJob(job, 'two', { mode: 'shared' }));
  await waiting(2);
  await writer.release();
  await Promise.all(readers);
  expect(new Set(await jobs('two'))).toEqual(new Set(['4', '5']));
  expect(await past('three')).toEqual([['3', 'released']]);
  await locks.break('two', { reason: 'a test' });
  expect((await past('two')).slice(0, 2)).toEqual(
    expect.arrayContaining([
      ['4', 'broken'],
      ['5', 'broken'],
    ]),
  );

  await forJob('6', 'four', { lease: '1s' });
  const late = "update pawl.lock_grant set expires_at = '-infinity' where name = 'four'";
  await engine.query(statement('test.late', late));
  // A job of another database does not count.
  const other = engineOn(database.url);
  await forJob('7', 'four', {}, other);
  expect([await jobs('four'), await past('four')]).toEqual([[null], [['6', 'expired']]]);
  expect(await locksOfJobs(engine, ['3', '6', '7'])).toMatchObject([
    { name: 'four', state: 'ended', outcome: 'expired' },
    { name: 'three', state: 'ended', endedAt: expect.any(Date) },
    { name: 'two', namespace: 'for jobs', mode: 'exclusive' },
  ]);
  await locks.stop();
});

test('held locks stop within 5 s though the database answers no more, also during a renewal', async () => {
  const proxy = await startProxy(database.url);
  const engine = postgres(proxy.url, { max: 4, logger: recordLog(), stopTimeoutMs: 1_000 });
  atTestEnd(() => proxy.stop());
  const locks = createLocks(engine, { namespace: 'silent' });
  const held = await Promise.all(
    Array.from({ length: 20 }, (_, n) => locks.acquire(`n${n}`, { lease: '20s', heartbeat: '200ms' })),
  );
  proxy.silence();
  await until('a renewal is not answered', () => held.some((lock) => lock.remainingMs() < 19_000));
  const since = awakeMs();
  await locks.stop();
  const stoppedMs = awakeMs() - since;
  await engine.stop();
  // 3 s more for a busy machine.
  expect(stoppedMs).toBeLessThan(5_000 + 3_000);
  expect(awakeMs() - since).toBeLessThan(5_000 + 1_000 + 2_000 + 4_000);
  expect(held.every(({ isHeld }) => !isHeld)).toBe(true);
});

test('stop() resolves when what its waits had is given back, so that the engine may be stopped next', async () => {
  const proxy = await startProxy(database.url);
  atTestEnd(() => proxy.stop());
  const engine = postgres(proxy.url, { max: 4, logger: recordLog(), stopTimeoutMs: 5_000 });
  const locks = createLocks(engine, { namespace: 'stops' });
  const others = createLocks(engineOn(database.url), { namespace: 'stops' });
  const there = async (): Promise<unknown> => {
    const { held, waiting } = await others.query();
    return [held.map(({ name }) => name).sort(), waiting.map(({ name }) => name)];
  };
  await others.acquire('taken');
  const waits = expect(locks.acquire('taken', { wait: '1h' })).rejects.toThrow(Stopped);
  await until('it waits', async () => (await others.query()).waiting.length === 1);
  proxy.delay(200);
  const comes = expect(locks.acquire('free', { lease: '1h' })).rejects.toThrow(Stopped);
  await until('it is granted', async () => (await others.query()).held.length === 2);
  await locks.stop();
  await engine.stop();
  await Promise.all([waits, comes]);
  expect(await there()).toEqual([['taken'], []]);
});

test('a process goes on after a release that the database does not answer', async () => {
  const program = `
    import { connect, createServer } from 'node:net';
    import { postgres } from 'pawl/postgres';
    import { createLocks } from 'pawl/lock';
    const url = new URL(${JSON.stringify(database.url)});
    const { port, hostname } = url;
    const ends = [];
    const door = createServer((client) => {
      const server = connect(Number(port), hostname);
      ends.push(client, server);
      for (const end of [client, server]) end.on('error', () => {});
      client.pipe(server).pipe(client);
    });
    await new Promise((resolve) => door.listen(0, '127.0.0.1', resolve));
    url.hostname = '127.0.0.1';
    url.port = String(door.address().port);
    const locks = createLocks(postgres(String(url)), { namespace: 'goes on' });
    const lock = await locks.acquire('one', { lease: '2s' });
    door.close();
    for (const end of ends) end.destroy();
    console.log(await lock.release().then(() => 'released', ({ code }) => code));
  `;
  const ran = promisify(execFile)(process.execPath, ['--input-type=module', '-e', program], { timeout: 30_000 });
  expect((await ran).stdout).toBe('connection_failed\n');
});

test('a lock for the HTTP API whose lease cannot be confirmed is given back', async () => {
  const proxy = await startProxy(database.url);
  atTestEnd(() => proxy.stop());
  const engine = engineOn(proxy.url, { logger: recordLog() });
  const others = createLocks(engineOn(database.url), { namespace: 'remote' });
  const remote = new RemoteLocks(engine, 'remote');
  const wanted = { leaseMs: 3_600_000, waitMs: 0, isShared: false, signal: new AbortController().signal };
  proxy.loseAnswerTo('lock.held_by', 1);
  await expect(remote.acquire('one', wanted)).rejects.toThrow(ConnectionFailed);
  await until('it is free', async () => (await others.query()).held.length === 0);
});
