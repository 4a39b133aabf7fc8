import { describe, expect, onTestFinished, test } from 'vitest';
import { createCapture, type Projection } from '../../../src/capture/index.ts';
import { statement } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { type Cluster, openCluster, projectDocs, TARGET } from './cluster.ts';
import { objections } from './shape.ts';

const ON = '"public"."doc_search"';
const ROWS = 'select id, title, body, code, extra::jsonb, owner, at from';

/** The statements about the target, each with what a cluster has against it. */
function refused(cluster: Cluster, tenant?: string): string[] {
  const texts = cluster.sent().filter((text) => text.includes(ON));
  expect(texts.length).toBeGreaterThan(0);
  return texts.flatMap((text) => objections(text, ON, tenant).map((why) => `${why}: ${text}`));
}

test('what no cluster takes is known as such', () => {
  const against = (text: string, tenant?: string): string => objections(text, ON, tenant).join();
  expect(against(`select (select count(*) from ${ON} t) as n`)).toMatch(/in an expression/);
  expect(against(`with w as (delete from ${ON} t returning 1) select 1 from w`)).toMatch(/written in a part/);
  expect(against(`select 1 from page p join ${ON} t on t.id = p.id`)).toMatch(/together/);
  expect(against(`select not exists (select from doc) from ${ON} t where exists (select from ${ON} t)`)).toMatch(
    /expr/,
  );
  expect(against(`with a as materialized (select 1 from ${ON} t where t."owner" = 1) select 1 from a`, '"owner"')).toBe(
    '',
  );
  expect(against(`with a as materialized (select 1 from ${ON} t) select 1 from a`, '"owner"')).toMatch(
    /without its tenant/,
  );
  expect(against(`delete from ${ON} t where t.id = any ($1)`)).toBe('');
  expect(against('select 1 from other')).toBe('');
});

describe.for(['id', 'tenant'] as const)('distributed by %s', (by) => {
  const distribute = { by };

  test.for(['query', 'function'] as const)('rows are made, moved and removed as elsewhere, by a %s', async (made) => {
    const cluster = await openCluster();
    const { engine, client, query } = cluster;
    const build: (typeof TARGET)['build'] =
      made === 'query'
        ? TARGET.build
        : (ids, tx) => tx.query(statement('doc', 'select * from doc where id = any ($1::int[])'), [ids]);
    const { capture, projection } = projectDocs(engine, { distribute, build });
    await capture.apply();
    await client.query(`delete from both_note; insert into doc_search (id, owner) values (4711, 1)`);
    cluster.sent();
    await projection.backfill({ batch: 100 });
    const rows = async (): Promise<void> =>
      expect(await query(`${ROWS} doc_search order by id`)).toEqual(await query(`${ROWS} doc order by id`));
    await rows();
    // Three pages of entities and one of rows without an entity, each committed in two phases.
    expect(await query('select count(*)::int as n from both_note')).toEqual([{ n: 4 }]);
    const worker = projection.run({ poll: '20ms' });
    onTestFinished(() => worker.stop());
    await client.query(`update doc set owner = (owner + 1) % 3 where id between 10 and 40; delete from doc where id > 290;
      update doc set title = 'other' where id = 50; insert into doc values (9000, 'new', '', null, null, 2, 9000)`);
    await projection.settled();
    await rows();
    await worker.stop();
    expect(refused(cluster)).toEqual([]);
  });

  test('reconcile finds rows that differ, are missing, belong to no entity or to another tenant', async () => {
    const cluster = await openCluster();
    const { capture, projection } = projectDocs(cluster.engine, { distribute });
    await capture.apply();
    await projection.backfill();
    await cluster.client.query(`update doc_search set title = 'wrong' where id = 3; delete from doc_search where id = 4;
      insert into doc_search (id, owner) values (4711, 1); update doc_search set owner = 1 where id = 6`);
    if (by === 'tenant') await cluster.client.query('insert into doc_search (id, owner) values (9, 2)');
    cluster.sent();
    const { drifted, keys } = await projection.reconcile({ batch: 70 });
    const expected = by === 'tenant' ? ['3', '4', '4711', '6', '9'] : ['3', '4', '4711', '6'];
    expect({ drifted, keys: keys.toSorted() }).toEqual({ drifted: expected.length, keys: expected });
    expect(refused(cluster)).toEqual([]);
    const worker = projection.run({ poll: '20ms' });
    onTestFinished(() => worker.stop());
    await projection.settled();
    expect(await projection.reconcile()).toMatchObject({ drifted: 0 });
  });

  test('a search finds what it finds elsewhere, in statements that a cluster takes', async () => {
    const cluster = await openCluster(4700);
    // Of one tenant there are 3,134: where all fit, they are too many to be sorted.
    await cluster.client.query('update doc set owner = 1 where owner = 0');
    const capture = createCapture(cluster.engine, { entity: 'doc', root: 'doc' });
    const spread = capture.project({ ...TARGET, distribute });
    const plain = capture.project({ ...TARGET, into: 'doc_plain' });
    await capture.apply();
    await Promise.all([spread, plain].map((projection) => projection.backfill({ batch: 1600 })));
    await cluster.client.query(
      'update doc_search set at = null where id = 7; update doc_plain set at = null where id = 7; analyze',
    );
    cluster.sent();
    const MANY = ['rare', 'rar* common', '"number 77"', 'warranty -odd', '000301', 'common', 'odd common'];
    for (const [tenant, queries] of [
      [1, MANY],
      [2, ['rare', 'odd common']],
    ] as const) {
      for (const query of queries) {
        const options = { tenant, limit: 500, timeout: '1m' } as const;
        expect(await all(spread, query, options), query).toEqual(await all(plain, query, options));
      }
    }
    expect(await spread.search('common', { tenant: 2, filter: { at: 5 } })).toMatchObject({ matches: 1, next: null });
    expect(refused(cluster, by === 'tenant' ? '"owner"' : undefined)).toEqual([]);
    await expect(spread.search('common')).rejects.toMatchObject({ code: 'invalid_input', field: 'tenant' });
  });
});

/** All pages. */
async function all(
  projection: Projection,
  query: string,
  options: { tenant: number; limit: number; timeout: '1m' },
): Promise<unknown[]> {
  const pages: unknown[] = [];
  let cursor: string | null = null;
  do {
    const page = await projection.search(query, { ...options, cursor });
    pages.push(page);
    cursor = page.next;
  } while (cursor !== null);
  return pages;
}

test('other nodes are told the settings of a search and its tenant, whatever the tenant is called', async () => {
  const cluster = await openCluster(10);
  await cluster.client.query("alter table doc alter owner type text using 'it''s \\ ' || owner");
  const { capture, projection } = projectDocs(cluster.engine, {
    columns: { ...TARGET.columns, owner: 'text' },
    distribute: { by: 'tenant' },
  });
  await capture.apply();
  await projection.backfill();
  cluster.sent();
  expect((await projection.search('common', { tenant: "it's \\ 1", timeout: '3s' })).matches).toBe(4);
  const settings = cluster.sent().filter((text) => text.includes('propagate_set_commands'));
  expect(settings).toHaveLength(1);
  expect(settings[0]).toMatch(
    /^-- capture.search_settings\nset local statement_timeout = 3000;(set local [a-z_]+ = [^;]+;)+set local citus.propagate_set_commands = 'local';/,
  );
  // Citus sends the whole text once for each setting that stands behind the one above.
  expect(settings[0]).toMatch(
    /;set local citus.propagate_set_commands = 'local';set local pawl.tenant = e'it''s \\\\ 1'$/,
  );
  await expect(projection.search('common', { tenant: 'a\0b' })).rejects.toMatchObject({ field: 'tenant' });
});

test('rows that a crash between nodes has left locked hold up their delivery, and are right in the end', async () => {
  const { engine, client, query } = await openCluster();
  const { capture, projection } = projectDocs(engine, { distribute: { by: 'id' } });
  await capture.apply();
  await projection.backfill();
  const failed: string[] = [];
  projection.events.on('failed', ({ key }) => failed.push(key));
  // As a prepared transaction that is neither committed nor rolled back yet: the delivery before, of an older state.
  await client.query("begin; update doc_search set title = 'of the crash' where id = 5");
  await engine.session((session) => session.run("update doc set title = 'of now' where id in (5, 6)"));
  // Longer than this test may take until it commits: a delivery whose time is over would set the entity aside.
  const worker = projection.run({ poll: '20ms', timeout: '1m' });
  onTestFinished(() => worker.stop());
  await until('the delivery waits', async () => {
    const [row] = await engine.query<{ n: number }>(
      statement(
        'waiting',
        "select count(*)::int as n from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      ),
    );
    return row?.n === 1;
  });
  await client.query('commit');
  await projection.settled();
  expect(await query('select id, title from doc_search where id in (5, 6) order by id')).toEqual([
    { id: 5, title: 'of now' },
    { id: 6, title: 'of now' },
  ]);
  expect(failed).toEqual([]);
});

test('a follower’s own writes and its acknowledgement are committed in two phases', async () => {
  const { engine, client, query } = await openCluster(3);
  const capture = createCapture(engine, { entity: 'doc', root: 'doc' });
  let seen = 0;
  const follower = capture.follow({
    name: 'copy',
    handler: async (changes) => {
      seen += changes.length;
    },
  });
  await capture.apply();
  await client.query('delete from both_note; update doc set title = title');
  while (seen < 3) await follower.next();
  expect((await query('select * from both_note')).length).toBeGreaterThan(0);
});
