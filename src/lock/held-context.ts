import { AsyncLocalStorage } from 'node:async_hooks';
import type { Held } from './store.ts';

/** Something held by the callback that runs, until that callback ends. */
interface Keeps {
  readonly held: Held;
  readonly isHeld: boolean;
}

interface Flow {
  readonly lock: Keeps;
  readonly around: Flow | undefined;
}

/**
 * Which locks the code that runs now keeps while it waits for another: those of the callbacks of `request` around it. A
 * lock taken by `acquire` is no part of it: who will release it, and when, cannot be seen.
 */
const flows = new AsyncLocalStorage<Flow>();

/** Runs the callback of a request: requests made inside know that `lock` is held meanwhile. */
export function runHolding<T>(lock: Keeps, fn: () => T): T {
  return flows.run({ lock, around: flows.getStore() }, fn);
}

/** The locks that are kept by the callbacks around. */
export function heldAround(): Held[] {
  const kept: Held[] = [];
  for (let flow = flows.getStore(); flow !== undefined; flow = flow.around) {
    if (flow.lock.isHeld) kept.push(flow.lock.held);
  }
  return kept;
}
