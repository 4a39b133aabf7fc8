import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { recordLog } from '../../support/log.ts';

test('a key names its newest job that has not ended, also while an older one waits', async () => {
  const database = await freshDatabase();
  const engine = postgres(database.url, { logger: recordLog() });
  onTestFinished(async () => {
    await engine.stop();
    await database.drop();
  });
  const queue = createQueue(engine, 'reminders', { kinds: { remind: {} } });
  const older = await queue.enqueue('remind', 'tomorrow', { key: 'k', delay: '1d' });
  const newer = await queue.enqueue('remind', 'now', { key: 'k' });
  const [unit] = await queue.claim({ lease: '1h' });
  expect(unit?.job.id).toBe(newer.id);
  expect(await queue.get({ key: 'k' })).toMatchObject({ id: newer.id, status: 'in-progress' });
  await unit?.complete();
  expect(await queue.get({ key: 'k' })).toMatchObject({ id: older.id, status: 'new' });
  // A job that waits for a place of its group is the newest, too.
  const grouped = createQueue(engine, 'mail', { kinds: { send: {} }, concurrency: { perGroup: 1 } });
  const first = await grouped.enqueue('send', 1, { key: 'k', delay: '1d' });
  const second = await grouped.enqueue('send', 2, { key: 'k', group: 'acme' });
  expect(BigInt(second.id)).toBeGreaterThan(BigInt(first.id));
  expect(await grouped.get({ key: 'k' })).toMatchObject({ id: second.id });
});
