import { Conflict, NotFound } from '../../base/errors.ts';
import { type PostgresEngine, postgres } from '../../engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type QueueAdmin } from '../../queue/index.ts';
import { startProgress } from '../output/progress.ts';
import type { Cli } from '../setup/run.ts';

/** The size of one run of `pawl bench`. */
export interface BenchSize {
  readonly jobs: number;
  readonly concurrency: number;
  readonly pickups: number;
}

export interface Measurement {
  readonly enqueuePerSecond: number;
  readonly drainPerSecond: number;
  /** Milliseconds of each pick-up, ascending. */
  readonly waits: readonly number[];
}

const QUEUE = 'pawl-bench';
type BenchQueue = Queue<{ readonly noop: object }>;

/**
 * Measures, and removes the jobs again.
 * @throws Conflict  another bench runs on this database
 */
export async function measure(cli: Cli, engine: PostgresEngine, url: string, size: BenchSize): Promise<Measurement> {
  await refuseCompany(engine);
  const queue = benchQueue(engine);
  await queue.register();
  const enqueuePerSecond = await measureEnqueue(cli, queue, size.jobs);
  const drainPerSecond = await measureDrain(cli, queue, size);
  const { waits, lastId } = await measurePickups(cli, queue, size);
  await removeJobs(engine, { url, lastId, signal: cli.signal });
  return { enqueuePerSecond, drainPerSecond, waits: waits.sort((a, b) => a - b) };
}

function benchQueue(engine: PostgresEngine): BenchQueue {
  return createQueue(engine, QUEUE, { kinds: { noop: {} }, history: '1s' });
}

/** The worker of another bench would take our jobs, and our worker would take its jobs. */
async function refuseCompany(engine: PostgresEngine): Promise<void> {
  const admin = createQueueAdmin(engine);
  if (!(await admin.list()).some(({ name }) => name === QUEUE)) return;
  const live = (await admin.workers(QUEUE)).filter(({ isLive }) => isLive);
  if (live.length > 0) {
    const [{ host, pid } = { host: 'another host', pid: 0 }] = live;
    throw new Conflict(`process ${pid} on ${host} is running a bench on this database; wait until it has ended`);
  }
}

async function measureEnqueue({ talk, signal }: Cli, queue: BenchQueue, jobs: number): Promise<number> {
  using progress = startProgress(talk, 'enqueue', jobs);
  const startedAt = performance.now();
  for (let done = 0; done < jobs; done += 1000) {
    signal.throwIfAborted();
    const length = Math.min(1000, jobs - done);
    await queue.enqueueMany(Array.from({ length }, (_, i) => ({ kind: 'noop' as const, payload: { n: done + i } })));
    progress.at(done + length);
  }
  return perSecond(jobs, startedAt);
}

async function measureDrain({ talk, signal }: Cli, queue: BenchQueue, size: BenchSize): Promise<number> {
  const { jobs, concurrency } = size;
  using progress = startProgress(talk, 'drain', jobs);
  let done = 0;
  let allRan: () => void = () => {};
  const all = new Promise<void>((resolve) => {
    allRan = resolve;
  });
  const startedAt = performance.now();
  const worker = queue.work(
    {
      noop: () => {
        done += 1;
        progress.at(done);
        if (done === jobs) allRan();
      },
    },
    { concurrency, signal },
  );
  try {
    await worker.started;
    await all;
  } finally {
    // The stop settles the jobs that have run: the drain is done when their outcomes are written.
    await worker.stop();
  }
  return perSecond(jobs, startedAt);
}

async function measurePickups(
  { talk, signal }: Cli,
  queue: BenchQueue,
  size: BenchSize,
): Promise<{ waits: number[]; lastId: string }> {
  using progress = startProgress(talk, 'pick-up', size.pickups);
  let ran: () => void = () => {};
  const worker = queue.work({ noop: () => ran() }, { concurrency: size.concurrency, signal });
  const waits: number[] = [];
  let lastId = '';
  try {
    await worker.started;
    for (let n = 0; n < size.pickups; n += 1) {
      signal.throwIfAborted();
      const picked = new Promise<void>((resolve) => {
        ran = resolve;
      });
      const startedAt = performance.now();
      ({ id: lastId } = await queue.enqueue('noop', { n }));
      await picked;
      waits.push(performance.now() - startedAt);
      progress.at(n + 1);
      // The bench measures an idle worker: let it settle the last job and wait again.
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  } finally {
    await worker.stop();
  }
  return { waits, lastId };
}

/**
 * The history of this queue lasts a second, and the first worker of an engine prunes expired history, oldest first. So such a
 * worker runs here until the last job is gone.
 */
async function removeJobs(
  engine: PostgresEngine,
  { url, lastId, signal }: { url: string; lastId: string; signal: AbortSignal },
): Promise<void> {
  const admin = createQueueAdmin(engine);
  const other = postgres(url, { applicationName: 'pawl bench', max: 4, schema: engine.schema.name });
  try {
    await new Promise((resolve) => setTimeout(resolve, 1100));
    const worker = benchQueue(other).work({ noop: () => {} }, { signal });
    try {
      await worker.started;
      while (!signal.aborted && (await isThere(admin, lastId))) {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    } finally {
      await worker.stop();
    }
  } finally {
    await other.stop();
  }
}

async function isThere(admin: QueueAdmin, id: string): Promise<boolean> {
  try {
    await admin.get(id);
    return true;
  } catch (error) {
    if (error instanceof NotFound) return false;
    throw error;
  }
}

function perSecond(count: number, startedAt: number): number {
  return (count * 1000) / (performance.now() - startedAt);
}
