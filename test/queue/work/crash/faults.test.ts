import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { LeaseLost } from '../../../../src/base/errors.ts';
import { postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { createQueue, type Worker } from '../../../../src/queue/index.ts';
import { eventually, until } from '../../../support/eventually.ts';
import { recordLog } from '../../../support/log.ts';
import type { Proxy } from '../../../support/proxy.ts';
import { startMigratedServer } from '../../../support/servers/embedded.ts';
import { awakeMs } from '../../../support/time/awake.ts';
import { gate } from '../../contract/fixture.ts';
import { expectOneEffectEach, FAULTS, HOLDS, openScene, proxied, Scene } from '../../faults.ts';
import { SqlSession } from '../../sql-session.ts';

describe.each(HOLDS)('hold: %s', (hold) => {
  test('while backends are terminated at random, every job still runs', async () => {
    const scene = await openScene();
    await scene.worker(hold, {}, { applicationName: 'to be shot' });
    const shoot = `select count(pg_terminate_backend(pid))::int from (
      select pid from pg_stat_activity where application_name = 'to be shot' and datname = current_database()
      order by random() limit 2) victim`;
    let shot = 0;
    for (let round = 0; round < 7; round += 1) {
      await scene.enqueue(10);
      shot += await until('there is a backend to terminate', () => scene.one<number>(shoot));
    }
    await scene.drained();
    expect(shot).toBeGreaterThanOrEqual(7);
    await expectOneEffectEach(scene, hold, 140);
    expect(await scene.disorder()).toEqual([]);
  });

  test('the database crashes and restarts under load: every acknowledged job runs', async () => {
    const server = await startMigratedServer({ fsync: 'off' });
    onTestFinished(() => server.stop());
    const scene = await Scene.open(server.url);
    const workers = await Promise.all([scene.child(hold), scene.child(hold)]);
    const ids: string[] = [];
    let isOver = false;
    const producing = (async () => {
      while (!isOver) {
        ids.push(...(await scene.enqueue(5).catch(() => [])));
        await sleep(30);
      }
    })();
    await until('some jobs have run', async () => (await scene.one<number>('select count(*)::int from test_run')) > 50);
    await server.restart('immediate');
    const eye = await SqlSession.open(server.url);
    const before = await eye.one<number>('select count(*)::int from test_run');
    await until(
      'jobs run again',
      async () => (await eye.one<number>('select count(*)::int from test_run')) > before + 50,
    );
    isOver = true;
    await producing;
    await eye.end();
    const again = await Scene.open(server.url);
    await again.drained();
    expect(await again.breaches()).toEqual([]);
    const lost =
      'select count(*)::int from unnest($1::bigint[]) u (id) where not exists (select 1 from test_run r where r.id = u.id)';
    expect(await again.one(lost, [ids])).toBe(0);
    if (hold === 'transaction') {
      expect(await again.one('select count(*) = count(distinct id) from test_effect')).toBe(true);
    }
    for (const worker of workers) expect(await Promise.race([worker.exited, Promise.resolve('alive')])).toBe('alive');
  });

  // Invariant P5.
  test('after the death of the listening connection, work is found by the poll, and later by notifications again', async () => {
    const scene = await openScene();
    await scene.worker(hold, { poll: '300ms' });
    const kill = `select count(pg_terminate_backend(pid))::int from pg_stat_activity
      where query ilike '%listen%' and pid <> pg_backend_pid() and datname = current_database()`;
    await until('the listening connection is killed', () => scene.one<number>(kill));
    const since = awakeMs();
    await scene.enqueue(1);
    await scene.drained();
    expect(awakeMs() - since).toBeLessThan(300 * 1.25 + 10_000);
  });

  // Invariant P5.
  test('without LISTEN work is found within the poll', async () => {
    const scene = await openScene();
    await scene.worker(hold, { poll: '300ms' }, { listen: false });
    for (let n = 0; n < 3; n += 1) {
      const { id } = await scene.queue.enqueue('job', {});
      const since = awakeMs();
      await until('it has run', async () => (await scene.runs(id)).attempts.length > 0);
      expect(awakeMs() - since).toBeLessThan(300 * 1.25 + 10_000);
    }
  });

  test('a job that is committed late with a lower id is found by the next pass, also within its key', async () => {
    const scene = await openScene();
    const late = await SqlSession.open(scene.url);
    onTestFinished(() => late.end());
    const { queue } = await scene.row();
    const kind = await scene.one<number>("select id::int from pawl.queue_kind where name = 'job'");
    await late.begin();
    const ids = await late.add(queue, [{ kind }, { kind, key: 'k' }]);
    await scene.worker(hold, { poll: '100ms' }, { listen: false });
    const later = await scene.queue.enqueue('job', {}, { key: 'k' });
    const loose = await scene.queue.enqueue('job', {});
    for (const { id } of [later, loose]) {
      await until('the later job has run', async () => (await scene.runs(id)).attempts.length > 0);
    }
    expect(Math.max(...ids)).toBeLessThan(Number(later.id));
    await late.commit();
    for (const id of ids) await until('the late job has run', async () => (await scene.runs(id)).attempts.length > 0);
    await scene.drained();
    expect(await scene.breaches()).toEqual([]);
  });

  test('after a lost answer to a claim, its jobs are given back, uncharged', async () => {
    const scene = await openScene();
    const proxy = await proxied(scene);
    const worker = await scene.worker(hold, { lease: '20s' }, { ...proxy.options, applicationName: 'proxied' });
    const lost = loseOnce(proxy.proxy, hold === 'lease' ? 'pawl:queue.claim' : 'pawl.queue_claim', worker.events);
    await scene.enqueue(5);
    await scene.drained();
    expect(lost.times).toBeGreaterThan(0);
    await expectOneEffectEach(scene, hold, 10);
    expect(await scene.one('select max(attempt) from test_run')).toBe(1);
    expect(await scene.one("select count(*)::int from pawl.queue_transition where reason = 'worker lost'")).toBe(0);
  });

  test('after a lost answer to a settlement, the outcome stands, and no job runs twice', async () => {
    const scene = await openScene();
    const proxy = await proxied(scene);
    const worker = await scene.worker(hold, { lease: '20s' }, { ...proxy.options });
    let stale = 0;
    worker.events.on('stale', ({ claims }) => void (stale += claims.length));
    const lost = loseOnce(proxy.proxy, hold === 'lease' ? 'pawl:queue.settle' : 'pawl.queue_settle', worker.events);
    await scene.enqueue(5);
    await scene.drained();
    expect(lost.times).toBeGreaterThan(0);
    await expectOneEffectEach(scene, hold, 10);
    expect(await scene.one('select count(*)::int from test_run')).toBe(10);
    expect(stale).toBe(0);
  });
});

/** Loses answers until the worker has noticed. */
function loseOnce(
  proxy: Proxy,
  text: string,
  events: { on(event: 'error', listener: () => void): () => void },
): { readonly times: number } {
  const lost = { times: 0 };
  proxy.loseAnswerTo(text);
  events.on('error', () => {
    lost.times += 1;
    proxy.loseAnswerTo('\0 nothing holds this');
  });
  return lost;
}

test('hold: transaction: the signal of a handler whose connection is lost is aborted, and its job runs again at once', async () => {
  const scene = await openScene();
  const engine = postgres(scene.url, { max: 6, logger: recordLog() });
  const reasons: unknown[] = [];
  const runs: number[] = [];
  const worker = createQueue(engine, 'faults', FAULTS).work(
    {
      job: async (unit) => {
        runs.push(unit.attempt);
        if (runs.length > 1) return;
        const [row] = await unit.tx.query<{ pid: number }>(statement('test.pid', 'select pg_backend_pid() as pid'));
        const aborted = new Promise<void>((resolve) => {
          unit.signal.addEventListener('abort', () => {
            reasons.push(unit.signal.reason);
            resolve();
          });
        });
        await scene.one('select pg_terminate_backend($1)', [row?.pid]);
        await aborted;
      },
      fragile: () => {},
    },
    { hold: 'transaction', concurrency: 2, lease: '10s', poll: '200ms' },
  );
  onTestFinished(async () => {
    await worker.stop({ timeout: '100ms' });
    await engine.stop();
  });
  await worker.started;
  await scene.queue.enqueue('job', {});
  await eventually(() => expect(reasons).toEqual([expect.any(LeaseLost)]));
  await eventually(() => expect(runs).toHaveLength(2));
  await scene.drained();
});

test('a failed commit counts as an attempt, and the job ends in error', async () => {
  const scene = await openScene();
  await scene.eye.client.query(
    'create table test_parent (id int primary key); create table test_child (id int references test_parent deferrable initially deferred)',
  );
  const engine = postgres(scene.url, { max: 6, logger: recordLog() });
  let runs = 0;
  const worker = createQueue(engine, 'faults', FAULTS).work(
    {
      job: () => {},
      fragile: async (unit) => {
        runs += 1;
        await unit.tx.client.query({ text: 'insert into test_child values (1)' });
      },
    },
    { hold: 'transaction', concurrency: 2, poll: '200ms' },
  );
  onTestFinished(async () => {
    await worker.stop({ timeout: '100ms' });
    await engine.stop();
  });
  const { id } = await scene.queue.enqueue('fragile', {});
  await until(
    'it has ended in error',
    async () => (await scene.one('select status from pawl.queue_dead where id = $1', [id])) === 'error',
  );
  expect(runs).toBe(2);
});

describe('connections', () => {
  test('a worker keeps its lease while handlers take every connection of the pool', async () => {
    const scene = await openScene();
    const engine = postgres(scene.url, { max: 3, logger: recordLog(), connectTimeoutMs: 30_000 });
    let runs = 0;
    let taken = 0;
    let lost = 0;
    const goOn = gate();
    onTestFinished(() => goOn.open());
    const worker = createQueue(engine, 'faults', FAULTS).work(
      {
        job: async () => {
          runs += 1;
          await engine.transaction(async (tx) => {
            await tx.client.query({ text: 'select 1' });
            taken += 1;
            await goOn.opened;
          });
        },
        fragile: () => {},
      },
      { lease: '4s', poll: '200ms', concurrency: 4 },
    );
    worker.events.on('lost', () => void (lost += 1));
    onTestFinished(async () => {
      await worker.stop({ timeout: '5s' });
      await engine.stop();
    });
    await worker.started;
    await scene.queue.enqueueMany(Array.from({ length: 4 }, () => ({ kind: 'job', payload: {} })));
    // The third one is that of the heartbeats.
    await until('all connections are taken', () => taken === 2);
    const since = await scene.one<string>('select clock_timestamp()::text');
    const keeps = `select beat_at > $1::timestamptz + lease from pawl.queue_worker`;
    await until('it has sent heartbeats for longer than its lease', () => scene.one<boolean>(keeps, [since]));
    expect(lost).toBe(0);
    goOn.open();
    await scene.drained();
    expect(lost).toBe(0);
    expect(runs).toBe(4);
  });

  test('a pool too small for a worker is refused at once', () => {
    const engine = postgres('postgres://nobody@localhost/nowhere', { max: 1 });
    const queue = createQueue(engine, 'faults', FAULTS);
    expect(() => queue.work({ job: () => {}, fragile: () => {} })).toThrow(/needs \d connections/);
  });

  test('a pool of the user counts with the connections that it already has', async () => {
    const [small, large] = [new pg.Pool({ max: 4 }), new pg.Pool({ max: 40 })];
    const workOn = (pool: pg.Pool) => (): Worker =>
      createQueue(postgres(pool, { logger: recordLog() }), 'faults', FAULTS).work(
        { job: () => {}, fragile: () => {} },
        { hold: 'transaction', concurrency: 20, signal: AbortSignal.abort() },
      );
    expect(workOn(small)).toThrow('the pool has 4');
    await workOn(large)().stop();
    await Promise.all([small.end(), large.end()]);
  });

  test('a heartbeat on a dead connection is repeated on another one', async () => {
    const scene = await openScene();
    const worker = await scene.worker('lease', { lease: '9s' });
    let lost = 0;
    worker.events.on('lost', () => void (lost += 1));
    const beating = `select pid from pg_stat_activity
      where query like '%queue.beat%' and state = 'idle' and pid <> pg_backend_pid() and datname = current_database()`;
    // The server process of its connection is paused: nothing is lost, and nothing is answered. Between two heartbeats: in the middle of
    // one, the paused process would keep the lock of the worker's row.
    const pid = await until('the process is paused between two heartbeats', async () => {
      const found = await scene.one<number | undefined>(beating);
      if (found === undefined) return undefined;
      process.kill(found, 'SIGSTOP');
      const state = await scene.one('select state from pg_stat_activity where pid = $1', [found]);
      if (state === 'idle') return found;
      process.kill(found, 'SIGCONT');
      return undefined;
    });
    try {
      const last = 'select max(beat_at)::text from pawl.queue_worker';
      const before = await scene.one(last);
      await until('it sends heartbeats again', async () => (await scene.one(last)) !== before);
      expect(lost).toBe(0);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
  });
});

test.for(HOLDS)(
  'under every default isolation of the database, no job of a key is left behind (hold: %s)',
  async (hold) => {
    const scene = await openScene();
    const name = await scene.one<string>('select current_database()');
    await scene.eye.client.query(`alter database "${name}" set default_transaction_isolation = 'repeatable read'`);
    await Promise.all([1, 2, 3].map(() => scene.worker(hold)));
    for (let round = 0; round < 3; round += 1) {
      await scene.enqueue(30);
      await scene.drained();
    }
    expect(await scene.breaches()).toEqual([]);
    expect(await scene.disorder()).toEqual([]);
  },
);
