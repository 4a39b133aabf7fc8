import { getEventListeners } from 'node:events';
import os from 'node:os';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { after, moment, now, ownedFor, sleep, waitedFor, within } from '../../../src/base/time/clock.ts';
import { ownTimers } from '../../support/children/own-timers.ts';
import { wallClock } from '../../support/time/wall-clock.ts';

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
    const timers = ownTimers();
    let isElapsed = false;
    void sleep(MONTH_MS).then((elapsed) => {
      isElapsed = elapsed;
    });
    await vi.advanceTimersByTimeAsync(MONTH_MS - 1);
    expect(isElapsed).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(isElapsed).toBe(true);
    expect(timers()).toBe(0);
  });

  test('Infinity never comes, and leaves no timer once it is cancelled', async () => {
    const timers = ownTimers();
    const run = vi.fn();
    const cancel = after(Infinity, run);
    await vi.advanceTimersByTimeAsync(10 * MONTH_MS);
    expect(run).not.toHaveBeenCalled();
    cancel();
    expect(timers()).toBe(0);
  });

  test('waiting for work ends with the work or with the time, and leaves no timer', async () => {
    const timers = ownTimers();
    expect(await within(MONTH_MS, Promise.resolve())).toBe(true);
    expect(timers()).toBe(0);
    const late = within(1000, new Promise(() => {}));
    await vi.advanceTimersByTimeAsync(1000);
    expect(await late).toBe(false);
    expect(timers()).toBe(0);
    await expect(within(1000, Promise.reject(new Error('the work failed')))).rejects.toThrow('the work failed');
    expect(timers()).toBe(0);
  });
});

describe('clocks that somebody sets', () => {
  const HOUR_MS = 3_600_000;

  test('a step of the wall clock, forwards or back, neither ends a wait nor takes what is owned', () => {
    const clock = wallClock();
    const start = moment();
    for (const ms of [HOUR_MS, -2 * HOUR_MS, 1000, 100 * HOUR_MS]) {
      clock.step(ms);
      expect(waitedFor(start)).toBeLessThan(60_000);
      expect(ownedFor(start)).toBeLessThan(60_000);
    }
  });

  test('a suspension is time in which one owned, but did not wait; also after the wall clock was set', () => {
    const clock = wallClock();
    clock.step(-HOUR_MS);
    const start = moment();
    clock.suspend(HOUR_MS);
    expect(ownedFor(start)).toBeGreaterThan(HOUR_MS - 2);
    expect(ownedFor(start)).toBeLessThan(HOUR_MS + 60_000);
    expect(waitedFor(start)).toBeLessThan(60_000);
    clock.step(10 * HOUR_MS);
    clock.suspend(2 * HOUR_MS);
    expect(ownedFor(start)).toBeGreaterThan(3 * HOUR_MS - 2);
    expect(ownedFor(start)).toBeLessThan(3 * HOUR_MS + 60_000);
    expect(ownedFor(moment())).toBeLessThan(60_000);
  });

  test('of a step and a suspension that come together, what the uptime confirms counts', () => {
    const clock = wallClock();
    const start = moment();
    clock.suspend(60_000);
    clock.step(HOUR_MS);
    expect(ownedFor(start)).toBeGreaterThan(60_000 - 2);
    expect(ownedFor(start)).toBeLessThan(120_000);
  });

  test('where it is not known how long the machine has been up, the clock that says more is believed', () => {
    const clock = wallClock();
    os.uptime = () => {
      throw new Error('ENOSYS');
    };
    const start = moment();
    clock.step(HOUR_MS);
    expect(ownedFor(start)).toBeGreaterThan(HOUR_MS - 2);
    expect(waitedFor(start)).toBeLessThan(60_000);
  });
});
