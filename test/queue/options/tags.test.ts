import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';

let engine: PostgresEngine;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url);
});

afterAll(() => engine.stop());

test('jobs are found and counted by a tag, alone and with other filters, page by page', async () => {
  const queue = createQueue(engine, 'tagged', { kinds: { a: {}, b: {} }, shards: 4 });
  const other = createQueue(engine, 'elsewhere', { kinds: { a: {} } });
  const admin = createQueueAdmin(engine);
  const ids = await queue.enqueueMany(
    Array.from({ length: 60 }, (_, n) => ({
      kind: n % 2 === 0 ? ('a' as const) : ('b' as const),
      payload: { said: n % 3 === 0 ? 'hello' : 'bye' },
      ...(n % 4 === 0 && { key: `k${n}` }),
      ...(n % 5 !== 0 && { tags: ['tenant 7', `nth ${n}`, `nth ${n}`] }),
    })),
  );
  await other.enqueue('a', 1, { tags: ['tenant 7'] });
  /** Newest first: with several shards, ids are not in the order of the jobs. */
  const fitting = (fits: (n: number) => boolean): string[] =>
    ids.filter((_, n) => n % 5 !== 0 && fits(n)).toSorted((one, other) => Number(other) - Number(one));
  const tagged = fitting(() => true);
  const found: string[] = [];
  for (let after: string | null = null; ; ) {
    const page = await queue.search('tag:"tenant 7"', { limit: 7, after });
    found.push(...page.jobs.map(({ id }) => id));
    after = page.after;
    if (after === null) break;
  }
  expect(found).toEqual(tagged);
  const search = async (query: string): Promise<string[]> =>
    (await queue.search(query, { limit: 1000 })).jobs.map(({ id }) => id);
  expect(await search('tag:"tenant 7" kind:b hello')).toEqual(fitting((n) => n % 2 === 1 && n % 3 === 0));
  expect(await search('tag:"nth 4" key:k4 status:new')).toEqual([ids[4]]);
  expect(await search('tag:"nth 4" key:k8')).toEqual([]);
  expect(await search('tag:none')).toEqual([]);
  expect((await queue.search('tag:"nth 4"')).jobs[0]?.tags).toEqual(['tenant 7', 'nth 4']);
  expect((await admin.count('tag:"tenant 7"')).count).toBe(tagged.length + 1);
  expect((await admin.count('tag:"tenant 7" status:new', { queue: 'tagged' })).count).toBe(tagged.length);
});

test('tags go with their job, and a job without tags is in no index of them', async () => {
  const queue = createQueue(engine, 'pruned', { kinds: { job: {} }, history: '1s' });
  await queue.enqueue('job', 1, { tags: ['x'] });
  await queue.enqueue('job', 2, { meta: { n: 1 } });
  const left = statement('test.left', 'select id from pawl.queue_tag where queue = pawl.queue_id($1)', {
    prepare: false,
  });
  expect(await engine.query(left, ['pruned'])).toHaveLength(1);
  const worker = queue.work({ job: () => undefined });
  await queue.drain();
  await worker.stop();
  const old = statement(
    'test.old',
    `update pawl.queue_receipt set settled_at = settled_at - interval '1 hour' where queue = pawl.queue_id($1)`,
    { prepare: false },
  );
  await engine.query(old, ['pruned']);
  await engine.query(statement('test.prune', 'select pawl.queue_prune(pawl.queue_id($1), 1000)', { prepare: false }), [
    'pruned',
  ]);
  expect(await engine.query(left, ['pruned'])).toEqual([]);
});
