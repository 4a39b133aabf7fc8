import { once } from 'node:events';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { Stopped } from '../../src/base/errors.ts';
import { type Loop, type LoopOptions, startLoop } from '../../src/base/loop.ts';
import type { Backoff } from '../../src/base/time/backoff.ts';
import { now, sleep } from '../../src/base/time/clock.ts';

const HOUR_MS = 3_600_000;

/** A loop whose turns end when the test says so, each with what the test says. */
function start(options: Partial<LoopOptions> = {}) {
  const turns: Array<{ end: (result: number | 'again') => void; fail: (error: unknown) => void; signal: AbortSignal }> =
    [];
  const errors: Array<[unknown, number]> = [];
  let announce = (): void => {};
  const loop = startLoop({
    name: 'test',
    run: (signal) =>
      new Promise((end, fail) => {
        turns.push({ end, fail, signal });
        announce();
      }),
    onError: (error, failures) => errors.push([error, failures]),
    ...options,
  });
  const turn = async (n: number) => {
    while (turns.length < n) {
      await new Promise<void>((resolve) => {
        announce = resolve;
      });
    }
    const reached = turns[n - 1];
    if (reached === undefined) throw new Error(`turn ${n} is missing`);
    return reached;
  };
  return { loop, turns, errors, turn };
}

async function settled(): Promise<void> {
  for (let n = 0; n < 3; n++) await new Promise((resolve) => setImmediate(resolve));
}

function timers(): number {
  return process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout' || kind === 'Immediate').length;
}

const slow: Backoff = { kind: 'fixed', min: HOUR_MS, max: HOUR_MS, factor: 1, jitter: 0 };

describe('turns', () => {
  test('the first comes at once, but not before startLoop has returned', async () => {
    const { loop, turns, turn } = start();
    expect(turns).toHaveLength(0);
    (await turn(1)).end(HOUR_MS);
    await loop.stop();
  });

  test.each([0, -1, 'again' as const])('a turn that ends with %s is followed by another at once', async (result) => {
    const { loop, turn } = start();
    (await turn(1)).end(result);
    (await turn(2)).end(HOUR_MS);
    await loop.stop();
  });

  test('turns that never wait for anything leave the rest of the process alive', async () => {
    let turns = 0;
    const loop = startLoop({ name: 'busy', run: async () => (turns++, 'again'), onError: () => {} });
    // The first sleep may be over before the second turn.
    while (turns <= 1) expect(await sleep(5)).toBe(true);
    await loop.stop();
  });

  test('the loop rests as long as the turn said', async () => {
    const { loop, turn } = start();
    (await turn(1)).end(20);
    const start1 = now();
    (await turn(2)).end(HOUR_MS);
    expect(now() - start1).toBeGreaterThanOrEqual(19);
    await loop.stop();
  });
});

describe('wake', () => {
  test('ends the rest', async () => {
    const { loop, turn } = start();
    (await turn(1)).end(Infinity);
    await settled();
    loop.wake();
    (await turn(2)).end(HOUR_MS);
    await loop.stop();
  });

  test('during a turn forces exactly one more, at whatever moment it comes', async () => {
    const { loop, turns, turn } = start();
    const first = await turn(1);
    loop.wake();
    loop.wake();
    first.end(HOUR_MS);
    const second = await turn(2);
    second.end(HOUR_MS);
    // The turn has ended, but the loop has not yet seen it: between the two a wake-up is lost most easily.
    loop.wake();
    (await turn(3)).end(HOUR_MS);
    await settled();
    expect(turns).toHaveLength(3);
    await loop.stop();
  });
});

describe('errors', () => {
  test('are reported with the number of failures in a row, and the loop goes on', async () => {
    const backoff = { ...slow, min: 1 };
    const { loop, errors, turn } = start({ backoff });
    (await turn(1)).fail('a');
    (await turn(2)).fail('b');
    (await turn(3)).end('again');
    (await turn(4)).fail('c');
    (await turn(5)).end(HOUR_MS);
    expect(errors).toEqual([
      ['a', 1],
      ['b', 2],
      ['c', 1],
    ]);
    await loop.stop();
  });

  test('waking does not shorten the wait after a failure, stopping does', async () => {
    const { loop, turns, turn } = start({ backoff: slow });
    (await turn(1)).fail(new Error('broken'));
    await settled();
    loop.wake();
    await settled();
    expect(turns).toHaveLength(1);
    await loop.stop();
  });

  test('a turn that throws before its first await, or returns NaN, is a failed turn', async () => {
    for (const run of [
      () => {
        throw new Error('at once');
      },
      async () => Number.NaN,
    ]) {
      let failures = 0;
      const loop: Loop = startLoop({ name: 'x', run, onError: () => failures++, backoff: slow });
      await settled();
      await loop.stop();
      expect(failures).toBe(1);
    }
  });

  test('an onError that throws does not end the loop', async () => {
    const warned = once(process, 'warning');
    const onError = () => {
      throw new Error('reporter is broken');
    };
    const { loop, turn } = start({ onError, backoff: { ...slow, min: 1 } });
    (await turn(1)).fail('a');
    (await turn(2)).end(HOUR_MS);
    expect((await warned)[0]).toMatchObject({ message: expect.stringContaining('reporter is broken') });
    await loop.stop();
  });
});

describe('stop', () => {
  test('waits for the turn under way, tells it by its signal, and can be called twice', async () => {
    const { loop, turns, errors, turn } = start();
    const first = await turn(1);
    let isStopped = false;
    const stops = Promise.all([loop.stop(), loop.stop()]).then(() => {
      isStopped = true;
    });
    await settled();
    expect(isStopped).toBe(false);
    expect(first.signal.reason).toBeInstanceOf(Stopped);
    first.end('again');
    await stops;
    await loop.stop();
    expect(turns).toHaveLength(1);
    expect(errors).toEqual([]);
  });

  test('a turn that ends by throwing the reason of its signal is no error; any other failure is reported', async () => {
    for (const expected of [0, 1]) {
      const { loop, errors, turn } = start();
      const first = await turn(1);
      const stopped = loop.stop();
      first.fail(expected === 0 ? first.signal.reason : new Error('other'));
      await stopped;
      expect(errors).toHaveLength(expected);
    }
  });

  test('before the first turn there is none', async () => {
    const { loop, turns } = start();
    await loop.stop();
    loop.wake();
    await settled();
    expect(turns).toHaveLength(0);
  });

  test('leaves no timer, whether the loop rested or backed off', async () => {
    const resting = start();
    const failing = start({ backoff: slow });
    (await resting.turn(1)).end(HOUR_MS);
    (await failing.turn(1)).fail('x');
    await settled();
    // Of other tests of this process, some may have ended by now, but none ends within the next line.
    const before = timers();
    await Promise.all([resting.loop.stop(), failing.loop.stop()]);
    expect(timers()).toBe(before - 2);
  });

  test('is what await using does', async () => {
    let signal: AbortSignal | undefined;
    {
      await using loop = startLoop({
        name: 'x',
        run: async (given) => {
          signal = given;
          return HOUR_MS;
        },
        onError: () => {},
      });
      await settled();
      loop.wake();
    }
    expect(signal?.aborted).toBe(true);
  });

  test('an unref loop that rests does not keep the process alive', async () => {
    // By its length: what else runs in this process sets timers, too.
    const set = vi.spyOn(globalThis, 'setTimeout');
    onTestFinished(() => set.mockRestore());
    const { loop, turn } = start({ unref: true });
    (await turn(1)).end(7 * HOUR_MS);
    await settled();
    const rests = set.mock.results.filter((_, nth) => Number(set.mock.calls[nth]?.[1]) > 6 * HOUR_MS);
    expect(rests.map(({ value }) => (value as NodeJS.Timeout).hasRef())).toEqual([false]);
    await loop.stop();
  });
});
