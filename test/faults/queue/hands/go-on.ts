import { setTimeout as sleep } from 'node:timers/promises';
import type { Queue } from '../../../../src/queue/index.ts';
import { answered } from './act.ts';

const AGAIN_MS = 100;
/** More than there are in a schedule. */
const PAGE = 200;

/** As people do: what stops its key is tried once more, or skipped at once; which of them, its number tells. */
export async function goOn(queue: Queue, isOver: () => boolean): Promise<void> {
  const retried = new Set<string>();
  while (!isOver()) {
    const found = await answered(queue.search('status:error', { limit: PAGE })).catch(() => undefined);
    for (const { id } of found?.jobs ?? []) {
      const isNext = Number(id) % 2 === 0 && !retried.has(id);
      retried.add(id);
      // It blocks nothing any more, or the network is away: the next search tells.
      await answered(isNext ? queue.retry(id) : queue.skip(id)).catch(() => {});
    }
    await sleep(AGAIN_MS);
  }
}
