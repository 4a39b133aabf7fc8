import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { define } from '../../../src/queue/declare/define.ts';
import { DynamoQueueStore } from '../../../src/queue/dynamodb/store.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { planTick } from '../../../src/queue/operate/schedule.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually } from '../../support/eventually.ts';
import { faultyClient } from '../../support/failing/dynamodb-faults.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'queue-schedules';
const OPTIONS = { kinds: { tick: {}, once: { unique: 'key' } }, shards: 2 } as const;
const MINUTE = 60_000;
let engine: DynamoEngine;
let made = 0;
const fresh = (): string => `scheduled ${(made += 1)}`;

beforeAll(async () => {
  engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
});

/** The schedules of a queue as another process has them, on a client of its own. */
const schedulesOf = (name: string, on: DynamoEngine = engine): DynamoQueueStore['schedules'] =>
  new DynamoQueueStore(on, define(name, OPTIONS)).schedules;

describe.skipIf(local.kind === 'dynalite')('schedules on DynamoDB', () => {
  // Invariant J12.
  test('each tick is enqueued once by the workers of several processes', async () => {
    const name = fresh();
    const told: string[] = [];
    const queues = [1, 2, 3].map(() => createQueue(dynamodb(client, { table: TABLE }), name, OPTIONS));
    await queues[0]?.schedule('each second', { cron: '* * * * * *', kind: 'tick', payload: { n: 1 } });
    for (const queue of queues) {
      const worker = queue.work(
        { tick: ({ schedule }) => void told.push(schedule?.at.toISOString() ?? 'none'), once: () => {} },
        { poll: '100ms' },
      );
      onTestFinished(() => worker.stop({ timeout: '1s' }));
    }
    await eventually(() => expect(told.length).toBeGreaterThanOrEqual(3));
    expect(await queues[1]?.unschedule('each second')).toBe(true);
    await queues[0]?.drain();
    expect(new Set(told).size).toBe(told.length);
    expect(told).not.toContain('none');
  });

  test('of many processes that see the same tick at the same moment one enqueues the job', async () => {
    const [name, seen] = [fresh(), Math.floor(Date.now() / MINUTE) * MINUTE];
    const queue = createQueue(engine, name, OPTIONS);
    await queue.register();
    const sides = Array.from({ length: 12 }, (_, at) =>
      schedulesOf(name, dynamodb(at % 2 === 0 ? client : faultyClient(client, () => 'duplicate'), { table: TABLE })),
    );
    const declared = { queue: name, name: 'minutely', cron: '* * * * *', timezone: 'UTC', kind: 'tick', priority: 0 };
    await sides[0]?.set({ ...declared, payload: null, missed: 'last', overlap: 'queue', next: seen });
    const tick = planTick({ ...declared, queue: 0, missed: 'last', next: seen }, seen + 1);
    const jobs = await Promise.all(sides.map((side) => side.tick(tick)));
    expect(jobs.filter((n) => n === 1)).toHaveLength(1);
    expect(jobs.filter((n) => n === null)).toHaveLength(11);
    expect((await queue.stats()).ready).toBe(1);
    expect((await queue.schedules())[0]).toMatchObject({ nextAt: new Date(seen + MINUTE), lastAt: new Date(seen) });
  });

  test('missed ticks are made up as missed says, in order', async () => {
    const [name, now] = [fresh(), Math.floor(Date.now() / MINUTE) * MINUTE];
    const queue = createQueue(engine, name, OPTIONS);
    await queue.register();
    const side = schedulesOf(name);
    const declared = { queue: name, cron: '* * * * *', timezone: 'UTC', kind: 'tick', priority: 0, key: 'k' };
    for (const missed of ['skip', 'last', 'all'] as const) {
      const next = now - 5 * MINUTE;
      await side.set({ ...declared, name: missed, payload: null, missed, overlap: 'queue', next });
      const { due } = await side.due();
      for (const one of due) await side.tick(planTick(one, now + 1000));
      // So that the next minute finds none of them.
      expect(await side.remove(missed)).toBe(true);
    }
    const told: string[] = [];
    await using worker = queue.work(
      { tick: ({ schedule }) => void told.push(`${schedule?.name} ${schedule?.at.getTime()}`), once: () => {} },
      { poll: '100ms' },
    );
    await worker.started;
    await queue.drain();
    const of = (schedule: string): number[] =>
      told.filter((each) => each.startsWith(schedule)).map((each) => Number(each.split(' ')[1]));
    expect(of('all')).toEqual([5, 4, 3, 2, 1, 0].map((ago) => now - ago * MINUTE));
    expect(of('last').length).toBeLessThanOrEqual(2);
    expect(of('last').at(-1)).toBe(now);
    expect(of('skip').every((at) => at >= now - MINUTE)).toBe(true);
  });

  test('with overlap: skip a tick enqueues nothing while a job of the schedule is outstanding', async () => {
    // In an hour: the worker itself carries out no tick of it.
    const [name, first] = [fresh(), Math.floor(Date.now() / MINUTE) * MINUTE + 60 * MINUTE];
    const queue = createQueue(engine, name, OPTIONS);
    await queue.register();
    const side = schedulesOf(name);
    const declared = { queue: name, name: 'one', cron: '* * * * *', timezone: 'UTC', kind: 'tick', priority: 0 };
    await side.set({ ...declared, payload: null, missed: 'last', overlap: 'skip', next: first });
    const tick = (nth: number): Promise<number | null> => {
      const seen = first + nth * MINUTE;
      return side.tick({ queue: 0, name: 'one', cron: declared.cron, seen, ticks: [seen], next: seen + MINUTE });
    };
    expect(await tick(0)).toBe(1);
    expect(await tick(1)).toBe(0);
    await queue.work({ tick: () => {}, once: () => {} }).once();
    expect(await tick(2)).toBe(1);
  });

  test('a schedule of a unique kind enqueues its job once', async () => {
    const [name, now] = [fresh(), Date.now()];
    const queue = createQueue(engine, name, OPTIONS);
    await queue.register();
    const side = schedulesOf(name);
    const declared = {
      queue: name,
      name: 'u',
      cron: '* * * * *',
      timezone: 'UTC',
      kind: 'once',
      key: 'k',
      priority: 0,
    };
    await side.set({ ...declared, payload: null, missed: 'last', overlap: 'queue', next: now });
    const tick = { queue: 0, name: 'u', cron: declared.cron, seen: now, ticks: [now, now + 1], next: now + 2 };
    expect(await side.tick(tick)).toBe(1);
    expect(await side.run('u')).toMatchObject({ duplicate: true, status: 'new' });
    expect((await queue.stats()).ready).toBe(1);
  });

  test('a paused schedule has no ticks, and can be run by hand', async () => {
    const name = fresh();
    const queue = createQueue(engine, name, OPTIONS);
    await queue.schedule('daily', { cron: '@daily', kind: 'tick', payload: { a: 1 }, key: 'k', jitter: '1h' });
    const side = schedulesOf(name);
    expect(await side.pause('daily')).toBe(true);
    expect((await side.due()).wait).toBeNull();
    expect((await queue.schedules())[0]).toMatchObject({
      nextAt: null,
      pausedAt: expect.any(Date),
      jitterMs: 3_600_000,
    });
    const { id = '' } = (await side.run('daily')) ?? {};
    expect(await queue.get(id)).toMatchObject({
      kind: 'tick',
      payload: { a: 1 },
      key: 'k',
      schedule: { name: 'daily' },
    });
    expect(await side.resume('daily', () => Date.now() + MINUTE)).toBe(true);
    expect((await side.due()).wait).toBeGreaterThan(0);
    expect(await side.pause('none')).toBe(false);
    expect(await side.run('none')).toBeUndefined();
  });

  test('a set of schedules replaces that of an earlier version, and none of a later one', async () => {
    const queue = createQueue(engine, fresh(), OPTIONS);
    const one = { cron: '@daily', kind: 'tick' } as const;
    await queue.schedule('own', one);
    await queue.schedules({ a: one, b: one }, { version: 1 });
    await queue.schedules({ b: one, c: one }, { version: 2 });
    await queue.schedules({ a: one }, { version: 1 });
    expect((await queue.schedules()).map(({ name }) => name)).toEqual(['b', 'c', 'own']);
    await expect(queue.schedule('x', { cron: '@daily', kind: 'nothing' as 'tick' })).rejects.toThrow(NotFound);
  });
});
