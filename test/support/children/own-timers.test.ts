import { setImmediate as tick } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { ownTimers } from './own-timers.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date', 'performance'] }));
afterEach(() => void vi.useRealTimers());

test('timers that something else sets in this process meanwhile do not count, nor do those that they set in turn', async () => {
  let isOver = false;
  let rounds = 0;
  const again = (): void => {
    rounds += 1;
    if (!isOver) setTimeout(again, 1000);
  };
  let begin = (): void => {};
  const other = new Promise<void>((resolve) => {
    begin = resolve;
  }).then(again);
  const timers = ownTimers();
  begin();
  await other;
  await vi.advanceTimersByTimeAsync(3000);
  expect(rounds).toBe(4);
  expect(vi.getTimerCount()).toBe(1);
  expect(timers()).toBe(0);
  isOver = true;
});

test('its own count until they have fired or are cleared', async () => {
  const timers = ownTimers();
  const first = setTimeout(() => {}, 1000);
  await tick();
  setTimeout(() => {}, 2000);
  expect(timers()).toBe(2);
  clearTimeout(first);
  expect(timers()).toBe(1);
  await vi.advanceTimersByTimeAsync(2000);
  expect(timers()).toBe(0);
});
