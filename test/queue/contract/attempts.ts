import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { ConnectionFailed, LeaseLost, Stopped, TimedOut } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { NoRetry, type Unit } from '../../../src/queue/index.ts';
import { aborted, eventually, until } from '../../support/eventually.ts';
import { AT_ONCE, type Fixture, gate, seeBehindAwaits, start } from './fixture.ts';

export function attemptPromises(open: () => Promise<Fixture>): void {
  test('a handler that shows no sign of life is aborted, and progress() is a sign', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { slow: { idle: '2s', attempts: 1 } } });
    const hangs = gate();
    const reasons: unknown[] = [];
    await start(fixture, queue, {
      slow: async (unit) => {
        // Longer than that in all, and each time far shorter.
        for (let n = 0; n < 6; n += 1) {
          await new Promise((resolve) => setTimeout(resolve, 400));
          await unit.progress(n);
        }
        if (unit.payload === 'ends') return 'done';
        hangs.open();
        await aborted(unit.signal);
        reasons.push(unit.signal.reason);
        return 'too late';
      },
    });
    const ends = await queue.enqueue('slow', 'ends');
    const stops = await queue.enqueue('slow', 'hangs');
    await hangs.opened;
    await eventually(async () =>
      expect(await fixture.job(stops.id)).toMatchObject({
        status: 'error',
        error: expect.stringMatching(/progress\(\)/),
      }),
    );
    expect(reasons).toEqual([expect.any(TimedOut)]);
    await eventually(async () =>
      expect(await fixture.job(ends.id)).toMatchObject({ status: 'complete', result: 'done' }),
    );
  });

  test('a job with an onError of its own leaves a dead letter of that kind, and others leave none', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: { attempts: 1 }, own: {}, other: {}, one: { unique: 'key' } } });
    const seen: unknown[] = [];
    const note = (unit: { readonly kind: string; readonly key: string | null; readonly payload: unknown }): void =>
      void seen.push([unit.kind, unit.key, Object(unit.payload).job]);
    const fail = (): never => {
      throw new Error('down');
    };
    const job = { kind: 'send', payload: 1, attempts: 1 } as const;
    const [plain, keyed, coming] = await queue.enqueueMany([
      { ...job, onError: 'own' },
      { ...job, onError: 'other', key: 'k' },
      { ...job, tags: ['t'] },
    ]);
    const { id } = await queue.enqueue('send', 1, { onError: 'own', tags: ['t'] });
    await expect(queue.enqueue('send', 1, { onError: 'one' })).rejects.toThrow(/is unique/);
    await start(fixture, queue, { send: fail, own: note, other: note, one: note });
    await eventually(() => expect(seen).toHaveLength(3));
    await eventually(async () => expect((await fixture.job(coming ?? '')).status).toBe('error'));
    await queue.drain();
    const told = [
      ['own', null, plain],
      ['own', null, id],
      ['other', 'k', keyed],
    ];
    expect(seen).toHaveLength(3);
    expect(seen).toEqual(expect.arrayContaining(told));
  });

  test('a job that always fails runs exactly `attempts` times, and ends in error', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {}, once: { attempts: 1 } }, retry: { ...AT_ONCE, attempts: 4 } });
    const attempts: string[] = [];
    const fail = (unit: { kind: string; attempt: number }): never => {
      attempts.push(`${unit.kind} ${unit.attempt}`);
      throw new Error('out of paper', { cause: new Error('no customer bought any') });
    };
    const worker = await start(fixture, queue, { send: fail, once: fail });
    const told: string[] = [];
    worker.events.on('failed', ({ job, to }) => told.push(`${job.attempt} ${to}`));
    const { id } = await queue.enqueue('send', {});
    await queue.enqueue('once', {});
    await eventually(async () => expect((await fixture.job(id)).status).toBe('error'));
    await eventually(() => expect(attempts.toSorted()).toEqual(['once 1', 'send 1', 'send 2', 'send 3', 'send 4']));
    const job = await fixture.job(id);
    expect(job.error).toMatch(/out of paper[\s\S]*caused by[\s\S]*no customer bought any/);
    expect(job.reasons).toEqual(['failed', 'failed', 'failed', 'attempts exhausted']);
    expect(told.filter((line) => line !== '1 error')).toEqual(['1 retry', '2 retry', '3 retry', '4 error']);
  });

  test('the waits between attempts grow as declared', async () => {
    const fixture = await open();
    const backoff = { kind: 'exponential', min: 100, factor: 3, jitter: 0 } as const;
    const queue = fixture.queue({ kinds: { send: {} }, retry: { attempts: 3, backoff } });
    const at: number[] = [];
    await start(fixture, queue, {
      send: () => {
        at.push(Date.now());
        throw new Error('no');
      },
    });
    await queue.enqueue('send', {});
    await eventually(() => expect(at).toHaveLength(3));
    const [first = 0, second = 0, third = 0] = at;
    expect(second - first).toBeGreaterThanOrEqual(99);
    expect(third - second).toBeGreaterThanOrEqual(299);
    expect(third - second).toBeLessThan(1500);
  });

  test('NoRetry ends a job at once', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: AT_ONCE });
    let runs = 0;
    await start(fixture, queue, {
      send: () => {
        runs += 1;
        throw new NoRetry('the address does not exist');
      },
    });
    const { id } = await queue.enqueue('send', {});
    await eventually(async () =>
      expect(await fixture.job(id)).toMatchObject({ status: 'error', reasons: ['no retry'] }),
    );
    expect(runs).toBe(1);
  });

  test('the signal of an attempt that takes too long is aborted, and the attempt counts as failed', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { slow: { timeout: 50 } }, retry: AT_ONCE });
    const reasons: unknown[] = [];
    await start(fixture, queue, {
      slow: (unit) =>
        new Promise((resolve, reject) => {
          if (unit.attempt === 3) return resolve('in time');
          unit.signal.addEventListener('abort', () => {
            reasons.push(unit.signal.reason);
            reject(new Error('I was interrupted'));
          });
        }),
    });
    const { id } = await queue.enqueue('slow', {});
    await eventually(async () =>
      expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: 'in time' }),
    );
    expect(reasons).toEqual([expect.any(TimedOut), expect.any(TimedOut)]);
    expect((await fixture.job(id)).reasons).toEqual(['timed out', 'timed out']);
  });

  test.for(['alone', 'coalesced'])(
    'an attempt whose time is over has failed, though its handler continues and returns: %s',
    async (how) => {
      const fixture = await open();
      const kind = how === 'alone' ? {} : ({ coalesce: 'all' } as const);
      const queue = fixture.queue({ kinds: { slow: { timeout: 50, ...kind } }, retry: AT_ONCE });
      const refused: unknown[] = [];
      const worker = await start(fixture, queue, {
        slow: async (unit) => {
          if (unit.attempt === 2) return 'in time';
          // The handler ignores its signal until it is done.
          await until('its time is over', () => unit.signal.aborted);
          refused.push(await unit.progress('too late').catch((error: unknown) => error));
          return 'too late';
        },
      });
      const told: string[] = [];
      worker.events.on('failed', ({ job, to }) => told.push(`${job.attempt} ${to}`));
      const ids = await queue.enqueueMany([
        { kind: 'slow', key: 'k', payload: 1 },
        { kind: 'slow', key: how === 'alone' ? 'l' : 'k', payload: 2 },
      ]);
      for (const id of ids) {
        await eventually(async () =>
          expect(await fixture.job(id)).toMatchObject({
            status: 'complete',
            result: 'in time',
            reasons: ['timed out'],
          }),
        );
      }
      expect(told).toEqual(['1 retry', '1 retry']);
      expect(refused.every((error) => error instanceof LeaseLost)).toBe(true);
    },
  );

  test('a handler may stop its worker, without waiting for it: its own job is settled first', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { last: {} }, retry: AT_ONCE });
    let stopped: Promise<void> | undefined;
    const worker = await start(fixture, queue, {
      last: async () => {
        stopped = worker.stop();
        return 'done';
      },
    });
    const { id } = await queue.enqueue('last', {});
    await until('the handler has called stop', () => stopped !== undefined);
    await stopped;
    expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: 'done', reasons: [] });
  });

  // All jobs have begun before one of them stops the worker.
  test.for([
    [1, false],
    [1, true],
    [2, true],
  ] as const)(
    'when a handler awaits the stop of its worker, the promise resolves after the other jobs, and its own job is settled: %i, behind an await: %s',
    async ([handlers, isLate]) => {
      const fixture = await open();
      const queue = fixture.queue({ kinds: { last: {}, other: {} }, retry: AT_ONCE });
      const [running, begun, other] = [gate(), gate(), gate()];
      let left: number = handlers;
      const told: string[] = [];
      seeBehindAwaits(isLate);
      const worker = await start(
        fixture,
        queue,
        {
          last: async () => {
            left -= 1;
            if (left === 0) begun.open();
            if (isLate) await begun.opened;
            told.push('stopping');
            await worker.stop();
            told.push(`the other job is ${(await fixture.job(id)).status}`);
            return 'done';
          },
          other: async () => {
            running.open();
            await other.opened;
          },
        },
        { concurrency: 3 },
      );
      const { id } = await queue.enqueue('other', {});
      await running.opened;
      const last = await queue.enqueueMany(Array.from({ length: handlers }, () => ({ kind: 'last', payload: {} })));
      await until('they wait for the stop', () => told.length === handlers);
      const stopped = worker.stop();
      other.open();
      await stopped;
      expect(told.slice(handlers)).toEqual(Array.from({ length: handlers }, () => 'the other job is complete'));
      for (const job of [id, ...last]) {
        expect(await fixture.job(job)).toMatchObject({ status: 'complete', reasons: [] });
      }
    },
  );

  test('whatever a handler throws, the worker lives, the attempt is counted, and the error is stored', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: { ...AT_ONCE, attempts: 1 } });
    const circle: { self?: unknown } = Object.create(null);
    circle.self = circle;
    const odd: unknown[] = [
      undefined,
      null,
      '',
      new AggregateError([Object.assign(new Error('one'), { code: '23505' }), new Error('two')], 'both'),
      'just\0text',
      '\ud800',
      Object.assign(new Error('long'), { stack: 'x'.repeat(1e6) }),
      Object.assign(new Error('circle'), { cause: undefined }),
      circle,
      new (class extends Error {
        override get message(): string {
          throw new Error('no message');
        }
      })(),
      Object.defineProperty(new Error('no stack'), 'stack', {
        get: () => {
          throw new Error('no stack');
        },
      }),
      Symbol('x'),
    ];
    await start(fixture, queue, {
      send: (unit) => {
        throw odd[Number(unit.payload)];
      },
    });
    const ids = await queue.enqueueMany(odd.map((_, payload) => ({ kind: 'send', payload })));
    await eventually(async () => {
      for (const id of ids) expect((await fixture.job(id)).status).toBe('error');
    });
    const kept = async (at: number): Promise<string | null> => (await fixture.job(ids[at] ?? '')).error;
    expect(await Promise.all([kept(0), kept(1), kept(2)])).toEqual(
      ['undefined', 'null', `''`].map((what) => `${what} was thrown`),
    );
    expect(await kept(3)).toMatch(/both[^]*with: Error: one[^]*code: '23505'[^]*with: Error: two/);
    expect(await kept(4)).toBe('just\\0text');
    expect(await kept(8)).toMatch(/self: \[Circular/);
  });

  test('a result that cannot be stored fails the attempt and affects no other job', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} }, retry: { ...AT_ONCE, attempts: 2 } });
    const circle: { self?: unknown } = {};
    circle.self = circle;
    const results: unknown[] = [1n, circle, { toJSON: () => 1n }];
    await start(fixture, queue, { send: (unit) => (unit.payload === null ? 'fine' : results[Number(unit.payload)]) });
    const ids = await queue.enqueueMany(results.map((_, payload) => ({ kind: 'send', payload })));
    const { id } = await queue.enqueue('send', null);
    await eventually(async () => expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: 'fine' }));
    await eventually(async () => {
      for (const odd of ids) expect((await fixture.job(odd)).status).toBe('error');
    });
  });

  test('results and progress may contain any text that a database can store', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { send: {} } });
    const odd = { emoji: '😀', quote: `'"\\u0000` };
    await start(fixture, queue, {
      send: async (unit) => {
        await unit.progress(odd);
        return odd;
      },
    });
    const { id } = await queue.enqueue('send', {});
    await eventually(async () =>
      expect(await fixture.job(id)).toMatchObject({ status: 'complete', result: odd, progress: odd }),
    );
  });

  test('a handler may return anything that can be awaited, such as a query', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { good: {}, bad: {} }, retry: { ...AT_ONCE, attempts: 1 } });
    // Query builders run their query only when then() is called.
    const query = (settle: (resolve: (value: unknown) => void, reject: (error: unknown) => void) => void): object => ({
      // oxlint-disable-next-line unicorn/no-thenable -- what query builders have
      then: settle,
    });
    await start(fixture, queue, {
      good: () => query((resolve) => resolve('3 rows')),
      bad: () => query((_, reject) => reject(new Error('no such table'))),
    });
    const good = await queue.enqueue('good', {});
    const bad = await queue.enqueue('bad', {});
    await eventually(async () =>
      expect(await fixture.job(good.id)).toMatchObject({ status: 'complete', result: '3 rows' }),
    );
    await eventually(async () => expect((await fixture.job(bad.id)).status).toBe('error'));
  });

  test('a stop whose time is over aborts the handler, and its job is given back uncharged', async () => {
    const fixture = await open();
    const queue = fixture.queue({ kinds: { slow: { attempts: 1 } } });
    let reason: unknown;
    let begun = false;
    const worker = await start(fixture, queue, {
      slow: (unit) =>
        new Promise((_, reject) => {
          begun = true;
          unit.signal.addEventListener('abort', () => {
            reason = unit.signal.reason;
            reject(new Error('interrupted'));
          });
        }),
    });
    const { id } = await queue.enqueue('slow', {});
    await eventually(() => expect(begun).toBe(true));
    await worker.stop({ timeout: '50ms' });
    expect(reason).toBeInstanceOf(Stopped);
    expect(await fixture.job(id)).toMatchObject({ status: 'new' });
    let attempt = 0;
    await start(fixture, queue, { slow: (unit) => void (attempt = unit.attempt) });
    await eventually(() => expect(attempt).toBe(1));
  });

  test('a handler does not begin if its worker has stopped while the payload was checked', async () => {
    const fixture = await open();
    const [checking, checked] = [gate(), gate()];
    const validate = async (value: unknown): Promise<{ value: unknown }> => {
      checking.open();
      await checked.opened;
      return { value };
    };
    const schema = { '~standard': { version: 1, vendor: 'test', validate } } as const;
    const queue = fixture.queue({ kinds: { job: { attempts: 1, payload: schema } } }, 'checked');
    // Without the schema: an enqueue checks the payload, too.
    const { id } = await fixture.queue({ kinds: { job: { attempts: 1 } } }, 'checked').enqueue('job', {});
    const begun: number[] = [];
    const worker = await start(fixture, queue, { job: ({ attempt }) => void begun.push(attempt) });
    await checking.opened;
    await worker.stop({ timeout: 0 });
    checked.open();
    await new Promise((resolve) => setImmediate(resolve));
    expect(begun).toEqual([]);
    expect(await fixture.job(id)).toMatchObject({ status: 'new' });
  });

  test.each(['comes', 'is lost'])(
    'jobs of a claim whose answer %s while the worker stops, after more than a second, are given back uncharged',
    async (what) => {
      const fixture = await open();
      const queue = fixture.queue({ kinds: { job: { attempts: 1 } } });
      const { id } = await queue.enqueue('job', {});
      const [claimed, late] = [gate(), gate()];
      const hold = async (): Promise<void> => {
        claimed.open();
        await late.opened;
        if (what === 'is lost') throw new ConnectionFailed('no answer in time', { outcome: 'unknown' });
      };
      const disarm = faults.arm('queue.after_claim', hold, { occurrence: 1 });
      onTestFinished(disarm);
      const attempts: number[] = [];
      const handlers = { job: (unit: Unit) => void attempts.push(unit.attempt) };
      const worker = await start(fixture, queue, handlers, { lease: '60s' });
      await claimed.opened;
      const stopped = worker.stop({ timeout: 0 });
      await sleep(1500);
      late.open();
      await stopped;
      disarm();
      await start(fixture, queue, handlers);
      await eventually(async () => expect(await fixture.job(id)).toMatchObject({ status: 'complete' }));
      expect(attempts).toEqual([1]);
      // No rescue was needed.
      expect((await fixture.job(id)).reasons).not.toContain('worker lost');
    },
  );
}
