import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { planTick } from '../../../src/queue/operate/schedule.ts';
import type { Handler } from '../../../src/queue/work/run/attempt.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { spawnChild } from '../../support/process.ts';

const MINUTE = 60_000;
/** A payload that is too large for a look-ahead. */
const LARGE = 'x'.repeat(3000);

let engine: PostgresEngine;
let url: string;
let nth = 0;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  engine = postgres(url, { max: 30 });
});

afterAll(() => engine.stop());

async function rows<Row>(text: string, values: unknown[] = []): Promise<Row[]> {
  return engine.query<Row>(statement('test.rows', text, { prepare: false }), values);
}

/** As if no worker had checked the schedule since then. */
async function setNext(queue: Queue, next: Date): Promise<void> {
  await rows('update pawl.queue_schedule set next_at = $2 where queue = pawl.queue_id($1)', [queue.name, next]);
}

/** Records `<name> <tick>`, or `none`, for each attempt of a job. */
function recorder(fails: number): { seen: Map<string, string[]>; handler: Handler } {
  const seen = new Map<string, string[]>();
  const handler: Handler = ({ jobs, attempt, schedule, job }) => {
    expect(schedule).toEqual(job.schedule);
    for (const { id, schedule: own } of jobs) {
      const told = own === undefined ? 'none' : `${own.name} ${own.at.toISOString()}`;
      seen.set(id, [...(seen.get(id) ?? []), told]);
    }
    if (attempt <= fails) throw new Error('not yet');
  };
  return { seen, handler };
}

const ordered = { shards: 1, retry: { attempts: 3, backoff: { kind: 'fixed', min: 1 } } } as const;

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  test.each([
    ['without a key', {}, {}],
    ['with a large payload', {}, { payload: LARGE }],
    ['with a key', {}, { key: 'k' }],
    ['of a kind that coalesces', { coalesce: 'all' }, { key: 'k' }],
  ] as const)(
    'a job %s has its tick in every attempt, and a job that no schedule enqueued has none',
    async (_, kind, given) => {
      nth += 1;
      const queue = createQueue(engine, `tick ${nth}`, { kinds: { job: kind }, ...ordered });
      await queue.schedule('minutely', { cron: '* * * * *', kind: 'job', missed: 'all', ...given });
      const first = Math.floor(Date.now() / MINUTE) * MINUTE - 10 * MINUTE;
      await setNext(queue, new Date(first));
      const { payload = null, ...options } = { payload: undefined, ...given };
      const plain = [await queue.enqueue('job', payload, options), await queue.enqueue('job', payload, options)];
      const { seen, handler } = recorder(1);
      const worker = queue.work({ job: handler }, { hold, concurrency: 4 });
      await until('the ticks of ten minutes are enqueued', () =>
        rows('select 1 where (select count(*) from pawl.job where queue = $1) >= 12', [queue.name]).then(
          (found) => found.length > 0,
        ),
      );
      // A minute may begin at any time: its job would have one attempt if the worker stopped just then.
      await queue.unschedule('minutely');
      await queue.drain({ delayed: true });
      await worker.stop();

      const ticks = [...seen].flatMap(([id, told]) => (told[0] === 'none' ? [] : [{ id, told }]));
      expect([...seen.keys()].length - ticks.length).toBe(plain.length);
      for (const { id } of plain) expect(new Set(seen.get(id))).toEqual(new Set(['none']));
      const wanted = ticks.map((_tick, n) => `minutely ${new Date(first + n * MINUTE).toISOString()}`);
      expect(new Set(ticks.map(({ told }) => told[0]))).toEqual(new Set(wanted));
      // Jobs that were retried together still have their own ticks.
      for (const { id, told } of ticks) {
        // What is enqueued while its key backs off joins the second attempt.
        if (!('coalesce' in kind)) expect(told.length).toBeGreaterThan(1);
        expect(new Set(told).size).toBe(1);
        const { schedule } = await queue.get(id);
        expect(`${schedule?.name} ${schedule?.at.toISOString()}`).toBe(told[0]);
      }
      expect((await queue.get(plain[0]?.id ?? '')).schedule).toBeNull();
    },
  );
});

test('a tick that is enqueued on time is a whole second, and not later than its job', async () => {
  const queue = createQueue(engine, 'on time', { kinds: { job: {} } });
  await queue.schedule('each second', { cron: '* * * * * *', kind: 'job' });
  const seen: { at: Date; enqueuedAt: Date }[] = [];
  const worker = queue.work({
    job: ({ schedule, job }) => void seen.push({ at: schedule?.at ?? new Date(NaN), enqueuedAt: job.enqueuedAt }),
  });
  await until('two ticks have come', () => seen.length >= 2);
  await worker.stop();
  for (const { at, enqueuedAt } of seen) {
    expect(at.getMilliseconds()).toBe(0);
    expect(at.getTime()).toBeLessThanOrEqual(enqueuedAt.getTime());
  }
});

test("after downtime, missed: 'last' enqueues a job for the last missed tick", async () => {
  const queue = createQueue(engine, 'downtime', { kinds: { job: {} } });
  await queue.schedule('minutely', { cron: '* * * * *', kind: 'job' });
  const now = Date.now();
  await setNext(queue, new Date(Math.floor(now / MINUTE) * MINUTE - 180 * MINUTE));
  const lateness: number[] = [];
  const worker = queue.work({
    job: ({ schedule, job }) => void lateness.push(job.enqueuedAt.getTime() - Number(schedule?.at)),
  });
  await until('it has caught up', () => lateness.length > 0);
  await queue.drain();
  await worker.stop();
  expect(lateness[0]).toBeGreaterThan(MINUTE);
  expect(lateness[0]).toBeLessThan(10 * MINUTE);
});

test.each([
  ['* * * * *', 'UTC', '2026-03-01T00:00:00Z', '2026-03-01T10:00:30Z', '2026-03-01T09:59:00Z'],
  ['0 2 * * *', 'UTC', '2026-03-01T02:00:00Z', '2026-03-05T01:00:00Z', '2026-03-04T02:00:00Z'],
  ['30 2 * * *', 'Europe/Berlin', '2026-03-27T01:30:00Z', '2026-03-29T12:00:00Z', '2026-03-29T01:00:00Z'],
  ['*/10 * * * * *', 'UTC', '2026-03-01T00:00:00Z', '2026-03-01T10:00:00Z', '2026-03-01T09:59:00Z'],
  ['0 0 1 1 *', 'UTC', '2026-01-01T00:00:00Z', '2026-03-01T00:00:00Z', '2026-01-01T00:00:00Z'],
])('of the missed ticks of %s in %s since %s, the last at %s is %s', (cron, timezone, next, now, last) => {
  const tick = planTick(
    { queue: 1, name: 'x', cron, timezone, missed: 'last', next: Date.parse(next) },
    Date.parse(now),
  );
  expect(new Date(tick.ticks[0] ?? NaN).toISOString()).toBe(new Date(last).toISOString());
});

test('a tick that two processes watch is enqueued once, whichever enqueues it', async () => {
  const queue = createQueue(engine, 'two processes', { kinds: { tick: {} } });
  await queue.schedule('each second', { cron: '* * * * * *', kind: 'tick' });
  const children = [1, 2].map(() => spawnChild('queue/schedule/schedule.child.ts', [], { URL: url }));
  for (const child of children) await child.message();
  const ticks = (): Promise<{ ms: number }[]> =>
    rows('select (extract(epoch from tick_at) * 1000)::float8 as ms from pawl.job where queue = $1 order by id', [
      queue.name,
    ]);
  await until('four ticks have come', async () => (await ticks()).length >= 4);
  for (const child of children) await child.kill();
  const told = (await ticks()).map(({ ms }) => ms);
  expect(told).toEqual(told.map((_, n) => (told[0] ?? NaN) + n * 1000));
});

test('SQL may set the tick of a job, and bad ticks are refused', async () => {
  const queue = createQueue(engine, 'from sql', { kinds: { job: {} } });
  await queue.register();
  const enqueue = (schedule: unknown): Promise<{ answer: { id: string } }[]> =>
    rows('select pawl.enqueue($1::jsonb) as answer', [{ queue: queue.name, kind: 'job', schedule }]);
  const [row] = await enqueue({ name: 'nightly', at: '2026-11-20T02:30:00+01:00' });
  expect((await queue.get(row?.answer.id ?? '')).schedule).toEqual({
    name: 'nightly',
    at: new Date('2026-11-20T01:30Z'),
  });
  await enqueue(null);
  for (const bad of [
    'nightly',
    { name: 'nightly' },
    { at: '2026-11-20' },
    { name: 'x', at: 'soon' },
    { name: 'x', at: 'infinity' },
  ]) {
    await expect(enqueue(bad)).rejects.toThrow(/schedule must be an object of a name and a timestamp/);
  }
});
