import { setTimeout as sleep } from 'node:timers/promises';
import type { Queue } from '../../../../src/queue/index.ts';
import { answered } from './act.ts';

const AGAIN_MS = 100;
/** More than the blocking jobs of a schedule. */
const PAGE = 200;

/** Acts like a person: retries a job that blocks its key once, or skips it at once; the number of the job decides which. */
export async function goOn(queue: Queue, isOver: () => boolean): Promise<void> {
  const retried = new Set<string>();
  while (!isOver()) {
    const found = await answered(queue.search('status:error', { limit: PAGE })).catch(() => undefined);
    for (const { id } of found?.jobs ?? []) {
      const isNext = Number(id) % 2 === 0 && !retried.has(id);
      retried.add(id);
      // The job no longer blocks its key, or the network failed: the next search shows it.
      await answered(isNext ? queue.retry(id) : queue.skip(id)).catch(() => {});
    }
    await sleep(AGAIN_MS);
  }
}
