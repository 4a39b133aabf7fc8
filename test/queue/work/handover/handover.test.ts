import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { probe } from '../../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement } from '../../../../src/engine/postgres/index.ts';
import { createQueue, type Worker } from '../../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../../support/database.ts';
import { until } from '../../../support/eventually.ts';
import { recordLog } from '../../../support/log.ts';
import { FAULTS, type FaultQueue, openScene, type Scene } from '../../faults.ts';
import { places } from '../../invariants.ts';
import { SqlSession } from '../../sql-session.ts';

const OFFERS = 'select count(*)::int from pawl.queue_offer';
/** A poll interval so long that no test finds a job by polling. */
const NEVER = '60s';

function offered(scene: { one<T>(text: string): Promise<T> }): Promise<number> {
  return until('a sleeping worker has made its offer', () => scene.one<number>(OFFERS));
}

/**
 * For one enqueue by itself: a producer whose search for a worker was slow twice in a row leaves it out for ten seconds, and on a busy
 * machine any statement may be.
 */
function producer({ engine }: Scene): FaultQueue {
  return createQueue(engine, 'faults', FAULTS);
}

/** Runs the statement of an enqueue in a transaction that the test commits. */
async function enqueueOpen(scene: Scene, session: SqlSession): Promise<string> {
  const { queue } = await scene.row();
  const kind = await scene.one<number>("select id::int from pawl.queue_kind where name = 'job'");
  return session.one<string>(
    `select pawl.queue_add_alone($1::smallint, 0::smallint, $2::smallint, 0::smallint, '{}', null, null)::json ->> 'id'`,
    [queue, kind],
  );
}

async function openSession(scene: Scene): Promise<SqlSession> {
  const session = await SqlSession.open(scene.url);
  onTestFinished(() => session.end());
  return session;
}

describe('a worker that sleeps', () => {
  test('gets an enqueued job by direct hand-off, without a claim', async () => {
    const scene = await openScene();
    const worker = await scene.worker('lease', { poll: NEVER, lease: '20s' });
    await offered(scene);
    using handed = probe.watch('queue.handed');
    using looks = probe.watch('queue.claimed');
    for (let n = 1; n <= 5; n += 1) {
      const { id } = await producer(scene).enqueue('job', {});
      await scene.drained();
      expect(handed.hits).toHaveLength(n);
      expect(await scene.runs(id)).toMatchObject({ attempts: [1], reasons: [] });
      expect((await scene.queue.history(id)).map(({ to }) => to)).toEqual(['new', 'in-progress', 'complete']);
      await offered(scene);
    }
    expect(looks.hits.filter(({ rows }) => Number(rows) > 0)).toEqual([]);
    expect(await scene.breaches()).toEqual([]);
    await worker.stop();
    expect(await scene.one(OFFERS)).toBe(0);
  });

  // Invariant P1.
  test('is not handed a job that is rolled back', async () => {
    const scene = await openScene();
    await scene.worker('lease', { poll: NEVER, lease: '20s' });
    await offered(scene);
    using handed = probe.watch('queue.handed');
    const session = await openSession(scene);
    await session.begin();
    const lost = await enqueueOpen(scene, session);
    expect(await session.one('select count(*)::int from pawl.queue_running')).toBe(1);
    await session.client.query('rollback');
    expect(await scene.one(OFFERS)).toBe(1);
    const { id } = await scene.queue.enqueue('job', {});
    await scene.drained();
    expect(handed.hits).toHaveLength(1);
    expect(await scene.one('select array_agg(id::int) from test_run')).toEqual([Number(id)]);
    expect(Number(lost)).toBeLessThan(Number(id));
  });
});

describe('a job that is handed over', () => {
  let scene: SleepingWorker;

  test('arrives unchanged', async () => {
    scene = await SleepingWorker.open();
    const all = ['', 'ä\n"\\\t\u2028😀', 'x'.repeat(7400), null, { a: [1.5, { '': true }] }];
    for (const payload of all) {
      await offered(scene);
      expect(await scene.pickUp((queue) => queue.enqueue('plain', payload))).toEqual([1, payload]);
    }
  });

  test('may have a free key; the next job of the key is claimed after it has ended', async () => {
    scene = await SleepingWorker.open();
    for (const key of ['k', 'ä\n"\\😀']) {
      await offered(scene);
      expect(await scene.pickUp((queue) => queue.enqueue('plain', key, { key }))).toEqual([1, key]);
    }
    await until('no key is held', async () => (await scene.one('select count(*)::int from pawl.queue_key')) === 0);
    await offered(scene);
    const holder = await scene.queue.enqueue('plain', 'first', { key: 'k' });
    const next = await scene.queue.enqueue('plain', 'second', { key: 'k' });
    await until('both are complete', async () => (await scene.queue.get(next.id)).status === 'complete');
    expect((await scene.queue.get(holder.id)).status).toBe('complete');
    expect([scene.atOnce, await scene.queue.get(next.id)]).toMatchObject([1, { attempt: 1 }]);
    expect(await scene.one('select count(*)::int from pawl.queue_key')).toBe(0);
  });

  const others: Record<string, (mixed: SleepingWorker) => Promise<unknown>> = {
    'has a priority': ({ queue }) => queue.enqueue('plain', 1, { priority: -1 }),
    'has a time': ({ queue }) => queue.enqueue('plain', 1, { runAt: new Date(0) }),
    'is one of several': ({ queue }) => queue.enqueueMany([1, 1].map((payload) => ({ kind: 'plain', payload }))),
    'is enqueued in a transaction of the caller': ({ queue, engine }) =>
      engine.transaction((tx) => queue.enqueue('plain', 1, { tx })),
    'does not fit into a notification': ({ queue }) => queue.enqueue('plain', 'x'.repeat(8000)),
    'has a single attempt, which a dead worker would use up': ({ queue }) => queue.enqueue('once', 1),
  };
  test.for(Object.keys(others))('is never one that %s: such a job is claimed', async (what) => {
    scene = await SleepingWorker.open();
    await offered(scene);
    const [handed] = await scene.pickUp(() => others[what]?.(scene) ?? Promise.reject(new Error(what)));
    expect(handed).toBe(0);
  });

  test('does not exist while the queue is paused, though the offer was made before', async () => {
    scene = await SleepingWorker.open();
    await offered(scene);
    await scene.queue.pause();
    const { id } = await scene.queue.enqueue('plain', 1);
    expect(await scene.queue.get(id)).toMatchObject({ status: 'new' });
    const [handed] = await scene.pickUp(() => scene.queue.resume());
    expect(handed).toBe(0);
  });

  test('does not exist if commits are not flushed, or the isolation is above read committed', async () => {
    scene = await SleepingWorker.open();
    for (const options of ['-c synchronous_commit=off', '-c default_transaction_isolation=serializable']) {
      const url = `${scene.url}?options=${encodeURIComponent(options)}`;
      await using engine = postgres(url, { logger: recordLog() });
      const queue = createQueue(engine, 'mixed', SleepingWorker.DECLARED);
      await offered(scene);
      expect(await scene.pickUp(() => queue.enqueue('plain', 2))).toEqual([0, 2]);
    }
  });
});

/** A queue with a worker that sleeps until it is notified. Each has a database of its own, since tests count all offers. */
class SleepingWorker {
  static readonly DECLARED = { kinds: { plain: {}, once: { attempts: 1 } } } as const;
  readonly url: string;
  readonly engine: PostgresEngine;
  readonly queue: ReturnType<typeof SleepingWorker.declare>;
  /** The most handlers that ran at the same time. */
  atOnce = 0;
  #running = 0;
  readonly #ran: unknown[] = [];

  static async open(): Promise<SleepingWorker> {
    const database: FreshDatabase = await freshDatabase();
    onTestFinished(() => database.drop());
    const mixed = new SleepingWorker(database.url);
    await mixed.#start();
    return mixed;
  }

  static declare(engine: PostgresEngine) {
    return createQueue(engine, 'mixed', SleepingWorker.DECLARED);
  }

  private constructor(url: string) {
    this.url = url;
    this.engine = postgres(url, { logger: recordLog() });
    this.queue = SleepingWorker.declare(this.engine);
  }

  /** @param enqueue  by a producer of its own: see `producer` @returns how many jobs were handed over, and the payload that ran last */
  async pickUp(
    enqueue: (queue: ReturnType<typeof SleepingWorker.declare>) => Promise<unknown>,
  ): Promise<[handed: number, payload: unknown]> {
    using handed = probe.watch('queue.handed');
    const before = this.#ran.length;
    await enqueue(SleepingWorker.declare(this.engine));
    await until('it has run', () => this.#ran.length > before);
    await this.queue.drain();
    return [handed.hits.length, this.#ran.at(-1)];
  }

  async one<T>(text: string): Promise<T> {
    const [row] = await this.engine.query<Record<string, T>>(statement('test.one', text, { prepare: false }));
    return Object.values(row ?? {})[0] as T;
  }

  async #start(): Promise<void> {
    const note = async ({ payload }: { payload: unknown }): Promise<void> => {
      this.#ran.push(payload);
      this.#running += 1;
      this.atOnce = Math.max(this.atOnce, this.#running);
      // Long enough for the next job to be claimed, if it could be.
      await sleep(20);
      this.#running -= 1;
    };
    const worker: Worker = this.queue.work({ plain: note, once: note }, { poll: NEVER });
    onTestFinished(async () => {
      await worker.stop();
      await this.engine.stop();
    });
    await worker.started;
  }
}

describe('a notification that does not arrive', () => {
  test('because the listening connection has ended: the poll finds the job, uncharged', async () => {
    const scene = await openScene();
    await scene.worker('lease', { poll: '300ms', lease: '20s' });
    for (let round = 0; round < 3; round += 1) {
      await offered(scene);
      await scene.one(`select count(pg_terminate_backend(pid)) from pg_stat_activity
        where query like '%listen%' and pid <> pg_backend_pid() and datname = current_database()`);
      const { id } = await scene.queue.enqueue('job', {});
      await scene.drained();
      expect((await scene.runs(id)).attempts).toEqual([1]);
    }
  });

  test('because its connection is silent: the job is given back at the next poll, uncharged, and begun once', async () => {
    const scene = await openScene();
    await scene.worker('lease', { poll: '300ms', lease: '20s' });
    await offered(scene);
    const listening = `select pid from pg_stat_activity
      where query like '%listen%' and pid <> pg_backend_pid() and datname = current_database()`;
    const pid = await scene.one<number>(listening);
    process.kill(pid, 'SIGSTOP');
    try {
      using recalls = probe.watch('queue.recalled');
      const first = await scene.queue.enqueue('job', {});
      await scene.drained();
      expect(await scene.runs(first.id)).toMatchObject({ attempts: [1], reasons: ['claim lost'] });
      expect(recalls.hits.length).toBeGreaterThan(0);
      // The worker makes no other offer until a notification arrives: else each poll would delay a job.
      expect(await scene.one(OFFERS)).toBe(0);
      const second = await scene.queue.enqueue('job', {});
      await scene.drained();
      expect(await scene.runs(second.id)).toMatchObject({ attempts: [1], reasons: [] });
      expect(await scene.one(OFFERS)).toBe(0);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    // The old notification arrives now, and is ignored. Then everything is as before.
    using handed = probe.watch('queue.handed');
    await offered(scene);
    expect(await scene.one('select count(*)::int from test_run')).toBe(2);
    let jobs = 2;
    // What is handed over during a recall, which comes with each poll here, is given back.
    await until('a job is handed over again', async () => {
      await offered(scene);
      await producer(scene).enqueue('job', {});
      jobs += 1;
      await scene.drained();
      return handed.hits.length > 0;
    });
    expect(await scene.one('select count(*)::int from test_run')).toBe(jobs);
  });

  test('because its connection ended, and was renewed during the recall: the worker makes offers again', async () => {
    const scene = await openScene();
    const log = recordLog();
    await scene.worker('lease', { poll: '300ms', lease: '20s' }, { logger: log });
    await offered(scene);
    const pid = await scene.one<number>(`select pid from pg_stat_activity
      where query like '%listen%' and pid <> pg_backend_pid() and datname = current_database()`);
    const session = await openSession(scene);
    // This lock delays the recall, which gives the job back.
    await scene.eye.client.query(`
      create function test_wait() returns trigger language plpgsql as $$
      begin
        perform pg_advisory_xact_lock_shared(4711);
        return old;
      end $$;
      create trigger test_wait before delete on pawl.queue_running for each row execute function test_wait()`);
    process.kill(pid, 'SIGSTOP');
    try {
      await session.begin();
      await session.one('select pg_advisory_xact_lock(4711)');
      await scene.queue.enqueue('job', {});
      await until('the recall waits for the lock', () =>
        scene.one(`select count(*)::int from pg_stat_activity
          where wait_event_type = 'Lock' and query like '%queue_recall%' and datname = current_database()`),
      );
      await scene.one('select pg_terminate_backend($1)', [pid]);
    } finally {
      process.kill(pid, 'SIGCONT');
    }
    await until('it listens again', () => log.count('info', /listening again/));
    await session.client.query('rollback');
    await scene.drained();
    // No notification comes.
    await offered(scene);
  });

  test('because no worker listens: the job is not handed over', async () => {
    const scene = await openScene();
    const { queue } = await scene.row();
    const worker = await scene.eye.addWorker(queue);
    await scene.eye.client.query(
      "insert into pawl.queue_offer (queue, worker, number, channel) values ($1, $2, 1, 'x')",
      [queue, worker],
    );
    await scene.queue.enqueue('job', {});
    expect(await places(scene.eye.client, queue)).toEqual({ ready: 1 });
    expect(await scene.one(OFFERS)).toBe(0);
  });
});

describe('a worker that was handed a job', () => {
  test('and is killed at once: the job runs elsewhere after the lease', async () => {
    const scene = await openScene();
    const victim = await scene.child('lease', { PAWL_FAULT: 'queue.after_handover:kill', LEASE: '3s' });
    await offered(scene);
    const { id } = await scene.queue.enqueue('job', {});
    await victim.exited;
    await scene.worker('lease');
    expect(await scene.drained()).toBeLessThan(3000 + 625 + 200 + 15_000);
    expect(await scene.runs(id)).toMatchObject({ attempts: [2], reasons: ['worker lost'] });
    expect(await scene.breaches()).toEqual([]);
    expect(
      await scene.one(
        'select count(*)::int from pawl.queue_offer o where o.worker not in (select id from pawl.queue_worker)',
      ),
    ).toBe(0);
  });

  test('and was killed before: no job is handed to it', async () => {
    const scene = await openScene();
    const victim = await scene.child('lease', { LEASE: '20s' });
    await offered(scene);
    process.kill(victim.pid, 'SIGKILL');
    await victim.exited;
    await until('the server has noticed', async () => {
      const held =
        "select count(*)::int from pg_locks where locktype = 'advisory' and mode = 'ShareLock' and granted and database = (select oid from pg_database where datname = current_database())";
      return (await scene.one<number>(held)) === 0;
    });
    await scene.queue.enqueue('job', {});
    const { queue } = await scene.row();
    expect(await places(scene.eye.client, queue)).toEqual({ ready: 1 });
  });

  test('while it is paused for longer than its lease: does not begin the job when it wakes up', async () => {
    const scene = await openScene();
    // The job is to be enqueued while it lasts.
    const paused = await scene.child('lease', { LEASE: '3s' });
    await offered(scene);
    process.kill(paused.pid, 'SIGSTOP');
    const { id } = await scene.queue.enqueue('job', {});
    expect(await scene.one('select count(*)::int from pawl.queue_running')).toBe(1);
    await scene.worker('lease');
    await scene.drained();
    process.kill(paused.pid, 'SIGCONT');
    const lost = async (): Promise<unknown> => {
      for (;;) {
        const message = (await paused.message()) as { lost?: boolean };
        if (message.lost) return message;
      }
    };
    await lost();
    expect(await scene.runs(id)).toMatchObject({ attempts: [2], reasons: ['worker lost'] });
    expect(await scene.one('select array_agg(distinct pid) from test_run')).toEqual([process.pid]);
  });

  test('and has no free slot any more: gives it back, uncharged, and another worker runs it', async () => {
    const scene = await openScene();
    let open: () => void = () => {};
    const gate = new Promise<void>((resolve) => {
      open = resolve;
    });
    let isBusy = false;
    const engine = postgres(scene.url, { logger: recordLog() });
    const handler = async (): Promise<void> => {
      isBusy = true;
      await gate;
    };
    const worker = createQueue(engine, 'faults', FAULTS).work(
      { job: handler, fragile: handler },
      { poll: NEVER, concurrency: 1, lease: '20s' },
    );
    onTestFinished(async () => {
      await worker.stop();
      await engine.stop();
    });
    await offered(scene);
    const session = await openSession(scene);
    await session.begin();
    // An enqueue is using the offer, so the worker cannot withdraw it when another job takes the slot.
    await session.one('select number from pawl.queue_offer for update');
    await scene.queue.enqueue('job', {}, { key: 'k' });
    await until('the slot is taken', () => isBusy);
    using handed = probe.watch('queue.handed');
    const id = await enqueueOpen(scene, session);
    await session.commit();
    await handed.next();
    const { queue } = await scene.row();
    await until('it was given back', async () => (await places(scene.eye.client, queue))['ready'] === 1);
    await scene.worker('lease', { poll: NEVER, lease: '20s' });
    await until('it has run', async () => (await scene.runs(id)).attempts.length > 0);
    expect((await scene.runs(id)).attempts).toEqual([1]);
    open();
    await scene.drained();
  });

  test('and is being stopped: gives it back, uncharged', async () => {
    const scene = await openScene();
    const worker = await scene.worker('lease', { poll: NEVER, lease: '20s' });
    await offered(scene);
    const session = await openSession(scene);
    await session.begin();
    const id = await enqueueOpen(scene, session);
    const stopping = worker.stop();
    await until('the stop waits for the enqueue', () =>
      scene.one<boolean>(
        `select exists (select 1 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0 and datname = current_database())`,
      ),
    );
    await session.commit();
    await stopping;
    const { queue } = await scene.row();
    expect(await places(scene.eye.client, queue)).toEqual({ ready: 1 });
    expect(await scene.one('select count(*)::int from pawl.queue_worker')).toBe(0);
    await scene.worker('lease');
    await scene.drained();
    expect(await scene.runs(id)).toMatchObject({ attempts: [1], reasons: ['claim lost'] });
  });
});

test('the search for a worker to hand a job to has a cooldown after it was slow twice in a row', async () => {
  const scene = await openScene();
  const { client } = scene.eye;
  // Simulates old snapshots: each search takes longer.
  const sleep = (ms: number): Promise<unknown> =>
    client.query(
      `create or replace function slowness() returns boolean language sql volatile as 'select pg_sleep(${ms / 1000}) is not null'`,
    );
  await sleep(0);
  await client.query(`
    alter table pawl.queue_worker rename to queue_worker_fast;
    create view pawl.queue_worker as select * from pawl.queue_worker_fast where slowness()`);
  await scene.worker('lease', { poll: NEVER, lease: '20s' });
  using handed = probe.watch('queue.handed');
  const next = async (ms: number): Promise<number> => {
    await offered(scene);
    await sleep(ms);
    await scene.queue.enqueue('job', {});
    await sleep(0);
    await scene.drained();
    return handed.hits.length;
  };
  expect([await next(30), await next(30), await next(0)]).toEqual([1, 2, 2]);
  expect(await scene.breaches()).toEqual([]);
});
