import { onTestFinished } from 'vitest';
import type { Queue, Unit, WorkOptions } from '../../../src/queue/index.ts';

export const kinds = { send: {}, once: { unique: { by: 'payload' } } } as const;
export type Mail = Queue<typeof kinds>;

/** A worker until the end of the test. Its poll is late: what these tests wait for is found in time without it. */
export async function start(queue: Mail, handler: (unit: Unit) => unknown, options: WorkOptions = {}): Promise<void> {
  const worker = queue.work({ send: handler, once: handler }, { poll: '1m', concurrency: 5, ...options });
  onTestFinished(() => worker.stop({ timeout: '100ms' }));
  await worker.started;
}
