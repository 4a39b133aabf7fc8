import type { Bench, Context } from './harness/context.ts';
import { LocalDynamo } from './harness/dynamodb.ts';
import { atLeast, atMost, figure, median, ratio } from './harness/figures.ts';
import { counted, type Units } from './sides/dynamo-units.ts';
import { PlainQueue } from './sides/plain-dynamo-queue.ts';

/** About 200 bytes as JSON. */
const PAYLOAD = { text: 'x'.repeat(188) };
const SHARDS = [1, 16, 256];
const NONE: Units = { read: 0, write: 0, calls: 0, gets: 0 };
/** The poll interval of the workers without jobs. */
const IDLE_POLL_MS = 1000;

interface Worker {
  readonly started: Promise<void>;
  stop(): Promise<void>;
}

interface PawlQueue {
  enqueue(kind: string, payload: unknown): Promise<unknown>;
  enqueueMany(jobs: readonly object[]): Promise<unknown>;
  work(handlers: object, options: object): Worker;
  drain(): Promise<void>;
}

/** A queue of the built package, as a user gets it, on its own client; and a count of the cost of its requests. */
async function pawlQueue(dynamo: LocalDynamo, name: string, shards = 1): Promise<{ queue: PawlQueue; units: Units }> {
  const dist = new URL('../dist/', import.meta.url);
  const { dynamodb } = (await import(new URL('engine/dynamodb/index.js', dist).href)) as {
    dynamodb: (client: unknown, options: object) => { migrate(): Promise<unknown> };
  };
  const { createQueue } = (await import(new URL('queue/index.js', dist).href)) as {
    createQueue: (engine: unknown, name: string, options: object) => PawlQueue;
  };
  const units: Units = { ...NONE };
  const engine = dynamodb(counted(dynamo.client(), units), { table: 'pawl' });
  await engine.migrate();
  return { queue: createQueue(engine, name, { kinds: { send: {} }, shards }), units };
}

const many = (n: number): { kind: string; payload: unknown }[] =>
  Array.from({ length: n }, () => ({ kind: 'send', payload: PAYLOAD }));

/** Queues on DynamoDB: the cost of a job, a drain compared with AWS's published pattern, the cost of shards and of idle workers. */
export const queueDynamodb: Bench = async (context) => {
  await using dynamo = await LocalDynamo.start();
  context.say(`DynamoDB Local ${dynamo.version}`);
  const drained = await compareDrains(context, dynamo);
  const costs = await countCosts(dynamo);
  const shards = await Promise.all(SHARDS.map((each) => costOfShards(dynamo, each)));
  const idle = await countIdle(context, dynamo);
  const jobs = shards.map(({ calls }) => calls);
  return {
    figures: {
      'write_units/alone': figure('units/job', [costs.alone]),
      'write_units/batches': figure('units/job', [costs.batch]),
      'drain/pawl': figure('jobs/s', drained.pawl),
      'drain/plain': figure('jobs/s', drained.plain),
      ...Object.fromEntries(
        shards.flatMap(({ write, calls }, at) => [
          [`shard_write_units/${SHARDS[at]}`, figure('units/job', [write])],
          [`shard_requests/${SHARDS[at]}`, figure('requests/job', [calls])],
        ]),
      ),
      'idle/pawl': figure('requests per poll', [idle.calls]),
      'idle/polls': figure('polls per rest', [idle.polls]),
    },
    bars: {
      units_batches: atMost(1.5, costs.batch),
      units_alone: atMost(5, costs.alone),
      drain: atLeast(5, ratio(drained.pawl, drained.plain)),
      shards: atMost(1.25, Math.max(...jobs) / Math.min(...jobs)),
      idle: atMost(1, idle.calls),
      polls: atMost(1.05, idle.polls),
    },
  };
};

async function compareDrains(
  { quick, rounds, size, say }: Context,
  dynamo: LocalDynamo,
): Promise<{ pawl: number[]; plain: number[] }> {
  const count = size ?? (quick ? 1000 : 5000);
  const found = { pawl: [] as number[], plain: [] as number[] };
  // The first round warms up the service and does not count.
  for (let round = 0; round <= rounds; round += 1) {
    const plain = new PlainQueue(dynamo.client(), `plain-${round}`);
    await plain.migrate();
    await plain.enqueue(many(count).map(({ payload }) => payload));
    const plainRate = await rate(count, async () => void (await plain.drain()));
    const { queue } = await pawlQueue(dynamo, `drain ${round}`);
    await queue.enqueueMany(many(count));
    let worker: Worker | undefined;
    const pawlRate = await rate(count, async () => {
      worker = queue.work({ send: () => {} }, { concurrency: 32, prefetch: 500 });
      await queue.drain();
    });
    await worker?.stop();
    if (round === 0) continue;
    found.pawl.push(pawlRate);
    found.plain.push(plainRate);
  }
  say(`drain: pawl ${median(found.pawl).toFixed(0)} jobs/s, plain ${median(found.plain).toFixed(0)} jobs/s`);
  return found;
}

async function rate(jobs: number, run: () => Promise<void>): Promise<number> {
  const begin = performance.now();
  await run();
  return (jobs * 1000) / (performance.now() - begin);
}

/** Write units of a job, from its enqueue to its settlement. The worker starts before. */
async function countCosts(dynamo: LocalDynamo): Promise<{ alone: number; batch: number }> {
  const { queue, units } = await pawlQueue(dynamo, 'costs');
  const worker = queue.work({ send: () => {} }, { poll: '1h', lease: '10m', prefetch: 500 });
  await worker.started;
  const cost = async (jobs: number, enqueue: () => Promise<unknown>): Promise<number> => {
    const before = units.write;
    await enqueue();
    await queue.drain();
    return (units.write - before) / jobs;
  };
  await cost(1, () => queue.enqueue('send', PAYLOAD));
  const alone: number[] = [];
  for (let job = 0; job < 20; job += 1) alone.push(await cost(1, () => queue.enqueue('send', PAYLOAD)));
  const batch = await cost(512, () => queue.enqueueMany(many(512)));
  await worker.stop();
  return { alone: median(alone), batch };
}

/** The cost of an enqueue with this many shards. Producers without keys fill one shard after another, so the cost must stay the same. */
async function costOfShards(dynamo: LocalDynamo, shards: number): Promise<{ write: number; calls: number }> {
  const { queue, units } = await pawlQueue(dynamo, `shards ${shards}`, shards);
  const rounds = 256;
  await queue.enqueue('send', PAYLOAD);
  Object.assign(units, NONE);
  for (let round = 0; round < rounds; round += 1) await queue.enqueue('send', PAYLOAD);
  return { write: units.write / rounds, calls: units.calls / rounds };
}

/**
 * Requests of a worker without jobs, for each shard and poll. A poll gets the head of each shard. Both workers also send heartbeats each third
 * of a lease, and read all workers and schedules every few seconds. So the difference between 20 and 4 shards counts, divided by 16.
 */
async function countIdle({ quick }: Context, dynamo: LocalDynamo): Promise<{ calls: number; polls: number }> {
  const sizes = [4, 20];
  const sides = await Promise.all(sizes.map((shards) => pawlQueue(dynamo, `idle ${shards}`, shards)));
  const workers = sides.map(({ queue }) => queue.work({ send: () => {} }, { poll: IDLE_POLL_MS }));
  await Promise.all(workers.map(({ started }) => started));
  await sleep(2 * IDLE_POLL_MS);
  for (const { units } of sides) Object.assign(units, NONE);
  await sleep((quick ? 10 : 30) * IDLE_POLL_MS);
  const found = sides.map(({ units }, at) => ({ calls: units.calls, polls: units.gets / (sizes[at] ?? 1) }));
  await Promise.all(workers.map((worker) => worker.stop()));
  const [few = 0, all = 0] = found.map(({ calls, polls }) => calls / polls);
  return { calls: (all - few) / 16, polls: median(found.map(({ polls }) => polls)) / (quick ? 10 : 30) };
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
