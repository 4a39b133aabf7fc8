import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createCapture, type Projection } from '../../../src/capture/index.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { DOCS, TARGET } from './cluster.ts';

/** A database on the coordinator of a real cluster that holds nothing else: the tests drop what they make, and Pawl's schema. */
const url = process.env['PAWL_CITUS_URL'];
const COUNT = 12_000;
const CLEAN = `drop table if exists doc_by_id, doc_by_tenant, spread cascade; drop table if exists doc, doc_plain cascade;
drop schema if exists pawl cascade`;

describe.skipIf(url === undefined)('on the cluster of PAWL_CITUS_URL', () => {
  let client: pg.Client;
  let engine: PostgresEngine;
  let plain: Projection;
  const spread = new Map<'id' | 'tenant', Projection>();

  beforeAll(async () => {
    client = new pg.Client({ connectionString: url });
    await client.connect();
    await client.query(CLEAN);
    engine = postgres(url ?? '', { max: 8 });
    await engine.migrate();
    await client.query(DOCS(COUNT));
    const capture = createCapture(engine, { entity: 'doc', root: 'doc' });
    plain = capture.project({ ...TARGET, into: 'doc_plain' });
    for (const by of ['id', 'tenant'] as const) {
      spread.set(by, capture.project({ ...TARGET, into: `doc_by_${by}`, distribute: { by, shards: 8 } }));
    }
    await capture.apply();
    expect(await capture.verify()).toEqual([]);
    for (const projection of [plain, ...spread.values()]) await projection.backfill({ batch: 2000 });
  }, 300_000);

  afterAll(async () => {
    await engine.stop();
    await client.query(CLEAN);
    await client.end();
  });

  const each = (by: 'id' | 'tenant'): Projection => spread.get(by) ?? plain;

  test.for(['id', 'tenant'] as const)('a search finds by %s what it finds on one node', async (by) => {
    for (const query of ['rare', 'rar* common', '"number 77"', 'warranty -odd', '000301', 'common']) {
      const options = { tenant: 1, limit: 250, timeout: '1m' } as const;
      expect(await each(by).search(query, options), query).toEqual(await plain.search(query, options));
    }
  });

  test.for(['id', 'tenant'] as const)('rows are made, moved, removed and compared by %s', async (by) => {
    const workers = [plain, each(by)].map((projection) => projection.run({ poll: '50ms' }));
    onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.stop()))));
    await client.query(`update doc set owner = (owner + 1) % 3 where id between 10 and 400; delete from doc where id > ${COUNT - 50};
      insert into doc values (90000, 'new', '', null, null, 2, 90000)`);
    await Promise.all([plain.settled(), each(by).settled()]);
    const rows = async (table: string): Promise<unknown[]> =>
      (await client.query(`select id, title, body, code, extra::text, owner, at from ${table} order by id`)).rows;
    expect(await rows(`doc_by_${by}`)).toEqual(await rows('doc'));
    expect(await each(by).reconcile({ batch: 2000 })).toMatchObject({ drifted: 0 });
    await client.query(`update doc_by_${by} set title = 'wrong' where id = 500`);
    expect(await each(by).reconcile({ batch: 2000 })).toMatchObject({ drifted: 1, keys: ['500'] });
  });

  test('one node answers a search by tenant', async () => {
    const text =
      "explain select 1 from doc_by_tenant t where t.owner = '1'::text::int and t.pawl_words @@ plainto_tsquery('simple', 'rare')";
    const { rows } = await client.query<{ 'QUERY PLAN': string }>(text);
    expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toMatch(/Task Count: 1\b/);
  });

  test('a transaction that writes on another node and enqueues is prepared there', async () => {
    await client.query("create table spread (id int primary key); select create_distributed_table('spread', 'id')");
    const queue = createQueue(engine, 'mail', { kinds: { send: {} } });
    await client.query('begin; insert into spread values (1)');
    await queue.enqueue('send', {}, { tx: client });
    await client.query('commit');
    const { rows } = await client.query<{ n: number }>('select count(*)::int as n from pg_dist_transaction');
    expect(rows[0]?.n).toBeGreaterThan(0);
  });
});
