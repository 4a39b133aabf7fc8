import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, type Queue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';

const JOBS = 300_000;

let engine: PostgresEngine;
let queue: Queue<{ mail: object }>;

/** No worker runs, so that no job is in the index of words; and the tables are not analysed. */
beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url);
  await engine.query(statement('test.quiet', 'alter table pawl.queue_job set (autovacuum_enabled = off)'));
  queue = createQueue(engine, 'behind', { kinds: { mail: {} } });
  await queue.register();
  await engine.query(
    statement(
      'test.jobs',
      `with added as (
        insert into pawl.queue_job (id, created_at, shard, queue, kind, priority, payload)
        select nextval('pawl.queue_job_id'), now(), 0, k.queue, k.id, 0, '{"to":"ada"}' from pawl.queue_kind k, generate_series(1, $1::int)
        returning id, queue, kind)
      insert into pawl.queue_ready (id, shard, queue, priority, kind, n)
      select min(a.id), 0, a.queue, 0, a.kind, $1::int from added a group by a.queue, a.kind`,
    ),
    [JOBS],
  );
});

afterAll(() => engine.stop());

test('the newest jobs are found without reading the others, even if the index of words is far behind', async () => {
  const read = await engine.transaction(async (tx) => {
    const search = { terms: [], queue: null, before: null, limit: 50, budget: 10_000 };
    await tx.query(statement('test.search', 'select pawl.queue_search($1::json)'), [JSON.stringify(search)]);
    const [row] = await tx.query<{ n: number }>(
      statement(
        'test.read',
        `select sum(pg_stat_get_xact_tuples_returned(i.indexrelid))::int as n
        from pg_index i where i.indrelid = 'pawl.queue_job'::regclass`,
      ),
    );
    return row?.n;
  });
  expect(read).toBeLessThan(5000);
});

test('a page that is short because the index is behind says by how many jobs, and the next pages have the missing ones', async () => {
  const { id } = await queue.enqueue('mail', { to: 'zebra' });
  await queue.enqueueMany(Array.from({ length: 3000 }, () => ({ kind: 'mail' as const, payload: { to: 'ada' } })));
  const first = await queue.search('zebra', { budget: 1 });
  expect(first.jobs).toEqual([]);
  expect(first.after).not.toBeNull();
  expect(first.indexBehind).toBeGreaterThanOrEqual(JOBS);
  const found: string[] = [];
  for (let { after } = first; after !== null; ) {
    const page = await queue.search('zebra', { after, budget: 1000 });
    found.push(...page.jobs.map((job) => job.id));
    after = page.after;
    if (after === null) expect(page.indexBehind).toBe(0);
  }
  expect(found).toEqual([id]);
  expect(await queue.search('', { limit: 5 })).toMatchObject({ jobs: expect.any(Array), indexBehind: 0 });
});
