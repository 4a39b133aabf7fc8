import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, NotSupported } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue, type WorkOptions } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';

// Workers that take some kinds or priorities only.

let database: FreshDatabase;
let engine: PostgresEngine;
let made = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 20 });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

const kinds = { send: {}, bill: {} } as const;

function newQueue(shards = 1): Queue<typeof kinds> {
  made += 1;
  return createQueue(engine, `taken ${made}`, { kinds, shards, concurrency: { perKey: Infinity } });
}

/** Starts a worker that notes the payloads of what it runs. */
async function start(queue: Queue<typeof kinds>, options: WorkOptions): Promise<unknown[]> {
  const ran: unknown[] = [];
  const note = ({ payload }: { payload: unknown }): void => void ran.push(payload);
  // The poll is late: what these tests wait for is found by notifications.
  const worker = queue.work({ send: note, bill: note }, { poll: '1m', ...options });
  onTestFinished(() => worker.stop({ timeout: '100ms' }));
  await worker.started;
  return ran;
}

const numbers = (from: number, to: number): number[] => Array.from({ length: to - from }, (_, nth) => from + nth);

test.each([1, 3])(
  'a worker of some kinds takes these alone, behind a mass of others, and the others stay (%i shards)',
  async (shards) => {
    const queue = newQueue(shards);
    // With tags they are not one row for many.
    await queue.enqueueMany(numbers(0, 5000).map((payload) => ({ kind: 'send', payload, tags: ['mass'] })));
    const ran = await start(queue, { kinds: ['bill'] });
    await queue.enqueueMany(numbers(5000, 5050).map((payload) => ({ kind: 'bill', payload })));
    await eventually(() => expect(new Set(ran)).toEqual(new Set(numbers(5000, 5050))));
    await queue.enqueue('bill', 'late');
    await eventually(() => expect(ran).toContain('late'));
    await eventually(async () => expect(await queue.stats()).toMatchObject({ ready: 5000, 'in-progress': 0 }));
  },
);

test('a worker of some priorities takes these alone, the most urgent first', async () => {
  const queue = newQueue();
  const at = (priority: number) => ({ kind: 'send', payload: priority, priority }) as const;
  await queue.enqueueMany([at(5), at(-1), at(0), at(-7), at(-2)]);
  const ran = await start(queue, { priority: { min: -5, max: -1 }, concurrency: 1, prefetch: 0 });
  await eventually(() => expect(ran).toEqual([-2, -1]));
  await queue.enqueue('bill', -3, { priority: -3 });
  await queue.enqueue('bill', 0);
  await eventually(() => expect(ran).toEqual([-2, -1, -3]));
  expect((await queue.stats()).ready).toBe(4);
});

test('while a worker of some kinds sleeps, a job of another one is picked up at once by a worker that takes all', async () => {
  const queue = newQueue();
  const some = await start(queue, { kinds: ['bill'] });
  const all = await start(queue, {});
  for (const payload of numbers(0, 5)) {
    await queue.enqueue('send', payload);
    await eventually(() => expect(all).toContain(payload));
  }
  expect(some).toEqual([]);
});

test('two workers of different kinds share a queue, and none of their jobs is lost or done twice', async () => {
  const queue = newQueue();
  const [sent, billed] = [await start(queue, { kinds: ['send'] }), await start(queue, { kinds: ['bill'] })];
  await queue.enqueueMany(numbers(0, 400).map((payload) => ({ kind: payload % 2 ? 'send' : 'bill', payload })));
  await queue.drain();
  expect(sent.toSorted((a, b) => Number(a) - Number(b))).toEqual(numbers(0, 400).filter((n) => n % 2));
  expect(billed.toSorted((a, b) => Number(a) - Number(b))).toEqual(numbers(0, 400).filter((n) => n % 2 === 0));
});

test('once() of a worker of some kinds runs them all and leaves the others', async () => {
  const queue = newQueue();
  await queue.enqueueMany(
    numbers(0, 300).map((payload) => ({ kind: payload % 2 ? 'send' : 'bill', payload, tags: ['t'] })),
  );
  const worker = queue.work({ bill: () => {} }, { kinds: ['bill'] });
  expect(await worker.once()).toMatchObject({ complete: 150 });
  expect((await queue.stats()).ready).toBe(150);
});

test('explain() says that no worker takes such a job', async () => {
  const queue = newQueue();
  const { id } = await queue.enqueue('send', 1);
  await start(queue, { kinds: ['bill'] });
  expect((await queue.explain(id)).reasons[0]).toEqual({
    code: 'no_worker',
    text: `no running worker of queue "${queue.name}" takes kind "send" at this priority; start one that does`,
  });
});

describe('refused at the call', () => {
  const handlers = { send: (): void => {}, bill: (): void => {} };
  const refused: readonly [string, WorkOptions, RegExp][] = [
    ['an unknown kind', { kinds: ['sned'] }, /has no kind "sned"; did you mean "send"\?/],
    ['no kind', { kinds: [] }, /at least one kind/],
    ['an empty range', { priority: { min: 2, max: 1 } }, /priority\.min is 2, which is more than priority\.max, 1/],
    ['a range without an end', { priority: {} }, /min, max or both/],
    ['a priority that is none', { priority: { max: 40_000 } }, /priority\.max/],
  ];
  test.each(refused)('%s', (_, options, message) => {
    expect(() => newQueue().work(handlers, options)).toThrow(InvalidInput);
    expect(() => newQueue().work(handlers, options)).toThrow(message);
  });

  test('a kind that has no handler', () => {
    expect(() => newQueue().work({ bill: () => {} } as never, { kinds: ['send'] })).toThrow(
      /no handler for kind "send"/,
    );
  });

  test('a queue whose keys have an order, and a hold by transactions', () => {
    const keyed = createQueue(engine, 'taken keyed', { kinds });
    expect(() => keyed.work(handlers, { kinds: ['send'] })).toThrow(NotSupported);
    expect(() => keyed.work(handlers, { priority: { max: 0 } })).toThrow(/perKey: Infinity/);
    expect(() => newQueue().work(handlers, { kinds: ['send'], hold: 'transaction' })).toThrow(NotSupported);
  });
});
