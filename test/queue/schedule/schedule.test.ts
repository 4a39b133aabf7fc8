import { afterAll, beforeAll, expect, test } from 'vitest';
import { InvalidInput, NotFound } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type Queue } from '../../../src/queue/index.ts';
import { planTick } from '../../../src/queue/operate/schedule.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';

let engine: PostgresEngine;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

const kinds = { tick: {}, once: { unique: 'key' } } as const;

function newQueue(): Queue<typeof kinds> {
  nth += 1;
  return createQueue(engine, `schedule ${nth}`, { kinds });
}

async function rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test.rows', text, { prepare: false }), values);
}

/** As if no worker had checked the schedule since then. */
async function setNext(queue: string, next: Date): Promise<void> {
  await rows('update pawl.queue_schedule set next_at = $2 where queue = pawl.queue_id($1)', [queue, next]);
}

const handlers = { tick: (): void => {}, once: (): void => {} };
const plan = { queue: 1, name: 'x', timezone: 'UTC', missed: 'last' } as const;
const at = (iso: string): number => Date.parse(iso);

// Invariants J12.
test('two processes that watch a schedule enqueue every tick exactly once, also when one is killed', async () => {
  const queue = createQueue(engine, 'two processes', { kinds: { tick: {} } });
  await queue.schedule('each second', { cron: '* * * * * *', kind: 'tick', payload: { n: 1 } });
  const first = (await queue.schedules())[0]?.nextAt?.getTime() ?? NaN;
  const children = [1, 2].map(() => spawnChild('queue/schedule/schedule.child.ts', [], { URL: url }));
  for (const child of children) await child.message();
  const worker = queue.work({ tick: () => {} });
  await worker.started;
  const count = async (): Promise<number> =>
    (await rows<{ n: number }>('select count(*)::int as n from pawl.job where queue = $1', [queue.name]))[0]?.n ?? 0;
  const before = await count();
  await eventually(async () => expect(await count()).toBeGreaterThanOrEqual(before + 2));
  await children[0]?.kill();
  await eventually(async () => expect(await count()).toBeGreaterThanOrEqual(before + 4));
  await children[1]?.kill();
  await worker.stop();
  const last = (await queue.schedules())[0]?.lastAt?.getTime() ?? NaN;
  expect(await count()).toBe((last - first) / 1000 + 1);
});

test('many schedulers that see the same tick at the same moment enqueue one job', async () => {
  const queue = newQueue();
  await queue.schedule('daily', { cron: '0 0 * * *', kind: 'tick' });
  await setNext(queue.name, new Date(Date.now() - 1000));
  let waiting = 0;
  let go = (): void => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  const disarm = faults.arm('queue.before_tick', async () => {
    waiting += 1;
    if (waiting === 3) go();
    await gate;
  });
  using ticked = probe.watch('queue.ticked');
  // Each lease has a keeper of its own, and each keeper a scheduler.
  const workers = ['20s', '21s', '22s'].map((lease) => queue.work(handlers, { lease: lease as '20s' }));
  for (let n = 0; n < 3; n += 1) await ticked.next(({ name }) => name === 'daily');
  disarm();
  expect(ticked.hits.filter(({ jobs }) => jobs === 1)).toHaveLength(1);
  expect(ticked.hits.filter(({ jobs }) => jobs === null)).toHaveLength(2);
  await queue.drain();
  await Promise.all(workers.map((worker) => worker.stop()));
  expect((await queue.stats()).completePerMinute).toBe(1);
});

test.each([
  ['skip', 0],
  ['last', 1],
  ['all', 180],
] as const)('ticks missed for a long time: %s', async (missed, made) => {
  const queue = newQueue();
  await queue.schedule('minutely', { cron: '* * * * *', kind: 'tick', missed });
  const start = Math.floor(Date.now() / 60_000) * 60_000;
  await setNext(queue.name, new Date(start - 180 * 60_000));
  const worker = queue.work(handlers);
  await eventually(async () =>
    expect((await queue.schedules())[0]?.nextAt?.getTime()).toBeGreaterThan(Date.now() - 1000),
  );
  await queue.drain();
  const jobs = await rows<{ n: number }>('select count(*)::int as n from pawl.job where queue = $1', [queue.name]);
  // The tick of this minute does not count as missed, and the one before it may not, either.
  expect(jobs[0]?.n).toBeGreaterThanOrEqual(made);
  expect(jobs[0]?.n).toBeLessThanOrEqual(made + 2);
  await worker.stop();
});

test('a job that a schedule enqueues has its kind, payload, key and priority', async () => {
  const queue = newQueue();
  await queue.schedule('full', { cron: '@daily', kind: 'tick', payload: { a: [1] }, key: 'k', priority: 3 });
  await setNext(queue.name, new Date());
  const seen: unknown[] = [];
  const worker = queue.work({ ...handlers, tick: ({ kind, payload, key }) => void seen.push(kind, payload, key) });
  await eventually(() => expect(seen).toEqual(['tick', { a: [1] }, 'k']));
  await worker.stop();
});

test('declaring a schedule again keeps its next tick, unless the pattern or the zone changes', async () => {
  const queue = newQueue();
  await queue.schedule('b', { cron: '0 12 * * *', kind: 'tick', payload: 1 });
  await queue.schedule('a', { cron: '0 0 1 1 *', kind: 'tick', timezone: 'Asia/Tokyo' });
  const next = new Date(Date.now() + 5_000);
  await rows(`update pawl.queue_schedule set next_at = $2 where queue = pawl.queue_id($1) and name = 'b'`, [
    queue.name,
    next,
  ]);
  await queue.schedule('b', { cron: '0 12 * * *', kind: 'tick', payload: 2 });
  const [a, b] = await queue.schedules();
  expect(a).toMatchObject({ name: 'a', timezone: 'Asia/Tokyo', missed: 'last', lastAt: null });
  expect(b).toMatchObject({ name: 'b', payload: 2, nextAt: next, kind: 'tick', key: null, priority: 0 });
  await queue.schedule('b', { cron: '0 13 * * *', kind: 'tick' });
  expect((await queue.schedules())[1]?.nextAt?.getUTCHours()).toBe(13);
  expect(await createQueueAdmin(engine).schedules(queue.name)).toHaveLength(2);
  expect(await queue.unschedule('b')).toBe(true);
  expect(await queue.unschedule('b')).toBe(false);
  expect(await queue.schedules()).toHaveLength(1);
});

test('when clocks change, a fixed time comes once a day, and an interval never stops', () => {
  const berlin = { ...plan, timezone: 'Europe/Berlin' };
  const daily = { ...berlin, cron: '30 2 * * *' };
  const spring = planTick({ ...daily, next: at('2026-03-28T01:30:00Z') }, at('2026-03-28T01:30:01Z'));
  expect(spring).toMatchObject({ ticks: [at('2026-03-28T01:30:00Z')], next: at('2026-03-29T01:00:00Z') });
  const autumn = planTick({ ...daily, next: at('2026-10-25T00:30:00Z') }, at('2026-10-25T00:30:01Z'));
  expect(autumn).toMatchObject({ ticks: [at('2026-10-25T00:30:00Z')], next: at('2026-10-26T01:30:00Z') });
  const half = { ...berlin, cron: '*/30 * * * *', missed: 'all' as const };
  const night = planTick({ ...half, next: at('2026-10-25T00:00:00Z') }, at('2026-10-25T02:59:59Z'));
  expect(night.ticks).toHaveLength(6);
  expect(night.next).toBe(at('2026-10-25T03:00:00Z'));
});

test('missed ticks are made up a hundred at a time', () => {
  const schedule = { ...plan, cron: '* * * * * *', missed: 'all' as const, next: at('2026-01-01T00:00:00Z') };
  const first = planTick(schedule, at('2026-01-02T00:00:00Z'));
  expect(first.ticks).toEqual(Array.from({ length: 100 }, (_, n) => at('2026-01-01T00:00:00Z') + n * 1000));
  expect(first.next).toBe(at('2026-01-01T00:01:40Z'));
  const begin = process.cpuUsage();
  expect(planTick({ ...schedule, missed: 'last' }, at('2126-01-01T00:00:00.5Z'))).toMatchObject({
    // The one job for all missed ticks has the last of them; the ticks of the last minute do not count as missed.
    ticks: Array.from({ length: 61 }, (_, n) => at('2125-12-31T23:59:00Z') + n * 1000),
    next: at('2126-01-01T00:00:01Z'),
  });
  expect(process.cpuUsage(begin).user).toBeLessThan(500_000);
});

test('bad schedules are refused, and nothing is written', async () => {
  const queue = newQueue();
  const good = { cron: '* * * * *', kind: 'tick' } as const;
  const refused = async (change: object, field: string, words: RegExp): Promise<void> => {
    const error: unknown = await queue.schedule('x', { ...good, ...change }).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(InvalidInput);
    expect(error).toMatchObject({ field, message: expect.stringMatching(words) });
  };
  await refused({ cron: '61 * * * *' }, 'cron', /is invalid.*61/);
  await refused({ cron: '* * *' }, 'cron', /five fields/);
  await refused({ cron: '2030-01-01T00:00:00' }, 'cron', /five fields/);
  await refused({ cron: '@reboot' }, 'cron', /not supported/);
  await refused({ cron: '0 0 30 2 *' }, 'cron', /no future tick/);
  await refused({ cron: `${'1,'.repeat(60)}1 * * * *` }, 'cron', /1 to 100 characters/);
  await refused({ timezone: 'Mars/Olympus' }, 'timezone', /"Mars\/Olympus" is no known time zone/);
  await refused({ missed: 'some' }, 'missed', /one of/);
  await refused({ payload: 1n }, 'payload', /cannot be written as JSON/);
  await refused({ payload: 'a\0b' }, 'payload', /U\+0000/);
  await refused({ kind: 'once' }, 'key', /needs a key/);
  await refused({ cronn: 'x' }, 'cronn', /did you mean "cron"/);
  await expect(queue.schedule('', good)).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.schedule('ü'.repeat(51), good)).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.schedule('x', { ...good, payload: '\ud800' })).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.unschedule('\0')).rejects.toBeInstanceOf(InvalidInput);
  await expect(queue.schedule('x', { ...good, kind: 'tock' as 'tick' })).rejects.toBeInstanceOf(NotFound);
  expect(await queue.schedules()).toEqual([]);
});

test('a hundred schedules that cannot be enqueued do not keep another one from its ticks', async () => {
  const strict = createQueue(engine, `schedule ${(nth += 1)}`, { kinds: { tick: {}, keyed: {} } });
  const names = Array.from({ length: 120 }, (_, n) => `broken ${n}`);
  await strict.schedules(Object.fromEntries(names.map((name) => [name, { cron: '@hourly', kind: 'keyed' } as const])));
  await strict.schedule('good', { cron: '@hourly', kind: 'tick', payload: 'it ticks' });
  await rows('update pawl.queue_kind set needs_key = true where queue = pawl.queue_id($1) and name = $2', [
    strict.name,
    'keyed',
  ]);
  await setNext(strict.name, new Date(Date.now() - 7_200_000));
  await rows('update pawl.queue_schedule set next_at = $2 where queue = pawl.queue_id($1) and name = $3', [
    strict.name,
    new Date(Date.now() - 3_600_000),
    'good',
  ]);
  const seen: unknown[] = [];
  const worker = createQueue(engine, strict.name, { kinds: { tick: {} } }).work({
    tick: ({ payload }) => void seen.push(payload),
  });
  worker.events.on('error', () => {});
  await eventually(() => expect(seen).toContain('it ticks'));
  await worker.stop();
});
