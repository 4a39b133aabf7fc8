import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { LeaseLost } from '../../src/base/errors.ts';
import { type Renewal, type RenewalOptions, startRenewal } from '../../src/base/renewal.ts';
import { moment, now } from '../../src/base/time/clock.ts';
import { ownTimers } from '../support/children/own-timers.ts';
import { aborted } from '../support/eventually.ts';
import { wallClock } from '../support/time/wall-clock.ts';

const LEASE_MS = 30_000;
const what = 'lock "a"';

interface Beat {
  at: number;
  answer: (answer: 'kept' | 'lost') => void;
  fail: (error: unknown) => void;
  signal: AbortSignal;
}

/** A renewal whose beats are answered by the test, or at once when `answer` is given. */
function start(answer?: 'kept' | 'lost', options: Partial<RenewalOptions> = {}) {
  const beats: Beat[] = [];
  const begin = now();
  const renewal = startRenewal({
    what,
    leaseMs: LEASE_MS,
    beat: (signal) =>
      new Promise((resolve, reject) => {
        beats.push({ at: now() - begin, answer: resolve, fail: reject, signal });
        if (answer !== undefined) resolve(answer);
      }),
    ...options,
  });
  return { renewal, beats };
}

function reasonOf(renewal: Renewal): string {
  const { reason } = renewal.signal;
  expect(reason).toBeInstanceOf(LeaseLost);
  return reason instanceof Error ? reason.message : '';
}

describe('by the clock', () => {
  beforeEach(() => void vi.useFakeTimers({ now: 1_700_000_000_000 }));
  afterEach(() => {
    vi.useRealTimers();
  });

  test('a beat goes out at every third of the lease, and the lease lives as long as they are kept', async () => {
    const timers = ownTimers();
    const { renewal, beats } = start('kept');
    await vi.advanceTimersByTimeAsync(10 * LEASE_MS);
    expect(beats.map(({ at }) => at).slice(0, 3)).toEqual([10_000, 20_000, 30_000]);
    expect(beats).toHaveLength(30);
    expect(renewal.signal.aborted).toBe(false);
    await renewal.stop();
    expect(timers()).toBe(0);
  });

  test('once the deadline has passed, no other request revives the lease, though no timer could run yet', async () => {
    const clock = wallClock();
    const { renewal } = start();
    clock.suspend(LEASE_MS);
    expect(renewal.remainingMs()).toBe(0);
    renewal.renewed(moment());
    expect(renewal.remainingMs()).toBe(0);
    expect(reasonOf(renewal)).toContain('its 30s ended before it could be renewed');
    await renewal.stop();
  });

  test('the deadline counts from before the beat was sent, not from its answer', async () => {
    const { renewal, beats } = start();
    await vi.advanceTimersByTimeAsync(10_000);
    await vi.advanceTimersByTimeAsync(5000);
    beats[0]?.answer('kept');
    await vi.advanceTimersByTimeAsync(0);
    expect(renewal.remainingMs()).toBe(LEASE_MS * 0.99 - 5000);
    await vi.advanceTimersByTimeAsync(5000);
    expect(beats.map(({ at }) => at)).toEqual([10_000, 20_000]);
    beats[1]?.answer('kept');
    await renewal.stop();
  });

  test('the deadline of the first lease counts from before it was asked for', async () => {
    const since = moment();
    await vi.advanceTimersByTimeAsync(8000);
    const { renewal, beats } = start('kept', { since });
    expect(renewal.remainingMs()).toBe(LEASE_MS * 0.99 - 8000);
    await vi.advanceTimersByTimeAsync(2000);
    expect(beats).toHaveLength(1);
    await renewal.stop();
  });

  test('a lease that had run out before its renewal began is lost without a beat', async () => {
    const since = moment();
    await vi.advanceTimersByTimeAsync(LEASE_MS);
    const { renewal, beats } = start('kept', { since });
    await vi.advanceTimersByTimeAsync(1);
    expect(beats).toHaveLength(0);
    expect(reasonOf(renewal)).toBe(
      'the lease of lock "a" was lost: its 30s ended before it could be renewed; stop working on it',
    );
  });

  test('when the store says lost, the signal says so at once and nothing more is sent', async () => {
    const timers = ownTimers();
    const { renewal, beats } = start('lost');
    await vi.advanceTimersByTimeAsync(10_000);
    expect(reasonOf(renewal)).toContain('the store says that this process no longer owns it');
    expect(renewal.remainingMs()).toBe(0);
    await vi.advanceTimersByTimeAsync(LEASE_MS);
    expect(beats).toHaveLength(1);
    expect(timers()).toBe(0);
  });

  test('a beat that throws is tried again quickly, and the lease survives when one gets through', async () => {
    const errors: unknown[] = [];
    const { renewal, beats } = start(undefined, { onError: (error) => errors.push(error) });
    await vi.advanceTimersByTimeAsync(10_000);
    beats[0]?.fail(new Error('connection reset'));
    await vi.advanceTimersByTimeAsync(1000);
    expect(beats[1]?.at).toBe(11_000);
    beats[1]?.answer('kept');
    await vi.advanceTimersByTimeAsync(0);
    expect(errors).toEqual([new Error('connection reset')]);
    expect(renewal.remainingMs()).toBe(LEASE_MS * 0.99);
    await renewal.stop();
  });

  test('beats that throw until the deadline lose the lease, with the last error as the reason', async () => {
    const timers = ownTimers();
    let tries = 0;
    const beat = async () => {
      tries++;
      throw new Error('connection refused');
    };
    const { renewal } = start(undefined, { beat });
    await vi.advanceTimersByTimeAsync(LEASE_MS * 0.99 - 1);
    expect(renewal.signal.aborted).toBe(false);
    await vi.advanceTimersByTimeAsync(1);
    expect(reasonOf(renewal)).toContain(
      'no renewal was confirmed within its 30s; the last renewal failed with: connection refused; stop working on it',
    );
    expect(tries).toBe(20);
    expect(timers()).toBe(0);
  });

  test('a beat that is not answered is given up in time for another, and the deadline waits for none', async () => {
    const { renewal, beats } = start();
    await vi.advanceTimersByTimeAsync(20_000);
    expect(beats[0]?.signal.aborted).toBe(true);
    beats[0]?.fail(beats[0].signal.reason);
    await vi.advanceTimersByTimeAsync(1000);
    expect(beats).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(LEASE_MS * 0.99 - 21_000);
    expect(reasonOf(renewal)).toContain('no renewal was confirmed within its 30s');
    expect(beats[1]?.signal.aborted).toBe(true);
  });

  test('a machine that was suspended, with its monotonic clock, loses the lease without a beat', async () => {
    const clock = wallClock();
    const { renewal, beats } = start('kept');
    await vi.advanceTimersByTimeAsync(1000);
    clock.suspend(120_000);
    expect(renewal.remainingMs()).toBe(0);
    await vi.advanceTimersByTimeAsync(9000);
    expect(beats).toHaveLength(0);
    expect(reasonOf(renewal)).toContain('the event loop was blocked, or the machine suspended, for about 2m');
  });

  test.each([-3_600_000, 3_600_000])('a wall clock that was set by %d ms changes nothing', async (ms) => {
    const clock = wallClock();
    const { renewal, beats } = start('kept');
    clock.step(ms);
    await vi.advanceTimersByTimeAsync(10 * LEASE_MS);
    expect(beats).toHaveLength(30);
    expect(renewal.remainingMs()).toBeGreaterThan(0);
    await renewal.stop();
  });

  test('an answer that comes after the deadline changes nothing', async () => {
    const timers = ownTimers();
    const { renewal, beats } = start();
    await vi.advanceTimersByTimeAsync(LEASE_MS);
    beats[0]?.answer('kept');
    await vi.advanceTimersByTimeAsync(LEASE_MS);
    expect(renewal.remainingMs()).toBe(0);
    expect(timers()).toBe(0);
  });

  test('stop waits for the beat under way, tells it, and is not a loss', async () => {
    const timers = ownTimers();
    const { renewal, beats } = start();
    await vi.advanceTimersByTimeAsync(10_000);
    let isStopped = false;
    const stops = Promise.all([renewal.stop(), renewal.stop()]).then(() => {
      isStopped = true;
    });
    await vi.advanceTimersByTimeAsync(1);
    expect({ isStopped, told: beats[0]?.signal.aborted }).toEqual({ isStopped: false, told: true });
    beats[0]?.fail(new Error('cancelled'));
    await stops;
    await vi.advanceTimersByTimeAsync(LEASE_MS);
    expect(beats).toHaveLength(1);
    expect(renewal.signal.aborted).toBe(false);
    expect(timers()).toBe(0);
  });

  test('stop does not wait past the deadline for a beat that never ends', async () => {
    const timers = ownTimers();
    const { renewal } = start();
    await vi.advanceTimersByTimeAsync(10_000);
    const stopped = renewal.stop();
    await vi.advanceTimersByTimeAsync(LEASE_MS);
    await stopped;
    expect(timers()).toBe(0);
  });
});

describe('in real time', () => {
  test('a blocked event loop loses the lease, and no beat is sent after the deadline', async () => {
    const { renewal, beats } = start('kept', { leaseMs: 200 });
    const end = now() + 260;
    while (now() < end);
    expect(renewal.remainingMs()).toBe(0);
    await aborted(renewal.signal);
    expect(reasonOf(renewal)).toMatch(/the event loop was blocked, or the machine suspended, for about \d/);
    expect(beats).toHaveLength(0);
  });

  test('await using stops the beats', async () => {
    const before = process.getActiveResourcesInfo().length;
    {
      await using renewal = start('kept').renewal;
      expect(renewal.remainingMs()).toBeGreaterThan(0);
    }
    expect(process.getActiveResourcesInfo()).toHaveLength(before);
  });
});
