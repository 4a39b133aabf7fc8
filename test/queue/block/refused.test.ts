import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';

/** `{"n":{"n":…}}` */
function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level += 1) value = { n: value };
  return value;
}

// Invariant J18.
test('a job whose result the database refuses stops its key before the next one begins', async () => {
  const database = await freshDatabase();
  const client = new pg.Client(database.url);
  await client.connect();
  // A tenth of the usual stack depth: Node can serialise no more than a fifth of that.
  await client.query(
    `do $$ begin execute format('alter database %I set max_stack_depth = ''200kB''', current_database()); end $$`,
  );
  await client.end();
  const engine = postgres(database.url, { max: 10, logger: recordLog() });
  onTestFinished(async () => {
    await engine.stop();
    await database.drop();
  });
  const queue = createQueue(engine, 'refused', { kinds: { job: {} }, keyOnError: 'block' });
  const began: unknown[] = [];
  const ids = await queue.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'job', payload, key: 'a' })));
  const worker = queue.work({
    job: ({ payload }) => {
      began.push(payload);
      return payload === 1 ? nested(3000) : undefined;
    },
  });
  onTestFinished(() => worker.stop({ timeout: '100ms' }));
  await eventually(async () => expect((await queue.get(ids[0] ?? '')).status).toBe('error'));
  await eventually(async () => expect(await createQueueAdmin(engine).list()).toMatchObject([{ blockedKeys: 1 }]));
  expect(began).toEqual([1]);
  expect(await queue.stats()).toMatchObject({ new: 2, blockedKeys: 1 });
  await queue.skip(ids[0] ?? '');
  await eventually(() => expect(began).toEqual([1, 2, 3]));
});
