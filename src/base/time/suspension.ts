import os from 'node:os';

interface Sight {
  readonly monotonicMs: number;
  /** By how much the wall clock is ahead of the monotonic one. */
  readonly offsetMs: number;
  /** How long the machine has been up, the time it was suspended included; undefined where nobody says. */
  readonly upMs: number | undefined;
}

// Slewing moves a wall clock by half a millisecond a second; whoever looks at every renewal of a lease sees no more than that.
const UNSEEN_MS = 50;
// What os.uptime() leaves out: hundredths of a second on Linux, a second elsewhere. It counts as suspended where nobody knows.
const UPTIME_TICK_MS = process.platform === 'linux' ? 20 : 1000;

let totalMs = 0;
let last: Sight = { monotonicMs: performance.now(), offsetMs: Date.now() - performance.now(), upMs: upMs() };

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
  if (Math.abs(offsetMs - last.offsetMs) > UNSEEN_MS) look(monotonicMs, offsetMs);
  return totalMs;
}

function look(monotonicMs: number, offsetMs: number): void {
  const seen: Sight = { monotonicMs, offsetMs, upMs: upMs() };
  totalMs += Math.max(0, Math.min(offsetMs - last.offsetMs, confirmedMs(seen)));
  last = seen;
}

/** How long it can have been suspended since the last look. */
function confirmedMs({ monotonicMs, upMs: nowMs }: Sight): number {
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
