import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';
import { breaches } from '../invariants.ts';
import { SqlSession } from '../sql-session.ts';

// A transaction cancels an admitted job that another one comes after. No worker runs, so nothing decides about that other one yet.

test('a job of a group gives its place back when it is cancelled, and can be retried at once', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url, { logger: recordLog() });
  const eye = await SqlSession.open(database.url);
  onTestFinished(async () => {
    await eye.end();
    await engine.stop();
    await database.drop();
  });
  const queue = createQueue(engine, 'mail', { kinds: { send: {} }, concurrency: { perGroup: 3 } });
  const jobs = [1, 2].map((payload) => ({ kind: 'send', payload, group: 'acme' }) as const);
  const [, second = ''] = await queue.enqueueMany(jobs);
  const after = await queue.enqueue('send', 'after', { after: [second] });
  // Both are admitted, and one of them is taken.
  const [first] = await queue.claim({ lease: '1h' });
  expect(first?.payload).toBe(1);
  await engine.transaction(async (tx) => {
    await queue.cancel(second, { tx });
  });
  expect(await breaches(eye.client)).toEqual([]);
  await queue.retry(second);
  const [unit] = await queue.claim({ limit: 5, lease: '1h' });
  expect(unit?.payload).toBe(2);
  for (const one of [first, unit]) await one?.complete();
  const [last] = await queue.claim();
  expect(last?.job.id).toBe(after.id);
  await last?.complete();
  expect(await breaches(eye.client)).toEqual([]);
});
