import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

// Jobs end in error, and then the number of shards changes: workers no longer claim from some of the shards.

test('a job that ended before the number of shards was changed is retried in its shard of now', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url, { logger: recordLog() });
  const eye = await SqlSession.open(database.url);
  onTestFinished(async () => {
    await eye.end();
    await engine.stop();
    await database.drop();
  });
  const kinds = { job: {}, once: { unique: { by: 'payload' } } } as const;
  const wide = createQueue(engine, 'jobs', { kinds, shards: 8, keyOnError: 'block' });
  const keys = Array.from({ length: 12 }, (_, n) => `key ${n}`);
  await wide.enqueueMany(keys.map((key, n) => ({ kind: n % 2 === 0 ? 'job' : 'once', payload: n, key, tags: ['t'] })));
  for (const unit of await wide.claim({ limit: 20 }))
    await unit.fail(new Error(`no ${String(unit.payload)}`), { final: true });
  const narrow = createQueue(engine, 'jobs', { kinds, shards: 1, keyOnError: 'block' });
  await narrow.register();
  const { done } = await narrow.retryAll('status:error');
  expect(done).toBe(keys.length);
  const units = await narrow.claim({ limit: 20 });
  expect(units.map(({ payload }) => Number(payload)).toSorted((a, b) => a - b)).toEqual(keys.map((_, n) => n));
  for (const unit of units) {
    const moves = await narrow.history(unit.job.id);
    expect(moves.some(({ error }) => error?.includes(`no ${String(unit.payload)}`))).toBe(true);
    await unit.complete();
  }
  expect(await eye.one('select count(*)::int from pawl.queue_blocked')).toBe(0);
  expect(await breaches(eye.client)).toEqual([]);
});
