import { LeaseLost } from '../base/errors.ts';
import { refusal } from '../base/options/refusal.ts';
import { runWhileHolding } from './held-context.ts';
import type { HeldLock, Lock } from './lease.ts';

/** The arguments after the name in a call of `request`. */
export type RequestArguments<O, T> =
  | [fn: (lock: Lock) => T | Promise<T>]
  | [options: O, fn: (lock: Lock) => T | Promise<T>];

/** @throws InvalidInput  when there is no function */
export function readRequest<O, T>(
  what: string,
  rest: RequestArguments<O, T>,
): { options: O | undefined; fn: (lock: Lock) => T | Promise<T> } {
  const [options, fn] = rest.length === 1 ? [undefined, rest[0]] : rest;
  if (typeof fn !== 'function') throw refusal({ what, field: 'fn' }, fn, 'the function to run while the lock is held');
  return { options, fn };
}

/** Runs the body and releases the lock. An error of the release never hides an error of the body. */
export async function runWith<T>(lock: HeldLock, fn: (lock: Lock) => T | Promise<T>): Promise<T> {
  let result: T;
  try {
    result = await runWhileHolding(lock, async () => fn(lock));
  } catch (error) {
    await lock.release().catch(() => {});
    throw error;
  }
  await lock.release().catch((error: unknown) => {
    // The body has done its work. Of the release's errors only this one is thrown: the lock was not held all the time.
    if (error instanceof LeaseLost) throw error;
  });
  return result;
}
