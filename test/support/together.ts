import { AsyncLocalStorage } from 'node:async_hooks';
import { onTestFinished, type TestContext, test } from 'vitest';

const running = new AsyncLocalStorage<TestContext>();

/** A test that runs at the same time as the others of its file made like this: for tests that mostly wait. They must not disturb each other. */
export function together(name: string, fn: (context: TestContext) => Promise<void>): void {
  test.concurrent(name, (context) => running.run(context, () => fn(context)));
}

/** Does it at the end of the test in which it is called, also when that runs at the same time as others. */
export function atTestEnd(fn: () => unknown): void {
  const end = async (): Promise<void> => void (await fn());
  const context = running.getStore();
  if (context === undefined) onTestFinished(end);
  else context.onTestFinished(end);
}
