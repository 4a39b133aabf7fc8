import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { actor } from '../src/actor/index.ts';
import { TimedOut } from '../src/base/errors.ts';
import { dynamodb } from '../src/engine/dynamodb/index.ts';
import { type PostgresEngine, postgres, id as quoted, statement } from '../src/engine/postgres/index.ts';
import { createQueue } from '../src/queue/index.ts';
import { world } from '../src/testing/index.ts';
import { openScene } from './actor/scene.ts';
import { makeHouse } from './http/house.ts';
import { freshDatabase } from './support/database.ts';
import { dynamoClient, sharedDynamo } from './support/dynamodb.ts';
import { until } from './support/eventually.ts';
import { type Fault, faultyClient } from './support/failing/dynamodb-faults.ts';
import { wallClock, whileStepping } from './support/time/wall-clock.ts';

/**
 * Whatever is done to the wall clock of a process, it waits as long as it was told to, and keeps what it has. What locks do is
 * tested with their other promises, on both engines.
 */
const TWO_HOURS_MS = 7_200_000;
const NOW = statement('test.now', 'select extract(epoch from clock_timestamp())::float8 * 1000 as ms');
/** After which a function of the queue says that somebody is at the job, and a little. */
const LOCK_TIMEOUT_MS = 700;

// Invariant P6.
test('a queue is waited for as long as may be, and what a worker has in hand stays its own', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 8 });
  const queue = createQueue(engine, 'clock', { kinds: { job: { attempts: 1 } } });
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const worker = queue.work({ job: () => finished }, { lease: '10s' });
  onTestFinished(async () => {
    finish();
    await worker.stop({ timeout: 0 });
    await engine.stop();
  });
  const { id } = await queue.enqueue('job', {});
  const { id: later } = await queue.enqueue('job', {}, { runAt: new Date(Date.now() + TWO_HOURS_MS) });
  await until('it runs', async () => (await queue.get(id)).status === 'in-progress');
  const lease = leaseIn(engine, 'queue_worker');
  const first = await lease();
  await whileStepping(wallClock(), async () => {
    const start = performance.now();
    await expect(queue.drain({ timeout: '1s' })).rejects.toBeInstanceOf(TimedOut);
    expect(performance.now() - start).toBeGreaterThanOrEqual(999);
    await until('it was renewed', async () => (await lease()) !== first);
    finish();
    await queue.drain({ timeout: '1m' });
    // Somebody is at it for a while.
    const { held, free } = hold(engine, later);
    await held;
    const cancelling = queue.cancel(later);
    await sleep(LOCK_TIMEOUT_MS);
    free();
    expect(await cancelling).toBe('cancelled');
  });
  expect(await queue.get(id)).toMatchObject({ status: 'complete', attempt: 1 });
});

test('a schedule enqueues each tick once, by the clock of the database', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 8 });
  const queue = createQueue(engine, 'ticks', { kinds: { job: {} } });
  const ticks: number[] = [];
  const worker = queue.work({ job: ({ schedule }) => void ticks.push(schedule?.at.getTime() ?? 0) });
  onTestFinished(async () => {
    await worker.stop({ timeout: 0 });
    await engine.stop();
  });
  const [row] = await engine.query<{ ms: number }>(NOW);
  await whileStepping(wallClock(), async () => {
    await queue.schedule('each second', { cron: '* * * * * *', kind: 'job', missed: 'all' });
    await until('there were some', () => ticks.length >= 5);
  });
  const [first = 0] = ticks.sort((a, b) => a - b);
  expect(ticks).toEqual(ticks.map((_, nth) => first + 1000 * nth));
  expect(first).toBeGreaterThan(row?.ms ?? Infinity);
  expect(first).toBeLessThan((row?.ms ?? 0) + 120_000);
});

test('an actor is waited for as long as may be, and its turn stays its dispatcher’s', async () => {
  let finish = (): void => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const Slow = actor('slow', {
    initial: 'only',
    states: (state) => ({ only: state({ run: (a) => finished.then(() => a.done()) }) }),
  });
  const { actors, engine, run } = await openScene([Slow]);
  onTestFinished(finish);
  await run({ lease: '10s' });
  const one = await actors.create(Slow, {});
  await actors.waitFor(one, { status: 'running' });
  const lease = leaseIn(engine, 'actor_worker');
  const first = await lease();
  await whileStepping(wallClock(), async () => {
    const start = performance.now();
    await expect(actors.waitFor(one, { timeout: '1s' })).rejects.toBeInstanceOf(TimedOut);
    expect(performance.now() - start).toBeGreaterThanOrEqual(999);
    await until('it was renewed', async () => (await lease()) !== first);
    finish();
    await actors.waitFor(one, { timeout: '1m' });
  });
  expect(await actors.history(one)).toHaveLength(2);
});

test('a world waits for its actors with patience', async () => {
  const Slow = actor('slow', {
    initial: 'only',
    states: (state) => ({ only: state({ run: (a) => sleep(500).then(() => a.done()) }) }),
  });
  const { url } = await freshDatabase();
  await using w = world({ actors: [Slow], url, patience: '1m' });
  await w.run(async ({ actors, settle }) => {
    const one = await actors.create(Slow, {});
    await whileStepping(wallClock(), settle);
    expect(await actors.get(one)).toMatchObject({ status: 'final' });
  });
});

test('a bulk action tries a job that somebody is at until it may be refused', async () => {
  const house = await makeHouse();
  onTestFinished(() => house.stop());
  const visitor = house.open();
  const { id } = await createQueue(house.engine, 'mail', { kinds: { send: {}, fail: {} } }).enqueue('send', {
    word: 'held',
  });
  const { held, free } = hold(house.engine, id);
  await held;
  const { body, waitedMs } = await whileStepping(wallClock(), async () => {
    const asked = { method: 'POST', body: { action: 'cancel', query: 'held' } };
    const { body: begun } = await visitor.ask('/api/v1/bulk', asked);
    const path = `/api/v1/bulk/${String(begun['id'])}`;
    await until('it is collected', async () => (await visitor.ask(path)).body['collected']);
    const start = performance.now();
    setTimeout(free, LOCK_TIMEOUT_MS);
    const ended = await until('it is ended', async () => {
      const answer = await visitor.ask(path);
      return answer.body['endedAt'] === null ? undefined : answer.body;
    });
    return { body: ended, waitedMs: performance.now() - start };
  });
  expect(body).toMatchObject({ status: 'done', found: 1 });
  // A machine that stands still may be late for it.
  expect(body['refused'] === 0 || waitedMs > 1000).toBe(true);
});

test('a request to DynamoDB is tried again until its time is over', async () => {
  const { endpoint } = await sharedDynamo();
  const client = dynamoClient(endpoint);
  onTestFinished(() => client.destroy());
  const clock = wallClock();
  const faults: Fault[] = ['throttle', 'drop request', 'throttle'];
  const faulty = faultyClient(client, () => {
    clock.step(TWO_HOURS_MS);
    return faults.pop() ?? 'pass';
  });
  await dynamodb(client, { table: 'wall-clock' }).migrate();
  const key = { pk: 'none', sk: 'none' };
  expect(await dynamodb(faulty, { table: 'wall-clock' }).get(key, { timeoutMs: 20_000 })).toBeUndefined();
  expect(faults).toEqual([]);
});

function leaseIn(engine: PostgresEngine, table: string): () => Promise<number | undefined> {
  const read = statement('test.lease', `select max(expires_at) as at from pawl.${quoted(table)}`, { prepare: false });
  return async () => (await engine.query<{ at: Date }>(read))[0]?.at.getTime();
}

/** A job under the hands of somebody else, in a transaction that stays open. */
function hold(engine: PostgresEngine, job: string): { held: Promise<void>; free: () => void } {
  let free = (): void => {};
  const freed = new Promise<void>((resolve) => {
    free = resolve;
  });
  const held = new Promise<void>((resolve, reject) => {
    const holding = engine.transaction(async (tx) => {
      for (const table of ['queue_ready', 'queue_delayed'])
        await tx.query(statement(`test.${table}`, `select from pawl.${table} where id = $1::bigint for update`), [job]);
      resolve();
      await freed;
    });
    holding.catch(reject);
  });
  onTestFinished(free);
  return { held, free };
}
