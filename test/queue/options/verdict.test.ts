import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import {
  cancelled,
  createQueue,
  discard,
  retryAfter,
  snooze,
  type Unit,
  type Verdict,
} from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';

let engine: PostgresEngine;
let nth = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 20 });
});

afterAll(() => engine.stop());

const MOVES = statement(
  'test.moves',
  `select to_status as to, reason, attempt, error from pawl.job_history where job = $1::bigint and reason not in ('enqueue', 'claim') order by at`,
  { prepare: false },
);

const throws = (verdict: Verdict): never => {
  throw verdict;
};
const returns = (verdict: Verdict): Verdict => verdict;

describe.each(['lease', 'transaction'] as const)("under hold: '%s'", (hold) => {
  /** Runs one job until it has ended, and gives its moves. */
  async function play(attempts: number, key: string | undefined, handler: (unit: Unit) => unknown): Promise<unknown[]> {
    nth += 1;
    const queue = createQueue(engine, `verdict ${nth}`, {
      kinds: { job: {} },
      retry: { attempts, backoff: { kind: 'fixed', min: 1 } },
    });
    const failed: string[] = [];
    const { id } = await queue.enqueue('job', 1, { key });
    const behind = key === undefined ? undefined : await queue.enqueue('job', 'behind', { key });
    const order: unknown[] = [];
    const worker = queue.work(
      {
        job: (unit) => {
          order.push(unit.payload);
          return unit.payload === 'behind' ? undefined : handler(unit);
        },
      },
      { hold, poll: '50ms', concurrency: 3 },
    );
    worker.events.on('failed', ({ to }) => failed.push(to));
    await until('it has ended', async () => !['new', 'in-progress'].includes((await queue.get(id)).status));
    if (behind !== undefined) {
      await until('the job behind it has ended', async () => (await queue.get(behind.id)).status === 'complete');
      expect(order.at(-1), 'in the order of the key').toBe('behind');
    }
    await worker.stop();
    const moves = await engine.query<{ to: string; reason: string; attempt: number; error: string | null }>(MOVES, [
      id,
    ]);
    expect(failed.length).toBe(moves.filter(({ reason }) => !['snoozed', 'complete'].includes(reason)).length);
    return moves.map(({ to, reason, attempt, error }) => [to, reason, attempt, error?.split('\n')[0] ?? null]);
  }

  // Invariants J10.
  test.each([
    ['returned', returns, undefined],
    ['thrown', throws, undefined],
    ['returned, with a key', returns, 'k'],
  ] as const)('a snooze costs no attempt, however often: %s', async (_, say, key) => {
    let left = 3;
    const moves = await play(1, key, ({ attempt }) => {
      expect(attempt).toBe(1);
      left -= 1;
      return left >= 0 ? say(snooze(1)) : undefined;
    });
    const snoozed = ['new', 'snoozed', 1, 'the handler asked to wait 1ms'];
    expect(moves).toEqual([snoozed, snoozed, snoozed, ['complete', 'complete', 1, null]]);
  });

  test.each([
    ['returned', returns, undefined],
    ['thrown, with a key', throws, 'k'],
  ] as const)('a retryAfter is a failed attempt, and its time counts: %s', async (_, say, key) => {
    const moves = await play(2, key, () => say(retryAfter(2, 'come back')));
    expect(moves).toEqual([
      ['new', 'failed', 1, 'come back'],
      ['error', 'attempts exhausted', 2, 'come back'],
    ]);
  });

  test.each([
    ['returned', returns],
    ['thrown', throws],
  ] as const)('a job is cancelled or discarded by its handler at once: %s', async (_, say) => {
    expect(await play(5, undefined, () => say(cancelled('not wanted')))).toEqual([
      ['cancelled', 'cancelled by its handler', 1, 'not wanted'],
    ]);
    expect(await play(5, 'k', () => say(discard('nonsense')))).toEqual([['error', 'discarded', 1, 'nonsense']]);
  });

  test('one job of a unit is snoozed, and the others complete', async () => {
    nth += 1;
    const queue = createQueue(engine, `verdict ${nth}`, { kinds: { all: { coalesce: 'all' } } });
    const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'all', payload, key: 'k' })));
    const worker = queue.work(
      {
        all: (unit) => unit.jobs.filter(({ payload }) => payload === 2).forEach((job) => unit.fail(job, snooze('1h'))),
      },
      { hold, poll: '50ms', concurrency: 3 },
    );
    await until('one is delayed', async () => (await queue.stats()).delayed === 1);
    await worker.stop();
    const states = await Promise.all(ids.map(async (id) => (await queue.get(id)).status));
    expect(states).toEqual(['complete', 'new', 'complete']);
    expect((await queue.explain(ids[1] ?? '')).reasons[0]?.text).toContain('snoozed');
  });
});

test('the jobs of a key wait for one that its handler has snoozed by unit.fail()', async () => {
  nth += 1;
  const queue = createQueue(engine, `verdict ${nth}`, { kinds: { one: {} } });
  await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'one', payload, key: 'k' })));
  const begun: unknown[] = [];
  const worker = queue.work(
    {
      one: (unit) => {
        begun.push(unit.payload);
        if (begun.length === 1) unit.fail(unit.job, snooze('20ms'));
      },
    },
    { poll: '50ms' },
  );
  await queue.drain({ delayed: true });
  await worker.stop();
  expect(begun).toEqual([1, 1, 2, 3]);
});

test('a wait that cannot be is refused', () => {
  for (const wait of ['soon', -1, 0, Number.NaN, Infinity, undefined] as unknown as 1[]) {
    expect(() => snooze(wait)).toThrow(InvalidInput);
    expect(() => retryAfter(wait)).toThrow(InvalidInput);
  }
  expect(() => discard(5 as unknown as string)).toThrow(InvalidInput);
});
