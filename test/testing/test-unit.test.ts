import { inspect } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Cancelled, InvalidInput, LeaseLost, NotSupported, TimedOut } from '../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../src/engine/postgres/index.ts';
import { createQueue, Unit } from '../../src/queue/index.ts';
import { testQueue, testUnit } from '../../src/testing/index.ts';
import { freshDatabase } from '../support/database.ts';

async function freshEngine(): Promise<PostgresEngine> {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  return engine;
}

const ONE = statement('test.one', 'select 1 as one');

describe('a unit without a worker', () => {
  test('is what a handler takes, with a default for all except the payload', () => {
    const unit = testUnit({ payload: { to: 'ada' } });
    expect(unit).toBeInstanceOf(Unit);
    expect(unit).toMatchObject({
      queue: 'test',
      kind: 'test',
      key: null,
      attempt: 1,
      token: 1n,
      payload: { to: 'ada' },
    });
    expect(unit.job.id).toBe('1');
    expect(unit.signal.aborted).toBe(false);
  });

  test('has what it was given', () => {
    const enqueuedAt = new Date('2026-03-01T12:00:00Z');
    const unit = testUnit({
      payload: 1,
      queue: 'mail',
      kind: 'send',
      schedule: { name: 'nightly', at: enqueuedAt },
      key: 'ada',
      attempt: 3,
      token: 7,
      id: 41,
      enqueuedAt,
    });
    expect(unit).toMatchObject({ queue: 'mail', kind: 'send', key: 'ada', attempt: 3, token: 7n });
    expect(unit.job).toMatchObject({ id: '41', enqueuedAt, attempt: 3 });
    expect(unit.schedule?.name).toBe('nightly');
  });

  test('has a job for each payload of a kind that coalesces, and notes which was given up', () => {
    const unit = testUnit({ payloads: ['a', 'b'], key: 'k' });
    expect(unit.jobs.map(({ id, payload }) => [id, payload])).toEqual([
      ['1', 'a'],
      ['2', 'b'],
    ]);
    expect(unit.payload).toBe('b');
    const [first] = unit.jobs;
    if (first === undefined) throw new Error('two jobs');
    unit.fail(first, 'no');
    expect([...unit.failures]).toEqual([[first, 'no']]);
  });

  test('notes progress as a reader would see it, and refuses what cannot be stored', async () => {
    const unit = testUnit({ payload: 1 });
    await unit.progress({ at: new Date(0) });
    expect(unit.noted).toEqual([{ job: unit.job, value: { at: '1970-01-01T00:00:00.000Z' } }]);
    await expect(unit.progress(1n)).rejects.toThrow(InvalidInput);
  });

  test('ends when the test says so', async () => {
    const lost = testUnit({ payload: 1 });
    const { signal } = lost;
    lost.abort(new LeaseLost('gone'));
    expect(signal.reason).toBeInstanceOf(LeaseLost);
    await expect(lost.progress(1)).rejects.toThrow(LeaseLost);
    await expect(lost.guard({ query: () => {} } as never)).rejects.toThrow(LeaseLost);
    const late = testUnit({ payload: 1 });
    late.abort(new TimedOut('too late'));
    await expect(late.progress(1)).rejects.toThrow(LeaseLost);
    const cancelled = testUnit({ payload: 1 });
    cancelled.abort(new Cancelled('by hand'));
    expect(() => cancelled.signal.throwIfAborted()).toThrow('by hand');
  });

  test('has a transaction only where the test gives one, and its guard takes no other', async () => {
    const engine = await freshEngine();
    expect(() => testUnit({ payload: 1 }).tx).toThrow(NotSupported);
    await engine.transaction(async (tx) => {
      const unit = testUnit({ payload: 1, tx });
      expect(await unit.tx.query(ONE)).toEqual([{ one: 1 }]);
      await unit.guard(tx);
      expect(unit.guarded).toEqual([tx]);
      await engine.transaction((other) => expect(unit.guard(other)).rejects.toThrow(NotSupported));
    });
  });

  test.each([
    [{ payload: 1, attempt: 0 }, 'option "attempt" for testUnit must be'],
    [{ payload: 1, kinds: 'a' }, 'did you mean "kind"?'],
    [{ payload: 1, payloads: [1] }, 'testUnit takes "payload" or "payloads", but was given both'],
    [{ payloads: [] }, 'option "payloads" for testUnit must be'],
    [{ payload: 1, tx: {} }, 'option "tx" for testUnit must be what engine.transaction() gives'],
    [{ payload: 1, enqueuedAt: new Date(Number.NaN) }, 'option "enqueuedAt" for testUnit must be a valid Date'],
  ])('refuses %j', (options, words) => {
    expect(() => testUnit(options as { payload: number })).toThrow(InvalidInput);
    expect(() => testUnit(options as { payload: number })).toThrow(words);
  });
});

/** What a handler can see of a unit and do with it, as plain data; errors by their class and words. */
async function look(unit: Unit, engine: PostgresEngine): Promise<object> {
  const told = async (call: () => unknown): Promise<unknown> => {
    try {
      return await call();
    } catch (error) {
      return error instanceof Error ? `${error.name}: ${error.message}` : error;
    }
  };
  const { queue, kind, key, attempt, payload, jobs } = unit;
  return {
    queue,
    kind,
    key,
    attempt,
    payload,
    isUnit: unit instanceof Unit,
    ids: jobs.map(({ id }) => typeof id),
    enqueuedAt: unit.job.enqueuedAt instanceof Date,
    processId: unit.processId.length,
    token: typeof unit.token,
    keysOfJson: Object.keys(JSON.parse(JSON.stringify(unit))),
    shown: inspect(unit).replaceAll(/\d+n?|'[\da-f-]{36}'/g, '#'),
    tx: await told(() => (unit.tx === undefined ? 'none' : 'a transaction')),
    progress: await told(() => unit.progress({ half: true })),
    badProgress: await told(() => unit.progress(1n)),
    badFail: (await told(() => unit.fail({ id: 'x' } as never, 'no'))) ?? null,
    guard: await told(() => engine.transaction((tx) => unit.guard(tx))),
  };
}

test.each(['lease', 'transaction'] as const)(
  'a unit without a worker is like one of a worker with hold %s',
  async (hold) => {
    const engine = await freshEngine();
    const kinds = { send: {} };
    const queue = createQueue(engine, 'mail', { kinds });
    let seen: object | undefined;
    const send = async (unit: Unit): Promise<void> => {
      seen = await look(unit, engine);
    };
    const opened = await testQueue(queue, { handlers: { send }, work: { hold, concurrency: 1 } });
    onTestFinished(() => opened.stop());
    await queue.enqueue('send', { to: 'ada' }, { key: 'k' });
    await opened.settle();

    const given = { payload: { to: 'ada' }, queue: 'mail', kind: 'send', key: 'k' };
    const alone =
      hold === 'lease'
        ? await look(testUnit(given), engine)
        : await engine.transaction((tx) => look(testUnit({ ...given, tx }), engine));
    expect(alone).toEqual(seen);
  },
);
