import type { EventEmitter } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { LeaseLost, NotSupported, TimedOut } from '../../../../src/base/errors.ts';
import {
  type PostgresEngine,
  type PostgresOptions,
  postgres,
  statement,
} from '../../../../src/engine/postgres/index.ts';
import {
  createQueue,
  NoRetry,
  type Queue,
  type Unit,
  type Worker,
  type WorkOptions,
} from '../../../../src/queue/index.ts';
import { freshDatabase } from '../../../support/database.ts';
import { aborted, eventually, until } from '../../../support/eventually.ts';
import { recordLog } from '../../../support/log.ts';
import { startProxy } from '../../../support/proxy.ts';
import { hasPooler, startPooler } from '../../../support/servers/pooler.ts';
import { awakeMs } from '../../../support/time/awake.ts';
import { openScene } from '../../faults.ts';
import { SqlSession } from '../../sql-session.ts';

// hold: 'transaction' when the transaction is lost, or its process is.

const KINDS = { job: {}, once: { attempts: 1, timeout: '200ms' }, twice: { attempts: 2 } } as const;
const PID = statement('test.pid', 'select pg_backend_pid() as pid');

/** With several lanes, another lane may run a job once more before it is charged. */
const ALONE: WorkOptions = { concurrency: 1 };

interface Stage {
  readonly url: string;
  readonly eye: SqlSession;
  readonly engine: PostgresEngine;
  readonly queue: Queue<typeof KINDS>;
  /** A worker, on an engine of its own, with one handler for all kinds. */
  work(
    handler: (unit: Unit) => unknown,
    options?: WorkOptions,
    engine?: PostgresOptions & { url?: string },
  ): Promise<WorkerReport>;
  reasons(id: string): Promise<string[]>;
  status(id: string): Promise<string>;
}

interface WorkerReport {
  readonly worker: Worker;
  readonly failed: string[];
  readonly errors: unknown[];
}

async function open(settings: readonly string[] = []): Promise<Stage> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const eye = await SqlSession.open(database.url);
  onTestFinished(() => eye.end());
  for (const setting of settings) await eye.client.query(`alter database "${database.name}" set ${setting}`);
  const engine = postgres(database.url, { max: 4, logger: recordLog() });
  onTestFinished(() => engine.stop());
  const declared = { kinds: KINDS, retry: { backoff: { kind: 'fixed', min: 1 } } } as const;
  const queue = createQueue(engine, 'stage', declared);
  await queue.register();
  return {
    url: database.url,
    eye,
    engine,
    queue,
    async work(handler, options = {}, { url = database.url, ...rest } = {}) {
      const own = postgres(url, { max: 8, logger: recordLog(), stopTimeoutMs: 1_000, ...rest });
      const worker = createQueue(own, 'stage', declared).work(
        { job: handler, once: handler, twice: handler },
        { hold: 'transaction', concurrency: 2, poll: '200ms', ...options },
      );
      const told: WorkerReport = { worker, failed: [], errors: [] };
      worker.events.on('failed', ({ to }) => told.failed.push(to));
      worker.events.on('error', ({ error }) => told.errors.push(error));
      onTestFinished(async () => {
        await worker.stop({ timeout: '100ms' });
        await own.stop();
      });
      await worker.started;
      return told;
    },
    reasons: async (id) => (await engine.query<{ reason: string }>(REASONS, [id])).map(({ reason }) => reason),
    status: async (id) => (await queue.get(id)).status,
  };
}

const REASONS = statement(
  'test.reasons',
  'select reason from pawl.queue_transitions(0::smallint, $1::bigint) order by at',
);

/** Ends the process of the server that serves the unit's transaction, from inside the handler. */
async function cut({ eye }: Stage, unit: Unit): Promise<void> {
  const [row] = await unit.tx.query<{ pid: number }>(PID);
  await eye.one('select pg_terminate_backend($1)', [row?.pid]);
}

test('a job that is not to be tried again ends in error, although the transaction that says so is lost', async () => {
  const stage = await open();
  const other = await SqlSession.open(stage.url);
  onTestFinished(() => other.end());
  const told = await stage.work(async () => {
    await sleep(150);
    throw new NoRetry('it is of no use');
  }, ALONE);
  await other.client.query('begin; lock table pawl.queue_dead in access exclusive mode');
  const { id } = await stage.queue.enqueue('job', 'cut');
  const ending = `select pid from pg_stat_activity
    where wait_event_type = 'Lock' and query like '%queue_settle%' and datname = current_database()`;
  const pid = await until('its outcome has been sent, and waits', () => stage.eye.one<number | undefined>(ending));
  await stage.eye.one('select pg_terminate_backend($1)', [pid]);
  await other.client.query('commit');
  await until('it has an outcome', async () => (await stage.reasons(id)).includes('no retry'));
  expect(await stage.status(id)).toBe('error');
  expect(told.failed).toEqual(['error']);
});

test.for([undefined, 'k'])(
  'a job whose transaction the server ends has spent an attempt, and ends in error when it has none left (key: %s)',
  async (key) => {
    const stage = await open();
    const attempts: number[] = [];
    const told = await stage.work(async (unit) => {
      if (unit.payload === 'next') return;
      attempts.push(unit.attempt);
      await sleep(150);
      const connection = unit.tx.client as unknown as EventEmitter;
      const ended = new Promise((resolve) => connection.once('end', resolve));
      await cut(stage, unit);
      // It does not end with its signal, so that it is there when the connection tells once more that it is lost.
      await ended;
    }, ALONE);
    const { id } = await stage.queue.enqueue('twice', 'cut', key === undefined ? {} : { key });
    const next = await stage.queue.enqueue('twice', 'next', key === undefined ? {} : { key });
    await until('it has ended in error', async () => (await stage.status(id)) === 'error');
    await until('the next one has run', async () => (await stage.status(next.id)) === 'complete');
    expect(attempts).toEqual([1, 2]);
    expect(await stage.reasons(id)).toEqual(['transaction lost', 'transaction lost']);
    expect(told.failed).toEqual(['retry', 'error']);
    expect((await stage.queue.get(id)).error).toMatch(/the transaction that held the job was lost/);
  },
);

test('an attempt is spent, too, where the role may not end processes of the server', async () => {
  const stage = await open();
  const role = `test_${process.pid}_${Math.trunc(performance.now())}`;
  const { client } = stage.eye;
  await client.query(
    `create role ${role}; grant usage on schema pawl to ${role}; grant all on all tables in schema pawl to ${role};
    grant all on all sequences in schema pawl to ${role}; revoke execute on function pg_terminate_backend from public`,
  );
  onTestFinished(async () => {
    const last = await SqlSession.open(stage.url);
    await last.client.query(`drop owned by ${role}; drop role ${role}`);
    await last.end();
  });
  const url = new URL(stage.url);
  url.searchParams.set('options', `-c role=${role}`);
  const attempts: number[] = [];
  const cutting = async (unit: Unit): Promise<void> => {
    attempts.push(unit.attempt);
    await sleep(150);
    await cut(stage, unit);
    await aborted(unit.signal);
  };
  const told = await stage.work(cutting, ALONE, { url: url.href });
  const { id } = await stage.queue.enqueue('twice', null);
  await until('it has ended in error', async () => (await stage.status(id)) === 'error');
  expect(attempts).toEqual([1, 2]);
  expect(told.errors.map(String)).toContainEqual(expect.stringMatching(/permission denied/));
});

test('a lost connection is replaced at once, however many were lost before', async () => {
  const stage = await open();
  let runs = 0;
  await stage.work(async (unit) => {
    runs += 1;
    if (runs <= 10) await cut(stage, unit);
  });
  const since = awakeMs();
  const { id } = await stage.queue.enqueue('job', null);
  await until('it is complete', async () => (await stage.status(id)) === 'complete', 60_000);
  // Pauses that double up to five seconds would take half a minute.
  expect(awakeMs() - since).toBeLessThan(20_000);
});

test('a provider’s timeouts for idle sessions end no handler', async () => {
  const stage = await open([
    `idle_in_transaction_session_timeout = '300ms'`,
    `idle_session_timeout = '300ms'`,
    ...(await newerThan(17, [`transaction_timeout = '300ms'`])),
  ]);
  const told = await stage.work(async (unit) => {
    await sleep(900);
    await unit.tx.query(PID);
  });
  const { id } = await stage.queue.enqueue('job', null);
  await until('it is complete', async () => (await stage.status(id)) === 'complete');
  expect(await stage.reasons(id)).toEqual([]);
  // The lanes are idle, too, for longer than the timeout.
  await sleep(700);
  await until('the next is complete', async () => {
    const next = await stage.queue.enqueue('job', null);
    return until('complete', async () => (await stage.status(next.id)) === 'complete');
  });
  expect(told.errors.filter((error) => String(error).includes('idle-in-transaction'))).toEqual([]);
});

async function newerThan(major: number, settings: readonly string[]): Promise<readonly string[]> {
  const { eye } = await openScene();
  const version = await eye.one<string>(`select current_setting('server_version_num')`);
  return Number(version) >= major * 10_000 ? settings : [];
}

test('a unit whose time ends while a statement of its handler hangs is charged, and the statement is cancelled', async () => {
  const stage = await open();
  let runs = 0;
  const told = await stage.work(async (unit) => {
    runs += 1;
    await unit.tx.client.query({ text: 'select pg_sleep(600)' });
  });
  const { id } = await stage.queue.enqueue('once', null);
  await until('it has ended in error', async () => (await stage.status(id)) === 'error');
  expect(await stage.reasons(id)).toEqual(['attempts exhausted']);
  expect([runs, told.failed]).toEqual([1, ['error']]);
  expect(told.errors).toEqual([]);
});

test('a result that the database refuses ends its own job in error, once, and nothing else', async () => {
  const stage = await open([`max_stack_depth = '100kB'`]);
  let runs = 0;
  await stage.work(({ payload }) => {
    if (payload !== 'deep') return { small: true };
    runs += 1;
    let nest: unknown = [];
    for (let depth = 0; depth < 3000; depth += 1) nest = [nest];
    return nest;
  }, ALONE);
  const { id } = await stage.queue.enqueue('job', 'deep', { key: 'k' });
  const others = await stage.queue.enqueueMany(
    Array.from({ length: 10 }, (_, n) => ({ kind: 'job', payload: n, ...(n % 2 === 0 ? { key: 'k' } : {}) })),
  );
  await until('it has ended in error', async () => (await stage.status(id)) === 'error');
  for (const other of others) await until('complete', async () => (await stage.status(other)) === 'complete');
  expect(runs).toBe(1);
  expect(await stage.reasons(id)).toEqual(['result refused']);
  expect((await stage.queue.get(id)).error).toMatch(/stack depth/);
});

test('a transaction on a silent connection that still acknowledges packets is ended with the lease of its worker', async () => {
  const stage = await open();
  const proxy = await startProxy(stage.url);
  onTestFinished(() => proxy.stop());
  const pids: number[] = [];
  await stage.work(
    async (unit) => {
      const [row] = await unit.tx.query<{ pid: number }>(PID);
      pids.push(row?.pid ?? -1);
      await sleep(600_000, undefined, { signal: unit.signal }).catch(() => {});
    },
    { lease: '3s' },
    { url: proxy.url },
  );
  const { id } = await stage.queue.enqueue('job', null, { key: 'k' });
  await until('it runs', () => pids.length === 1);
  const noted = 'select count(*)::int from pawl.queue_worker where holding <> $1';
  await until('it is noted', async () => (await stage.eye.one(noted, [[]])) === 1);
  proxy.silence();
  const attempts: number[] = [];
  await stage.work(({ attempt }) => void attempts.push(attempt), { lease: '3s' });
  // The lease and the search for lost workers; the rest is for a busy machine.
  await until('it has run elsewhere', async () => (await stage.status(id)) === 'complete', 3000 + 1625 + 30_000);
  // The worker that ends the transaction charges the attempt, unless a lane that claims at the same moment is faster.
  expect([[2], [1]]).toContainEqual(attempts);
  expect(await stage.reasons(id)).toEqual(attempts[0] === 2 ? ['worker lost'] : []);
  const left = 'select count(*)::int from pg_stat_activity where pid = any ($1)';
  await until('its server process has ended', async () => (await stage.eye.one(left, [pids])) === 0);
  proxy.cut();
});

test('an abandoned transaction is ended as soon as the server can be reached, though the worker lives', async () => {
  const stage = await open();
  const proxy = await startProxy(stage.url);
  onTestFinished(() => proxy.stop());
  let runs = 0;
  const told = await stage.work(
    () => {
      runs += 1;
      if (runs > 1) return;
      proxy.loseRequest('engine.end_backend');
      proxy.stall();
    },
    { lease: '5s' },
    { url: proxy.url },
  );
  const { id } = await stage.queue.enqueue('job', null);
  await until('the server was asked without success', () => proxy.accepted > 0 && told.errors.length >= 2);
  expect(await stage.status(id)).toBe('new');
  proxy.loseRequest('\0 nothing has this in it');
  await until('it is complete', async () => (await stage.status(id)) === 'complete');
  expect(runs).toBe(2);
});

test('transactions of a lost worker that a role may not end are reported, and ended by a role that may', async () => {
  const { url, eye } = await open();
  const { queue } = await eye.register('other', [{ name: 'a' }]);
  const worker = await eye.addWorker(queue, 1);
  const lane = await SqlSession.open(url);
  onTestFinished(() => lane.end().catch(() => {}));
  await lane.begin();
  await lane.client.query(`select pg_advisory_xact_lock_shared(1885435757, ${worker})`);
  const role = `test_${process.pid}_${Math.trunc(performance.now())}`;
  await eye.client.query(`create role ${role}`);
  onTestFinished(async () => {
    const last = await SqlSession.open(url);
    await last.client.query(`drop owned by ${role}; drop role ${role}`);
    await last.end();
  });
  await eye.client.query(
    `grant usage on schema pawl to ${role}; grant all on all tables in schema pawl to ${role}; set role ${role}`,
  );
  const rescue = `select json_build_array(r.jobs, pawl.queue_open_lanes(${queue}::smallint)) from pawl.queue_rescue(${queue}::smallint) r`;
  await until('it is reported', async () => (await eye.one<[number, number[]]>(rescue))[1].length > 0);
  expect(await eye.one(rescue)).toEqual([0, [lane.pid]]);
  await eye.client.query('reset role');
  await eye.one(rescue);
  const left = 'select count(*)::int from pg_stat_activity where pid = $1';
  await until('it is ended', async () => (await eye.one(left, [lane.pid])) === 0);
  expect(await eye.one(rescue)).toEqual([0, []]);
  expect(await eye.one('select count(*)::int from pawl.queue_worker where id = $1', [worker])).toBe(0);
});

test.skipIf(!hasPooler)('the transaction of a paused process is found behind a pooler, too', async () => {
  const stage = await open([`idle_in_transaction_session_timeout = '500ms'`]);
  const pooler = await startPooler(stage.url, 8);
  onTestFinished(() => pooler.stop());
  const lanes = 'select count(*)::int from pawl.queue_worker w cross join lateral pawl.queue_lanes(w.id) l';
  const seen: unknown[] = [];
  await stage.work(
    async () => {
      seen.push(await stage.eye.one(lanes));
      await sleep(1000);
      seen.push(await stage.eye.one(lanes));
    },
    { concurrency: 1 },
    { url: pooler.url, prepare: false },
  );
  const { id } = await stage.queue.enqueue('job', null);
  await until('it is complete', async () => (await stage.status(id)) === 'complete');
  expect(seen).toEqual([1, 1]);
});

test('guard() takes unit.tx while the unit is the worker’s, and no other transaction', async () => {
  const stage = await open();
  const answers: unknown[] = [];
  const told = async (promise: Promise<unknown>): Promise<void> =>
    void answers.push(await promise.catch((error: unknown) => error));
  await stage.work(async (unit) => {
    if (unit.kind !== 'once') {
      await told(unit.guard(unit.tx));
      await told(unit.guard(unit.tx.client));
      await told(stage.engine.transaction((tx) => unit.guard(tx)));
      return;
    }
    await aborted(unit.signal);
    await told(unit.guard(unit.tx));
    expect(unit.signal.reason).toBeInstanceOf(TimedOut);
  });
  await stage.queue.enqueue('job', null);
  await eventually(() => expect(answers).toHaveLength(3));
  await stage.queue.enqueue('once', null);
  await eventually(() => expect(answers).toHaveLength(4));
  expect(answers).toEqual([undefined, undefined, expect.any(NotSupported), expect.any(LeaseLost)]);
});
