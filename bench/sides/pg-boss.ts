// pg-boss. Profiles: `batch` fetches and completes 500 jobs at a time in four loops; `strict-fifo` does the same on a queue
// of policy key_strict_fifo; `strict-fifo-wide` has one loop there, with batches of 10,000 (each fetch sorts the whole
// backlog, so fewer fetches are faster); `notify` is its own worker, which NOTIFY wakes; `retry` is `batch` on a queue whose
// jobs are due again at once, and each job fails with the error that it threw; `retry-batch` fails the jobs of a batch with
// one error; `flow` is `batch`, and has waiting jobs released as soon as a fetch is empty. pg-boss itself does that every second.
import { type Job, type JobInsert, PgBoss } from 'pg-boss';
import { ATTEMPTS, dagOf, enqueueAll, failAlways, sendAll, Tally } from './load.ts';
import { serve } from './protocol.ts';

const QUEUE = 'bench';

const RETRY = { retryLimit: ATTEMPTS - 1, retryDelay: 0 };

const PROFILES: Record<string, Profile> = {
  batch: { policy: 'standard', notify: false, batchSize: 500, loops: 4 },
  flow: { policy: 'standard', notify: false, batchSize: 500, loops: 4 },
  'strict-fifo': { policy: 'key_strict_fifo', notify: false, batchSize: 500, loops: 4 },
  'strict-fifo-wide': { policy: 'key_strict_fifo', notify: false, batchSize: 10_000, loops: 1 },
  notify: { policy: 'standard', notify: true, batchSize: 1, loops: 1 },
  retry: { policy: 'standard', notify: false, batchSize: 500, loops: 4, ...RETRY },
  'retry-batch': { policy: 'standard', notify: false, batchSize: 500, loops: 4, ...RETRY, failsTogether: true },
};

interface Profile {
  readonly policy: string;
  readonly notify: boolean;
  readonly batchSize: number;
  readonly loops: number;
  readonly retryLimit?: number;
  readonly retryDelay?: number;
  readonly failsTogether?: boolean;
}

interface Session {
  readonly boss: PgBoss;
  readonly batchSize: number;
  readonly loops: number;
  readonly failsTogether: boolean;
  readonly resolves: boolean;
  readonly tally: Tally;
}

let opened: Session | undefined;

function current(): Session {
  if (opened === undefined) throw new Error('open first');
  return opened;
}

async function handle(jobs: Job[]): Promise<void> {
  const { tally } = current();
  for (const job of jobs) tally.count(job.data);
}

serve({
  async open({ url, profile }) {
    const options = PROFILES[profile];
    if (options === undefined) throw new Error(`pg-boss has no profile "${profile}"`);
    const { batchSize, loops, failsTogether = false, ...created } = options;
    const boss = new PgBoss({
      connectionString: url,
      max: 10,
      supervise: false,
      schedule: false,
      useListenNotify: created.notify,
    });
    boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
    await boss.start();
    await boss.createQueue(QUEUE, created);
    opened = { boss, batchSize, loops, failsTogether, resolves: profile === 'flow', tally: new Tally() };
  },

  async enqueue(args) {
    const { boss } = current();
    const ms = await enqueueAll(args, (specs) =>
      boss.insert(
        QUEUE,
        specs.map(
          ({ payload, key }): JobInsert =>
            key === undefined ? { data: payload } : { data: payload, singletonKey: key },
        ),
      ),
    );
    return { ms };
  },

  async dag(args) {
    await current().boss.flow(
      dagOf(args).map(({ name, payload, after }) => ({ ref: name, name: QUEUE, data: payload, dependsOn: after })),
    );
  },

  async drain({ count }) {
    const { boss, batchSize, loops, resolves, tally } = current();
    let complete = 0;
    const loop = async (): Promise<void> => {
      while (complete < count) {
        const jobs = await boss.fetch(QUEUE, { batchSize });
        if (jobs.length === 0) {
          if (resolves) await boss.resolveFlow();
          continue;
        }
        await handle(jobs);
        const ids = jobs.map((job) => job.id);
        await boss.complete(QUEUE, ids);
        complete += ids.length;
      }
    };
    const start = performance.now();
    await Promise.all(Array.from({ length: loops }, loop));
    return { ms: performance.now() - start, units: tally.units };
  },

  async exhaust({ count }) {
    const { boss, batchSize, loops, failsTogether, tally } = current();
    let failures = 0;
    const loop = async (): Promise<void> => {
      while (failures < count * ATTEMPTS) {
        const jobs = await boss.fetch(QUEUE, { batchSize });
        if (jobs.length === 0) continue;
        const thrown = await Promise.all(
          jobs.map((job) =>
            handle([job])
              .then(failAlways)
              .catch((error: Error) => error),
          ),
        );
        const told = (error?: Error): object => ({ message: error?.message, stack: error?.stack });
        const ids = jobs.map((job) => job.id);
        if (failsTogether) await boss.fail(QUEUE, ids, told(thrown[0]));
        else await Promise.all(ids.map((id, index) => boss.fail(QUEUE, [id], told(thrown[index]))));
        failures += ids.length;
      }
    };
    const start = performance.now();
    await Promise.all(Array.from({ length: loops }, loop));
    return { ms: performance.now() - start, units: tally.units };
  },

  async work() {
    const { boss, batchSize } = current();
    await boss.work(QUEUE, { batchSize }, handle);
  },

  async send(args) {
    const { boss } = current();
    await sendAll(args, (payload) => boss.send(QUEUE, payload));
  },

  async pickups() {
    return { ms: current().tally.takeLatencies() };
  },

  async close() {
    const { boss } = current();
    opened = undefined;
    await boss.stop({ graceful: false });
  },
});
