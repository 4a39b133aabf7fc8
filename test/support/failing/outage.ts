import { expect } from 'vitest';
import { until } from '../eventually.ts';
import type { Proxy } from '../proxy.ts';

/** What runs until it is stopped, and says why it cannot work. */
interface LongRunning {
  readonly problem: string | undefined;
  stop(): Promise<void>;
}

/** What has started has no problem, one while its database is away, none after that, and is stopping when it was told to. */
export async function expectToSayProblems(worker: LongRunning, proxy: Proxy): Promise<void> {
  await until('it has polled', () => worker.problem === undefined);
  proxy.refuse();
  await until('it has noticed the outage', () => worker.problem !== undefined);
  proxy.accept();
  await until('it has recovered', () => worker.problem === undefined);
  const stopped = worker.stop();
  expect(worker.problem).toBe('it is stopping');
  await stopped;
}
