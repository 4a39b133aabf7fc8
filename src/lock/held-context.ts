import { AsyncLocalStorage } from 'node:async_hooks';
import type { GrantKey } from './store.ts';

/** Something held by the callback that runs, until that callback ends. */
interface HeldGrant {
  readonly grant: GrantKey;
  readonly isHeld: boolean;
}

interface HeldContext {
  readonly lock: HeldGrant;
  readonly around: HeldContext | undefined;
}

/**
 * Which locks the code that runs now keeps while it waits for another: those of the callbacks of `request` around it. A
 * lock taken by `acquire` is no part of it: who will release it, and when, cannot be seen.
 */
const contexts = new AsyncLocalStorage<HeldContext>();

/** Runs the callback of a request: requests made inside know that `lock` is held meanwhile. */
export function runWhileHolding<T>(lock: HeldGrant, fn: () => T): T {
  return contexts.run({ lock, around: contexts.getStore() }, fn);
}

/** The locks that are kept by the callbacks around. */
export function grantsInContext(): GrantKey[] {
  const grants: GrantKey[] = [];
  for (let context = contexts.getStore(); context !== undefined; context = context.around) {
    if (context.lock.isHeld) grants.push(context.lock.grant);
  }
  return grants;
}
