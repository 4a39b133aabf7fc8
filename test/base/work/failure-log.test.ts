import { afterEach, expect, test, vi } from 'vitest';
import { FailureLog } from '../../../src/base/work/failure-log.ts';
import { recordLog } from '../../support/log.ts';

afterEach(() => void vi.useRealTimers());

test('a failure that repeats is told at once, then at growing intervals, with how often it has failed', () => {
  vi.useFakeTimers({ toFake: ['performance', 'Date'], now: Date.UTC(2030, 0, 1) });
  const log = recordLog();
  const failures = new FailureLog(log, 'worker');
  for (let second = 0; second <= 100; second += 1) {
    failures.warn(new Error('no answer'));
    vi.advanceTimersByTime(1000);
  }
  expect(log.lines).toEqual(
    [
      'worker: it keeps trying',
      'worker: it keeps trying; it has failed 11 times since 2030-01-01T00:00:00.000Z',
      'worker: it keeps trying; it has failed 31 times since 2030-01-01T00:00:00.000Z',
      'worker: it keeps trying; it has failed 71 times since 2030-01-01T00:00:00.000Z',
    ].map((message) => ({ level: 'warn', message })),
  );
});

test('another failure is told at once; one that differs only in a number is the same', () => {
  const log = recordLog();
  const failures = new FailureLog(log, 'worker');
  for (const message of ['no answer within 24 ms', 'no answer within 31 ms', 'refused'])
    failures.warn(new Error(message));
  expect(log.lines).toHaveLength(2);
});

test('a failure that comes back after a while without it is a new one', () => {
  vi.useFakeTimers({ toFake: ['performance', 'Date'], now: Date.UTC(2030, 0, 1) });
  const log = recordLog();
  const failures = new FailureLog(log, 'worker');
  failures.warn(new Error('no answer'));
  vi.advanceTimersByTime(300_000);
  failures.warn(new Error('no answer'));
  expect(log.lines.map(({ message }) => message)).toEqual(['worker: it keeps trying', 'worker: it keeps trying']);
});
