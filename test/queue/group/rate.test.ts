import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type RateLimit } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';
import { beginsOf, excesses } from './begins.ts';
import { kinds, type Mail, start } from './mail.ts';

let database: FreshDatabase;
let engine: PostgresEngine;
let session: SqlSession;
let made = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 20 });
  session = await SqlSession.open(database.url);
});

afterAll(async () => {
  await session.end();
  await engine.stop();
  await database.drop();
});

/** One that is over long after the test. */
const RARELY: RateLimit = { limit: 1, per: '1h' };

function newQueue(perGroup: RateLimit, name?: string): Mail {
  made += 1;
  return createQueue(engine, name ?? `rated ${made}`, {
    kinds,
    rate: { perGroup },
    retry: { backoff: { kind: 'fixed', min: 1 } },
  });
}

async function expectWhole(): Promise<void> {
  expect(await breaches(session.client)).toEqual([]);
}

async function expectKept(queue: Mail, limit: number, perMs: number, runs: number): Promise<void> {
  const begins = await beginsOf(session.client, queue.name, 'acme');
  expect(
    excesses(
      begins.map(({ atUs }) => atUs),
      { limit, perMs },
    ),
  ).toEqual([]);
  expect(begins).toHaveLength(runs);
}

const acme = (n: number) =>
  Array.from({ length: n }, (_, nth) => ({ kind: 'send', payload: `acme ${nth}`, group: 'acme' }) as const);

describe.each(['lease', 'transaction'] as const)('hold: %s', (hold) => {
  test('J22: over two workers a group begins as many runs as its rate allows, and none is left', async () => {
    const queue = newQueue({ limit: 10, per: '1s' });
    for (const _ of [1, 2])
      await start(newQueue({ limit: 10, per: '1s' }, queue.name), () => {}, { hold, concurrency: 2 });
    await queue.enqueueMany(acme(18));
    await queue.enqueue('send', 'globex 0', { group: 'globex' });
    await queue.enqueue('send', 'plain');
    await queue.drain();
    await expectKept(queue, 10, 1000, 18);
    await expectWhole();
  });

  test('a next attempt is a run, too: it waits for the rate, and comes before what came later', async () => {
    const queue = newQueue({ limit: 2, per: '1s' });
    const ran: string[] = [];
    await start(
      queue,
      ({ payload, attempt }) => {
        ran.push(`${String(payload)} ${attempt}`);
        if (payload === 'first' && attempt < 3) throw new Error('no');
      },
      { hold },
    );
    const { id } = await queue.enqueue('send', 'first', { group: 'acme' });
    await eventually(() => expect(ran.length).toBeGreaterThanOrEqual(2));
    await queue.enqueue('send', 'second', { group: 'acme' });
    await queue.drain({ delayed: true });
    expect(ran).toEqual(['first 1', 'first 2', 'first 3', 'second 1']);
    await expectKept(queue, 2, 1000, 4);
    expect(await queue.get(id)).toMatchObject({ status: 'complete', attempt: 3 });
    await expectWhole();
  });

  test('J22: two processes keep the rate together, one of them killed in the midst of it', async () => {
    const scene = await freshDatabase();
    const { url } = scene;
    const own = postgres(url, { max: 3 });
    const eye = await SqlSession.open(url);
    onTestFinished(async () => {
      await eye.end();
      await own.stop();
      await scene.drop();
    });
    const queue = createQueue(own, 'rated', { kinds: { send: {} }, rate: { perGroup: { limit: 10, per: '1s' } } });
    await queue.enqueueMany(acme(24));
    const children = [1, 2].map(() => spawnChild('queue/group/rate.child.ts', [], { URL: url, HOLD: hold }));
    onTestFinished(async () => void (await Promise.all(children.map((child) => child.kill()))));
    const [victim] = children;
    // On a busy machine the other one may have run all of them before this one begins.
    let jobs = 24;
    let next: Promise<{ runs?: boolean }> | undefined;
    for (let runs = 0; runs < 2; ) {
      next ??= victim?.message();
      const told = await Promise.race([next, sleep(2000)]);
      if (told === undefined) {
        await queue.enqueueMany(acme(10));
        jobs += 10;
      } else {
        if (told.runs === true) runs += 1;
        next = undefined;
      }
    }
    await victim?.kill();
    await queue.drain();
    const begins = await beginsOf(eye.client, 'rated', 'acme');
    expect(
      excesses(
        begins.map(({ atUs }) => atUs),
        { limit: 10, perMs: 1000 },
      ),
    ).toEqual([]);
    expect(new Set(begins.map(({ job }) => job)).size).toBe(jobs);
    expect(await breaches(eye.client)).toEqual([]);
  });
});

test('a job that a rescue gives back waits for the rate again, and a late settlement of it writes nothing', async () => {
  const queue = newQueue(RARELY);
  const { id } = await queue.enqueue('send', 1, { group: 'acme' });
  const row = await session.one<number>('select id from pawl.queue_definition where name = $1', [queue.name]);
  const worker = await session.addWorker(row);
  const { jobs } = await session.claim(row, worker);
  expect(jobs).toHaveLength(1);
  await session.expire(worker);
  expect(await session.rescue(row)).toBe(1);
  await expectWhole();
  const other = await session.addWorker(row);
  expect((await session.claim(row, other)).jobs).toEqual([]);
  expect(await queue.explain(id)).toMatchObject({ status: 'new', reasons: [{ code: 'group_rate' }] });
  expect(await session.complete(row, worker, jobs)).toEqual([jobs[0]?.claim]);
  await newQueue({ limit: 2, per: '1h' }, queue.name).register();
  const [again] = (await session.claim(row, other)).jobs;
  expect(again).toMatchObject({ id: Number(id), attempt: 2 });
  await expectWhole();
});

test('in a group with a rate the most urgent job comes first, then the oldest', async () => {
  const queue = newQueue({ limit: 2, per: '1s' });
  const at = (payload: number, priority: number) => ({ kind: 'send', payload, priority, group: 'acme' }) as const;
  await queue.enqueueMany([at(1, 0), at(2, 5), at(3, 0), at(4, -5)]);
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload), { concurrency: 1 });
  await queue.drain();
  expect(ran).toEqual([4, 1, 3, 2]);
});

test('explain says that the rate of a group has no room for a job, and when it has', async () => {
  const queue = newQueue({ limit: 2, per: '1h' });
  const ids = await queue.enqueueMany(acme(4));
  const before = Date.now();
  await start(queue, () => {});
  const explained = (nth: number) => queue.explain(ids[nth] ?? '');
  await eventually(async () => expect(await explained(1)).toMatchObject({ status: 'complete' }));
  const after = Date.now();
  for (const [nth, minutes] of [
    [2, 30],
    [3, 60],
  ] as const) {
    const { status, reasons } = await explained(nth);
    expect({ status, reasons }).toMatchObject({ status: 'new', reasons: [{ code: 'group_rate', ahead: nth - 2 }] });
    const [{ until, text } = {}] = reasons;
    expect(text).toMatch(
      /^the rate of group "acme", 2 per 1h, has room for it at .+, in .+; [01] jobs? (is|are) ahead of it$/,
    );
    expect(until?.getTime()).toBeGreaterThanOrEqual(before + minutes * 60_000);
    expect(until?.getTime()).toBeLessThanOrEqual(after + minutes * 60_000);
  }
  expect(await queue.stats()).toMatchObject({ parked: 2, delayed: 0, inProgress: 0 });
});

test.each([1, 3])('every way of enqueueing takes a group with a rate (%i shards)', async (shards) => {
  made += 1;
  const queue = createQueue(engine, `ways at a rate ${made}`, {
    kinds,
    shards,
    rate: { perGroup: { limit: 20, per: '1s' } },
    concurrency: { perGroup: 3 },
  });
  const group = 'acme';
  const { id } = await queue.enqueue('send', 'acme 1', { group });
  await queue.enqueueMany([
    { kind: 'send', payload: 'acme 2', group },
    { kind: 'once', payload: 'acme 3', group },
  ]);
  await queue.enqueue('once', 'acme 4', { group, tags: ['late'] });
  await engine.transaction(async (tx) => void (await queue.enqueue('send', 'acme 5', { group, tx })));
  await queue.enqueue('send', 'acme 6', { group, after: [id] });
  await queue.flow([
    { name: 'one', kind: 'send', payload: 'acme 7', group },
    { name: 'two', kind: 'send', payload: 'acme 8', group, after: ['one'] },
  ]);
  const batch = await queue.batch({});
  await batch.enqueueMany([{ kind: 'send', payload: 'acme 9', group }]);
  await batch.seal();
  await queue.enqueue('send', 'acme 10', { group, delay: 1 });
  await queue.schedule('nightly', { cron: '0 3 * * *', kind: 'send', payload: 'acme 11', group });
  await createQueueAdmin(engine).runSchedule(queue.name, 'nightly');
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload));
  await queue.drain({ delayed: true });
  expect(ran).toHaveLength(11);
  await expectKept(queue, 20, 1000, 11);
  await expectWhole();
});

test('a job that waits for its rate is changed, cancelled, retried, moved and erased like any other, gains no time by it, and takes no slot', async () => {
  const queue = newQueue(RARELY);
  const other = newQueue(RARELY);
  await other.register();
  const ids = await queue.enqueueMany(
    [1, 2, 3, 4, 5, 6, 7].map((payload) => ({ kind: 'send', payload, group: 'acme' }) as const),
  );
  const [one = '', two = '', three = '', four = '', five = '', six = ''] = ids;
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload), { concurrency: 1 });
  await eventually(async () => expect(await queue.get(one)).toMatchObject({ status: 'complete' }));
  await queue.update(six, { priority: -1, payload: 'urgent' });
  await queue.update(two, { delay: '2h' });
  await queue.cancel(three);
  await queue.erase(four);
  await queue.retry(five);
  await session.one('select pawl.move($1::jsonb)', [JSON.stringify({ id: ids[6], to: other.name })]);
  // One of another group is claimed after all that.
  const { id: last } = await queue.enqueue('send', 'globex', { group: 'globex' });
  await eventually(async () => expect(await queue.get(last)).toMatchObject({ status: 'complete' }));
  expect(ran).toEqual([1, 'globex']);
  expect(await queue.explain(five)).toMatchObject({ reasons: [{ code: 'group_rate', ahead: 1 }] });
  await expectWhole();
  await newQueue({ limit: 100, per: '1s' }, queue.name).register();
  await queue.drain();
  expect(ran).toEqual([1, 'globex', 'urgent', 5]);
  expect(await other.stats()).toMatchObject({ parked: 1 });
  await queue.cancel(two);
});

test('the declaration that came last counts: what has begun counts by its rate, and without one nothing waits', async () => {
  const queue = newQueue(RARELY);
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload));
  await queue.enqueueMany(acme(5));
  await eventually(() => expect(ran).toHaveLength(1));
  // One of three.
  await newQueue({ limit: 3, per: '1h' }, queue.name).register();
  await eventually(() => expect(ran).toHaveLength(3));
  await newQueue({ limit: 1, per: '1h' }, queue.name).register();
  expect(await queue.explain((await queue.search('status:new')).jobs[0]?.id ?? '')).toMatchObject({
    reasons: [{ code: 'group_rate' }],
  });
  await createQueue(engine, queue.name, { kinds }).register();
  await eventually(() => expect(ran).toHaveLength(5));
  await expectWhole();
});

test('a clock of the server that is set back stops a group for one period and no longer', async () => {
  const queue = newQueue({ limit: 2, per: '1s' });
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload));
  await queue.enqueueMany(acme(4));
  await eventually(() => expect(ran.length).toBeGreaterThanOrEqual(2));
  // As if it had been an hour later until now.
  const of = `queue = (select id from pawl.queue_definition where name = $1)`;
  await session.client.query(
    `update pawl.queue_rate set tat = tat + interval '1 h', due_at = due_at + interval '1 h' where ${of}`,
    [queue.name],
  );
  await session.client.query(`update pawl.queue_permit set used_at = used_at + interval '1 h' where ${of}`, [
    queue.name,
  ]);
  await queue.enqueue('send', 'plain');
  await queue.drain();
  expect(ran).toHaveLength(5);
});

test('while a queue, or a part of it, is paused nothing begins, and no more than the limit begins at once when it is resumed', async () => {
  const queue = newQueue({ limit: 3, per: '1s' });
  await queue.register();
  await queue.pause();
  await queue.enqueueMany(acme(4));
  const ran: unknown[] = [];
  await start(queue, ({ payload }) => void ran.push(payload));
  await queue.resume();
  await queue.drain();
  await queue.pause({ kind: 'send' });
  await queue.enqueueMany(acme(2));
  await eventually(async () => expect(await queue.stats()).toMatchObject({ delayed: 2, parked: 0 }));
  expect(ran).toHaveLength(4);
  await queue.resume({ kind: 'send' });
  await queue.drain({ delayed: true });
  expect(ran).toHaveLength(6);
  // What was claimed and given back counts as well.
  await expectKept(queue, 3, 1000, 8);
  await expectWhole();
});

test('a call that pulls jobs gets as many of a group as its rate has room for', async () => {
  const queue = newQueue({ limit: 2, per: '1h' });
  await queue.enqueueMany(acme(4));
  const units = await queue.claim({ limit: 10 });
  expect(units.map(({ payload }) => payload)).toEqual(['acme 0', 'acme 1']);
  await units[0]?.release();
  await units[1]?.complete();
  expect(await queue.claim({ limit: 10 })).toEqual([]);
  await newQueue({ limit: 3, per: '1h' }, queue.name).register();
  expect((await queue.claim({ limit: 10 })).map(({ payload }) => payload)).toEqual(['acme 0']);
  await expectWhole();
});

test('the list of queues has the rate of their groups', async () => {
  const [rated, free] = [newQueue({ limit: 3, per: '90s' }), createQueue(engine, 'free', { kinds })];
  await Promise.all([rated.register(), free.register()]);
  const queues = await createQueueAdmin(engine).list();
  const rateOf = (name: string): unknown => queues.find((queue) => queue.name === name)?.rate;
  expect(rateOf(rated.name)).toEqual({ limit: 3, perMs: 90_000 });
  expect(rateOf(free.name)).toBeNull();
});
