import { getEventListeners } from 'node:events';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { after, elapsedSince, moment, now, sleep, within } from '../../src/base/clock.ts';

const MONTH_MS = 30 * 86_400_000;

describe('real time', () => {
  test('sleep is true once the time has passed, and never early', async () => {
    for (let n = 0; n < 20; n++) {
      const start = now();
      expect(await sleep(3)).toBe(true);
      expect(now() - start).toBeGreaterThanOrEqual(3);
    }
  });

  test('sleep is false when the signal is aborted before or while it sleeps, and leaves no listener', async () => {
    const abort = new AbortController();
    const sleeping = sleep(MONTH_MS, abort.signal);
    expect(getEventListeners(abort.signal, 'abort')).toHaveLength(1);
    abort.abort();
    expect(await sleeping).toBe(false);
    expect(await sleep(1, abort.signal)).toBe(false);
    expect(getEventListeners(abort.signal, 'abort')).toHaveLength(0);
  });

  test('a sleep that ends by itself leaves no listener', async () => {
    const { signal } = new AbortController();
    await Promise.all(Array.from({ length: 10 }, () => sleep(1, signal)));
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });

  test('an unref timer does not keep the process alive', () => {
    const before = process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
    const cancel = after(MONTH_MS, () => {}, { unref: true });
    expect(process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout')).toHaveLength(before);
    cancel();
  });
});

describe('turned by hand', () => {
  beforeEach(() => void vi.useFakeTimers({ now: 1_700_000_000_000 }));
  afterEach(() => void vi.useRealTimers());

  test('a timer longer than 2^31 ms comes when it is due, not at once', async () => {
    let isElapsed = false;
    void sleep(MONTH_MS).then((elapsed) => {
      isElapsed = elapsed;
    });
    await vi.advanceTimersByTimeAsync(MONTH_MS - 1);
    expect(isElapsed).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(isElapsed).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
  });

  test('Infinity never comes, and leaves no timer once it is cancelled', async () => {
    const run = vi.fn();
    const cancel = after(Infinity, run);
    await vi.advanceTimersByTimeAsync(10 * MONTH_MS);
    expect(run).not.toHaveBeenCalled();
    cancel();
    expect(vi.getTimerCount()).toBe(0);
  });

  test('waiting for work ends with the work or with the time, and leaves no timer', async () => {
    expect(await within(MONTH_MS, Promise.resolve())).toBe(true);
    expect(vi.getTimerCount()).toBe(0);
    const late = within(1000, new Promise(() => {}));
    await vi.advanceTimersByTimeAsync(1000);
    expect(await late).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
    await expect(within(1000, Promise.reject(new Error('the work failed')))).rejects.toThrow('the work failed');
    expect(vi.getTimerCount()).toBe(0);
  });

  test('elapsed time is that of the clock that says more', () => {
    const start = moment();
    vi.advanceTimersByTime(1000);
    expect(elapsedSince(start)).toBe(1000);
    vi.setSystemTime(1_700_000_000_000 + 60_000);
    expect(elapsedSince(start)).toBe(60_000);
    vi.setSystemTime(1_600_000_000_000);
    expect(elapsedSince(start)).toBe(1000);
  });
});
