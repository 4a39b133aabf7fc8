import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { AdaptivePrefetch } from '../../../src/base/work/prefetch.ts';

// Rates are measured: a machine that stands still would change them.
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

/** A worker with so many units waiting, which notes how many it was told to keep. */
function worker(waiting: number): { ahead: AdaptivePrefetch; kept: number[] } {
  const kept: number[] = [];
  const ahead = new AdaptivePrefetch({
    count: 'auto',
    max: 100,
    waiting: () => waiting,
    onStalled: (keep) => {
      kept.push(keep);
      waiting = Math.min(waiting, keep);
    },
  });
  return { ahead, kept };
}

/** Ends a thousand units in the least time that is measured. */
function finishWave(ahead: AdaptivePrefetch): void {
  vi.advanceTimersByTime(11);
  ahead.recordEnd(1000);
}

test('as much is claimed ahead as has ended lately, up to the most', () => {
  const { ahead } = worker(0);
  expect(ahead.count).toBe(0);
  finishWave(ahead);
  expect(ahead.count).toBe(100);
  ahead.reset();
  expect(ahead.count).toBe(0);
});

test('a number is kept whatever happens', () => {
  const ahead = new AdaptivePrefetch({ count: 7, max: 5, waiting: () => 7, onStalled: () => expect.unreachable() });
  ahead.watch();
  expect(ahead.count).toBe(7);
});

test('only as much goes on waiting as has begun lately, and a wave is not taken for a rate again', () => {
  const { ahead, kept } = worker(50);
  finishWave(ahead);
  expect(ahead.count).toBe(100);
  ahead.watch();
  for (let n = 0; n < 3; n += 1) ahead.recordStart();
  vi.advanceTimersByTime(250);
  expect(kept).toEqual([3]);
  expect(ahead.count).toBe(0);
  finishWave(ahead);
  expect(ahead.count).toBe(0);
});

test('what begins soon enough is left alone', () => {
  const { ahead, kept } = worker(2);
  ahead.watch();
  for (let n = 0; n < 2; n += 1) ahead.recordStart();
  vi.advanceTimersByTime(250);
  expect(kept).toEqual([]);
  // That look was content, and the next one is not: nothing has begun since.
  vi.advanceTimersByTime(250);
  expect(kept).toEqual([0]);
});
