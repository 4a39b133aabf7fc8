import { vi } from 'vitest';

/** A loaded machine is slow, and only a failure waits for it. Less than what a test may take, so that a failure says of what. */
const PATIENCE_MS = 50_000;

/** Repeats `check` until it no longer throws. */
export function eventually<T>(check: () => T | Promise<T>, timeoutMs: number = PATIENCE_MS): Promise<T> {
  return vi.waitFor(check, { timeout: timeoutMs, interval: 20 });
}

/** Waits until `holds` gives something true, and gives that. Fails after `timeoutMs`, saying what was waited for. */
export function until<T>(
  what: string,
  holds: () => T | Promise<T>,
  timeoutMs: number = PATIENCE_MS,
): Promise<NonNullable<T>> {
  return eventually(async () => {
    const value = await holds();
    if (value) return value;
    throw new Error(`waited ${timeoutMs} ms in vain until ${what}`);
  }, timeoutMs);
}
