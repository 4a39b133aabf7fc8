import { expect, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';

test("a handler of a kind with coalesce: 'latest' gets only the newest job, and all other facts about its unit", async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  const queue = createQueue(engine, 'latest', { kinds: { draw: { coalesce: 'latest' } } });
  const ids = await queue.enqueueMany([1, 2, 3].map((n) => ({ kind: 'draw', payload: n, key: 'k' }) as const));
  const seen: unknown[] = [];
  const worker = queue.work({
    draw: async (unit) => {
      await unit.progress('half');
      await engine.transaction((tx) => unit.guard(tx));
      seen.push(
        unit.jobs.map(({ payload }) => payload),
        unit.payload,
        unit.key,
        unit.signal.aborted,
        unit.attempt,
      );
      seen.push(typeof unit.token, unit.processId);
    },
  });
  await queue.drain();
  await worker.stop();
  const jobs = await Promise.all(ids.map((id) => queue.get(id)));
  expect(seen).toEqual([[3], 3, 'k', false, 1, 'bigint', jobs[0]?.processId]);
  expect(jobs.map(({ status, progress }) => [status, progress])).toEqual([
    ['complete', null],
    ['complete', null],
    ['complete', 'half'],
  ]);
  await engine.stop();
});
