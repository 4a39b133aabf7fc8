import { AsyncLocalStorage } from 'node:async_hooks';
import type { GrantKey } from './store.ts';

/** A lock that a running callback holds until it ends. */
interface HeldGrant {
  readonly grant: GrantKey;
  readonly isHeld: boolean;
}

interface HeldContext {
  readonly lock: HeldGrant;
  readonly around: HeldContext | undefined;
}

/**
 * The locks that the current code keeps while it waits for another: those of the `request` callbacks around it. Locks of
 * `acquire` are not included: nothing shows when they will be released.
 */
const contexts = new AsyncLocalStorage<HeldContext>();

/** Runs the callback of a request; requests inside it know that it holds `lock` meanwhile. */
export function runWhileHolding<T>(lock: HeldGrant, fn: () => T): T {
  return contexts.run({ lock, around: contexts.getStore() }, fn);
}

/** The locks of the callbacks around the current code. */
export function grantsInContext(): GrantKey[] {
  const grants: GrantKey[] = [];
  for (let context = contexts.getStore(); context !== undefined; context = context.around) {
    if (context.lock.isHeld) grants.push(context.lock.grant);
  }
  return grants;
}
