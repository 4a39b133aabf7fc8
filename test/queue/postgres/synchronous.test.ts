import { expect, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';

test('every job of a key runs, in order, when handlers return at once', async () => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  const queue = createQueue(engine, 'at once', { kinds: { job: {} } });
  const jobs = Array.from({ length: 60 }, (_, n) => ({ kind: 'job', payload: n, key: `k${n % 3}` }) as const);
  await queue.enqueueMany([...jobs, { kind: 'job', payload: 60 }]);
  const seen: unknown[] = [];
  const worker = queue.work({ job: (unit) => void seen.push(unit.payload) }, { concurrency: 2 });
  await eventually(() => expect(seen).toHaveLength(61));
  for (const key of [0, 1, 2]) {
    const ofKey = seen.filter((n) => typeof n === 'number' && n < 60 && n % 3 === key);
    expect(ofKey).toEqual(Array.from({ length: 20 }, (_, n) => n * 3 + key));
  }
  await worker.stop();
  await engine.stop();
});
