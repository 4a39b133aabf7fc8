import os from 'node:os';
import { onTestFinished } from 'vitest';

const HOUR_MS = 3_600_000;

/** The clocks of this process, as somebody else may set them. */
export interface WallClock {
  /** Sets the wall clock by so much: nothing else moves, as the monotonic clock and the uptime cannot be set. */
  step(ms: number): void;
  /** As a machine that was suspended for this long: the wall clock and the uptime have run on, the monotonic clock has not. */
  suspend(ms: number): void;
}

/** Takes the clocks in hand until the end of the test. */
export function wallClock(): WallClock {
  // Timers that are turned by hand have a Date of their own, which may be gone when the test has ended.
  const date = Date;
  const [dateNow, uptime] = [date.now, os.uptime];
  let [steppedMs, suspendedMs] = [0, 0];
  date.now = () => dateNow() + steppedMs + suspendedMs;
  // Without its ticks, and next to timers that are turned by hand.
  const bootedMs = uptime() * 1000 - performance.now();
  os.uptime = () => (bootedMs + performance.now() + suspendedMs) / 1000;
  onTestFinished(() => {
    date.now = dateNow;
    os.uptime = uptime;
  });
  return {
    step: (ms) => {
      steppedMs += ms;
    },
    suspend: (ms) => {
      suspendedMs += ms;
    },
  };
}

/** Sets the wall clock by hours, forwards and back, but never back to where it was, while `work` goes on. Gives what that gives. */
export async function whileStepping<T>(clock: WallClock, work: () => Promise<T>): Promise<T> {
  let steps = 0;
  const stepping = setInterval(() => clock.step(steps++ % 2 === 0 ? 2 * HOUR_MS : -HOUR_MS), 50);
  try {
    return await work();
  } finally {
    clearInterval(stepping);
  }
}
