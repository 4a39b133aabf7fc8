import { describe, expect, onTestFinished, test } from 'vitest';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Worker } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

const WORKERS = 8;
/** A poll interval so long that no test finds a job by polling. */
const NEVER = '60s';

/** Idle workers of one process. */
class Flock {
  readonly engine: PostgresEngine;
  readonly queue: ReturnType<typeof Flock.declare>;
  readonly workers: Worker[];
  readonly ran: unknown[] = [];
  /** The promise that handlers wait for. */
  open = Promise.resolve();

  static async start(): Promise<Flock> {
    const database = await freshDatabase();
    onTestFinished(() => database.drop());
    const flock = new Flock(database.url);
    await Promise.all(flock.workers.map(({ started }) => started));
    onTestFinished(async () => {
      await Promise.all(flock.workers.map((worker) => worker.stop()));
      await flock.engine.stop();
    });
    await flock.rests();
    return flock;
  }

  static declare(engine: PostgresEngine) {
    return createQueue(engine, 'flock', { kinds: { work: {} } });
  }

  private constructor(url: string) {
    this.engine = postgres(url, { logger: recordLog() });
    this.queue = Flock.declare(this.engine);
    const work = async ({ payload }: { payload: unknown }): Promise<void> => {
      this.ran.push(payload);
      await this.open;
    };
    this.workers = Array.from({ length: WORKERS }, () =>
      this.queue.work({ work }, { poll: NEVER, concurrency: 1, prefetch: 0 }),
    );
  }

  /** Waits until every worker has made its offer. */
  rests(): Promise<unknown> {
    const offers = statement('test.offers', 'select count(*)::int as n from pawl.queue_offer', { prepare: false });
    return until(
      'all workers are idle',
      async () => (await this.engine.query<{ n: number }>(offers))[0]?.n === WORKERS,
    );
  }

  /** Keeps handlers from ending. @returns a function that lets them end */
  shut(): () => void {
    let open = (): void => {};
    this.open = new Promise((resolve) => {
      open = resolve;
    });
    return () => open();
  }

  async hasRun(jobs: number): Promise<void> {
    await until(`${jobs} jobs have run`, () => this.ran.length === jobs);
  }
}

describe('workers of one process', () => {
  test('are woken one at a time: a job costs one of them a claim or two, and the others nothing', async () => {
    const { queue, engine, ...flock } = await Flock.start();
    using looks = probe.watch('queue.claimed');
    await engine.transaction((tx) => queue.enqueue('work', 1, { key: 'k', tx }));
    await queue.drain();
    const workers = new Set(looks.hits.map(({ worker }) => worker));
    // The first one took as much as it could, and so it woke another one.
    expect(workers.size).toBeLessThanOrEqual(2);
    expect(flock.ran).toEqual([1]);
  });

  test('wake one another while there are more jobs than one of them can take', async () => {
    const flock = await Flock.start();
    const open = flock.shut();
    await flock.queue.enqueueMany(Array.from({ length: WORKERS }, (_, payload) => ({ kind: 'work', payload })));
    await flock.hasRun(WORKERS);
    open();
    await flock.queue.drain();
  });

  test('are woken by another one if the woken worker is just stopping', async () => {
    const flock = await Flock.start();
    const enqueued = flock.engine.transaction((tx) => flock.queue.enqueue('work', 1, { tx }));
    await Promise.all([enqueued, ...flock.workers.slice(0, WORKERS - 1).map((worker) => worker.stop())]);
    await flock.hasRun(1);
    await flock.queue.drain();
  });

  test('all wake when notifications may have been lost', async () => {
    const flock = await Flock.start();
    const open = flock.shut();
    const end = statement(
      'test.end_listeners',
      `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query ilike 'listen%'`,
      { prepare: false },
    );
    await flock.engine.query(end);
    await flock.queue.enqueueMany(Array.from({ length: WORKERS }, (_, payload) => ({ kind: 'work', payload })));
    await flock.hasRun(WORKERS);
    open();
    await flock.queue.drain();
  });
});
