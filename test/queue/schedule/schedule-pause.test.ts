import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue, type QueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

const MINUTE = 60_000;

let engine: PostgresEngine;
let admin: QueueAdmin;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20 });
  admin = createQueueAdmin(engine);
});

afterAll(() => engine.stop());

const kinds = { job: {} } as const;

function newQueue(): Queue<typeof kinds> {
  nth += 1;
  return createQueue(engine, `pause ${nth}`, { kinds });
}

async function setNext(queue: string, next: Date): Promise<void> {
  const text = 'update pawl.queue_schedule set next_at = $2 where queue = pawl.queue_id($1)';
  await engine.query(statement('test.next', text, { prepare: false }), [queue, next]);
}

const all = (queue: string): Promise<number> => admin.count('', { queue }).then(({ count }) => count);

describe('a paused schedule', () => {
  test('fires at no tick, while others of its queue do, and is still paused when it is declared again', async () => {
    const queue = newQueue();
    const often = { cron: '* * * * * *', kind: 'job' } as const;
    await queue.schedule('still', { ...often, payload: 'still' });
    await queue.schedule('going', { ...often, payload: 'going' });
    await admin.pauseSchedule(queue.name, 'still');
    const [, still] = await queue.schedules();
    expect(still).toMatchObject({ name: 'still', nextAt: null, pausedAt: expect.any(Date) });
    await admin.pauseSchedule(queue.name, 'still');
    expect((await admin.schedule(queue.name, 'still')).pausedAt).toEqual(still?.pausedAt);
    await queue.schedule('still', { ...often, payload: 'still' });
    await queue.schedule('still', { cron: '*/2 * * * * *', kind: 'job', payload: 'still' });
    const seen: unknown[] = [];
    const worker = queue.work({ job: ({ payload }) => void seen.push(payload) });
    await until('the other has fired three times', () => seen.length >= 3);
    await worker.stop();
    expect(new Set(seen)).toEqual(new Set(['going']));
  });

  test('is not fired by a scheduler that found it due before', async () => {
    const queue = newQueue();
    await queue.schedule('late', { cron: '* * * * *', kind: 'job' });
    await setNext(queue.name, new Date(Date.now() - 1000));
    using ticked = probe.watch('queue.ticked');
    const { faults } = await import('../../../src/base/fault.ts');
    const disarm = faults.arm('queue.before_tick', () => admin.pauseSchedule(queue.name, 'late'));
    const worker = queue.work({ job: () => {} });
    expect(await ticked.next(({ name }) => name === 'late')).toMatchObject({ jobs: null });
    disarm();
    await worker.stop();
    expect(await all(queue.name)).toBe(0);
  });

  test.each(['last', 'all', 'skip'] as const)(
    'skips the ticks of the pause when it is resumed, with missed: %s',
    async (missed) => {
      const queue = newQueue();
      await queue.schedule('hourly', { cron: '0 * * * *', kind: 'job', missed });
      await admin.pauseSchedule(queue.name, 'hourly');
      await setNext(queue.name, new Date(Date.now() - 600 * MINUTE));
      await admin.resumeSchedule(queue.name, 'hourly');
      const { nextAt, pausedAt, lastAt } = await admin.schedule(queue.name, 'hourly');
      expect({ pausedAt, lastAt }).toEqual({ pausedAt: null, lastAt: null });
      expect(nextAt?.getTime()).toBeGreaterThan(Date.now() - MINUTE);
      expect(await all(queue.name)).toBe(0);
      await admin.resumeSchedule(queue.name, 'hourly');
      expect((await admin.schedule(queue.name, 'hourly')).nextAt).toEqual(nextAt);
    },
  );

  test('fires again after it is resumed', async () => {
    const queue = newQueue();
    await queue.schedule('each second', { cron: '* * * * * *', kind: 'job' });
    await admin.pauseSchedule(queue.name, 'each second');
    const worker = queue.work({ job: () => {} });
    await worker.started;
    await admin.resumeSchedule(queue.name, 'each second');
    await until('it has fired', async () => (await all(queue.name)) > 0);
    await worker.stop();
  });
});

test('a schedule can be run by hand, paused or not: its job is for the time of the call, and its ticks do not change', async () => {
  const queue = newQueue();
  await queue.schedule('yearly', { cron: '0 0 1 1 *', kind: 'job', payload: { a: 1 }, key: 'k', priority: 2 });
  const before = await admin.schedule(queue.name, 'yearly');
  const added = await admin.runSchedule(queue.name, 'yearly');
  await admin.pauseSchedule(queue.name, 'yearly');
  await admin.runSchedule(queue.name, 'yearly');
  const job = await queue.get(added.id);
  expect(job).toMatchObject({ kind: 'job', payload: { a: 1 }, key: 'k', priority: 2, schedule: { name: 'yearly' } });
  expect(Math.abs(job.enqueuedAt.getTime() - Number(job.schedule?.at))).toBeLessThan(MINUTE);
  await admin.resumeSchedule(queue.name, 'yearly');
  expect(await admin.schedule(queue.name, 'yearly')).toEqual(before);
  expect(await all(queue.name)).toBe(2);
});

test('each call for a missing queue or schedule fails with an error that names it', async () => {
  const queue = newQueue();
  await queue.schedule('nightly', { cron: '0 0 * * *', kind: 'job' });
  for (const call of ['schedule', 'pauseSchedule', 'resumeSchedule', 'runSchedule', 'unschedule'] as const) {
    const refused = async (of: string, name: string): Promise<string> => {
      const error: unknown = await admin[call](of, name).then(
        () => undefined,
        (cause: unknown) => cause,
      );
      expect(error).toBeInstanceOf(NotFound);
      return String(error);
    };
    expect(await refused(queue.name, 'nihgtly')).toContain('has no schedule "nihgtly"; did you mean "nightly"?');
    expect(await refused(queue.name, 'x')).toContain('has no schedule "x"; it has nightly');
    expect(await refused('nope', 'x')).toContain('queue "nope" does not exist');
  }
  await admin.unschedule(queue.name, 'nightly');
  expect(await queue.schedules()).toEqual([]);
});
