import os from 'node:os';

interface Reading {
  readonly monotonicMs: number;
  /** How far the wall clock is ahead of the monotonic one. */
  readonly offsetMs: number;
  /** How long the machine has been up, suspended time included; undefined if unknown. */
  readonly upMs: number | undefined;
}

// Slewing moves a wall clock by half a millisecond a second; a process that reads it at every renewal of a lease sees no larger
// step.
const UNSEEN_MS = 50;
// The part that os.uptime() leaves out: hundredths of a second on Linux, a second elsewhere. It counts as suspended if the uptime
// is unknown.
const UPTIME_TICK_MS = process.platform === 'linux' ? 20 : 1000;

let totalMs = 0;
let last: Reading = { monotonicMs: performance.now(), offsetMs: Date.now() - performance.now(), upMs: upMs() };

/**
 * How long this machine was suspended since the process began, as far as its monotonic clock did not count it. Only differences
 * have a meaning.
 *
 * If the wall clock runs away from the monotonic one, either the machine was suspended or somebody set the clock. The uptime of
 * the operating system decides: it runs through a suspension and cannot be set. A difference that it does not confirm was a step
 * of the clock. A pause of a whole virtual machine stops all three clocks, and counts as neither.
 * @param monotonicMs  now
 */
export function suspendedMs(monotonicMs: number): number {
  const offsetMs = Date.now() - monotonicMs;
  // Reading the uptime takes 7 µs, the rest of this a hundred times less.
  if (Math.abs(offsetMs - last.offsetMs) > UNSEEN_MS) compare(monotonicMs, offsetMs);
  return totalMs;
}

function compare(monotonicMs: number, offsetMs: number): void {
  const now: Reading = { monotonicMs, offsetMs, upMs: upMs() };
  totalMs += Math.max(0, Math.min(offsetMs - last.offsetMs, confirmedMs(now)));
  last = now;
}

/** The longest possible suspension since the last reading. */
function confirmedMs({ monotonicMs, upMs: nowMs }: Reading): number {
  if (nowMs === undefined || last.upMs === undefined) return Infinity;
  return nowMs - last.upMs - (monotonicMs - last.monotonicMs) + UPTIME_TICK_MS;
}

function upMs(): number | undefined {
  try {
    return os.uptime() * 1000;
  } catch {
    // A sandbox without the uptime: every difference of the wall clock counts.
    return undefined;
  }
}
