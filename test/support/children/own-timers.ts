import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';

const context = new AsyncLocalStorage<Set<unknown>>();

/**
 * Counts the timers that this test has set since this call and that have not fired. Test files share a process one after another,
 * and a test of a client that died leaves its renewals there until their leases end: they set timers, too.
 * Call it after `vi.useFakeTimers()` and in the test itself, since a context that a hook enters ends with the hook.
 * `vi.useRealTimers()` takes it back.
 */
export function ownTimers(): () => number {
  const own = new Set<unknown>();
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  const counting = (run: () => void, ms?: number): unknown => {
    const mine = context.getStore();
    // The test that advances the clock runs the timers of others, too: each keeps the context in which it was set.
    const timer: unknown = set(
      AsyncResource.bind(() => {
        mine?.delete(timer);
        run();
      }),
      ms,
    );
    mine?.add(timer);
    return timer;
  };
  const uncounting = (timer: NodeJS.Timeout | undefined): void => {
    own.delete(timer);
    clear(timer);
  };
  // With the marks of the fake ones: `vi.useRealTimers()` replaces nothing that has none.
  Object.assign(globalThis, {
    setTimeout: Object.assign(counting, set),
    clearTimeout: Object.assign(uncounting, clear),
  });
  context.enterWith(own);
  return () => own.size;
}
