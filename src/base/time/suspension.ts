import os from 'node:os';

interface Reading {
  readonly monotonicMs: number;
  /** By how much the wall clock is ahead of the monotonic one. */
  readonly offsetMs: number;
  /** How long the machine has been up, the time it was suspended included; undefined where that is not known. */
  readonly upMs: number | undefined;
}

// Slewing moves a wall clock by half a millisecond a second; a process that reads it at every renewal of a lease sees no more than that.
const UNSEEN_MS = 50;
// What os.uptime() leaves out: hundredths of a second on Linux, a second elsewhere. It counts as suspended where the uptime is not known.
const UPTIME_TICK_MS = process.platform === 'linux' ? 20 : 1000;

let totalMs = 0;
let last: Reading = { monotonicMs: performance.now(), offsetMs: Date.now() - performance.now(), upMs: upMs() };

/**
 * How long this machine was suspended since the process began, as far as its monotonic clock did not see it. Only differences
 * mean anything.
 *
 * Where the wall clock runs away from the monotonic one, either the machine was suspended or somebody set it. The uptime of
 * the operating system, which runs through a suspension and cannot be set, says which: what it does not confirm was a step.
 * A pause of a whole virtual machine stops all three clocks, and is neither.
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

/** How long it can have been suspended since the last reading. */
function confirmedMs({ monotonicMs, upMs: nowMs }: Reading): number {
  if (nowMs === undefined || last.upMs === undefined) return Infinity;
  return nowMs - last.upMs - (monotonicMs - last.monotonicMs) + UPTIME_TICK_MS;
}

function upMs(): number | undefined {
  try {
    return os.uptime() * 1000;
  } catch {
    // A sandbox without it: whatever the wall clock says counts.
    return undefined;
  }
}
