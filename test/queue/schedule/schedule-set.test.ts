import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Conflict, InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue } from '../../../src/queue/index.ts';
import { planTick } from '../../../src/queue/operate/schedule.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { gate } from '../contract/fixture.ts';
import { SqlSession } from '../sql-session.ts';

let engine: PostgresEngine;
let url: string;
let made = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20, logger: recordLog() });
});

afterAll(() => engine.stop());

function newQueue(): Queue<{ job: object }> {
  made += 1;
  return createQueue(engine, `set ${made}`, { kinds: { job: {} } });
}

const daily = { cron: '0 3 * * *', kind: 'job' } as const;
const names = async (queue: Queue): Promise<string[]> => (await queue.schedules()).map(({ name }) => name);

/** Its next tick is the one that came a minute ago, and so on for this many minutes. */
const AGO = statement(
  'test.ago',
  `update pawl.queue_schedule set next_at = date_trunc('minute', clock_timestamp()) - $2::int * interval '1 minute'
    where queue = (select id from pawl.queue_definition where name = $1)`,
);

describe('the whole set of schedules', () => {
  test('what is gone from it stops, and what was declared alone stays', async () => {
    const queue = newQueue();
    await queue.schedule('alone', daily);
    expect((await queue.schedules({ a: daily, b: daily })).map(({ name }) => name)).toEqual(['a', 'alone', 'b']);
    await queue.schedules({ b: { ...daily, cron: '0 4 * * *' }, c: daily });
    expect(await names(queue)).toEqual(['alone', 'b', 'c']);
    expect((await queue.schedules()).find(({ name }) => name === 'b')).toMatchObject({ cron: '0 4 * * *' });
    await queue.schedules({});
    expect(await names(queue)).toEqual(['alone']);
  });

  test('of two versions that are started in turns, the higher one counts', async () => {
    const queue = newQueue();
    await queue.schedules({ a: daily, b: daily }, { version: 1 });
    await queue.schedules({ b: daily, c: daily }, { version: 2 });
    await queue.schedules({ a: daily, b: daily }, { version: 1 });
    expect(await names(queue)).toEqual(['b', 'c']);
    await queue.schedules({ c: daily }, { version: 2 });
    expect(await names(queue)).toEqual(['c']);
  });

  test('a mistake in one of them changes none', async () => {
    const queue = newQueue();
    await queue.schedules({ a: daily });
    await expect(queue.schedules({ b: daily, c: { ...daily, cron: 'never' } })).rejects.toThrow(InvalidInput);
    await expect(queue.schedules({ b: daily, c: { ...daily, kind: 'jop' as 'job' } })).rejects.toThrow(NotFound);
    await expect(queue.schedules({ b: { ...daily, missed: { all: 'x' } as never } })).rejects.toThrow(InvalidInput);
    await expect(queue.schedules([] as never)).rejects.toThrow(InvalidInput);
    expect(await names(queue)).toEqual(['a']);
  });

  test('twenty processes that declare two sets at once leave one of them', async () => {
    const queue = newQueue();
    await queue.register();
    await Promise.all(
      Array.from({ length: 20 }, (_, n) => queue.schedules(n % 2 ? { a: daily, b: daily } : { b: daily, c: daily })),
    );
    expect([
      ['a', 'b'],
      ['b', 'c'],
    ]).toContainEqual(await names(queue));
  });

  test('a schedule that is set by hand waits for a set that is being declared, and is refused where that has it', async () => {
    const queue = newQueue();
    await queue.register();
    const program = await SqlSession.open(url);
    onTestFinished(() => program.client.end());
    await program.begin();
    const declared = { queue: queue.name, name: 'a', timezone: 'UTC', missed: 'last', priority: 0, ...daily };
    await program.one('select pawl.queue_set_schedules($1)', [
      JSON.stringify({ queue: queue.name, schedules: [declared] }),
    ]);
    const byHand = createQueueAdmin(engine)
      .setSchedule(queue.name, 'a', { ...daily, cron: '0 4 * * *' })
      .catch((error: unknown) => error);
    await eventually(async () =>
      expect(
        await program.one('select count(*)::int from pg_stat_activity where $1 = any (pg_blocking_pids(pid))', [
          program.pid,
        ]),
      ).toBe(1),
    );
    await program.commit();
    expect(await byHand).toBeInstanceOf(Conflict);
    expect(await queue.schedules()).toMatchObject([{ name: 'a', cron: daily.cron }]);
  });
});

test('twenty that set a schedule at once leave one of theirs, whole', async () => {
  const queue = newQueue();
  await queue.register();
  const admin = createQueueAdmin(engine);
  const given = (n: number): { cron: string; kind: 'job'; payload: number; priority: number } => ({
    cron: `${n} 3 * * *`,
    kind: 'job',
    payload: n,
    priority: n,
  });
  await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      n % 2 ? queue.schedule('a', given(n)) : admin.setSchedule(queue.name, 'a', given(n)),
    ),
  );
  const [left, ...more] = await queue.schedules();
  expect(more).toEqual([]);
  expect(left).toMatchObject(given(Number(left?.payload)));
  expect(left?.nextAt?.getUTCMinutes()).toBe(Number(left?.payload));
});

test('a schedule has no group that its queue does not take, in code or by hand, and none once the limit is lifted', async () => {
  const plain = newQueue();
  await plain.register();
  const admin = createQueueAdmin(engine);
  const daily = { cron: '0 3 * * *', kind: 'job', group: 'acme' } as const;
  await expect(plain.schedule('a', daily)).rejects.toMatchObject({ name: 'InvalidInput', field: 'group' });
  await expect(admin.setSchedule(plain.name, 'a', daily)).rejects.toMatchObject({
    name: 'InvalidInput',
    field: 'group',
  });
  expect(await plain.schedules()).toEqual([]);
  const limited = createQueue(engine, plain.name, { kinds: { job: {} }, concurrency: { perGroup: 1 } });
  await limited.register();
  await admin.setSchedule(plain.name, 'a', daily);
  expect(await limited.schedules()).toMatchObject([{ group: 'acme' }]);
  const { id } = await admin.runSchedule(plain.name, 'a');
  expect(await limited.get(id)).toMatchObject({ group: 'acme' });
  await createQueue(engine, plain.name, { kinds: { job: {} } }).register();
  const later = await admin.runSchedule(plain.name, 'a');
  expect(await limited.get(later.id)).toMatchObject({ group: null });
});

test("overlap: 'skip' enqueues nothing while a job of the schedule is outstanding, and goes on after it", async () => {
  const queue = newQueue();
  await queue.schedule('minutely', { cron: '* * * * *', kind: 'job', missed: 'all', overlap: 'skip' });
  expect(await queue.schedules()).toMatchObject([
    { overlap: 'skip', jitterMs: null, missed: 'all', missedForMs: null },
  ]);
  await engine.query(AGO, [queue.name, 5]);
  const goOn = gate();
  onTestFinished(() => goOn.open());
  const ran: unknown[] = [];
  const worker = queue.work({
    job: async (unit) => {
      ran.push(unit.schedule?.name);
      await goOn.opened;
    },
  });
  onTestFinished(() => worker.stop());
  await eventually(() => expect(ran).toHaveLength(1));
  await engine.query(AGO, [queue.name, 0]);
  await eventually(async () => expect((await queue.schedules())[0]?.nextAt?.getTime()).toBeGreaterThan(Date.now()));
  expect(await queue.stats()).toMatchObject({ new: 0, 'in-progress': 1 });
  goOn.open();
  await eventually(async () => expect(await queue.stats()).toMatchObject({ 'in-progress': 0 }));
  await engine.query(AGO, [queue.name, 0]);
  // Two, if a minute begins just now.
  await eventually(() => expect(ran.length).toBeGreaterThanOrEqual(2));
});

test('jitter puts each job off by a part of its time, and leaves the tick as it is', async () => {
  const queue = newQueue();
  await queue.schedule('minutely', { cron: '* * * * *', kind: 'job', missed: 'all', jitter: '10h' });
  await engine.query(AGO, [queue.name, 30]);
  const worker = queue.work({ job: () => {} });
  onTestFinished(() => worker.stop());
  await eventually(async () => expect((await queue.stats()).delayed).toBeGreaterThan(20));
  const { jobs } = await queue.search('');
  const delays = jobs.map(({ runAt }) => (runAt?.getTime() ?? 0) - Date.now());
  expect(Math.max(...delays) - Math.min(...delays)).toBeGreaterThan(3_600_000);
  expect(Math.max(...delays)).toBeLessThan(36_000_000);
  expect(jobs.every(({ schedule }) => (schedule?.at.getTime() ?? Infinity) <= Date.now())).toBe(true);
});

test("missed: { all: '1d' } makes up the ticks of the last day, and no older ones", () => {
  const now = Date.parse('2026-03-10T12:30:00Z');
  const due = {
    queue: 1,
    name: 'x',
    cron: '0 * * * *',
    timezone: 'UTC',
    missed: 'all',
    next: Date.parse('2026-01-01T00:00:00Z'),
  } as const;
  const { ticks, next } = planTick({ ...due, missedFor: 3 * 3_600_000 }, now);
  expect(ticks.map((at) => new Date(at).toISOString())).toEqual([
    '2026-03-10T10:00:00.000Z',
    '2026-03-10T11:00:00.000Z',
    '2026-03-10T12:00:00.000Z',
  ]);
  expect(new Date(next ?? 0).toISOString()).toBe('2026-03-10T13:00:00.000Z');
});
