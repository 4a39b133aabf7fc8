import { expect, onTestFinished, test } from 'vitest';
import { InvalidInput, NotSupported } from '../../../src/base/errors.ts';
import { createCapture } from '../../../src/capture/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { openCluster, projectDocs, TARGET } from './cluster.ts';

const KEYS = `select string_agg(a.attname, ', ' order by k.n) as columns
from pg_index i cross join lateral unnest(i.indkey) with ordinality k (num, n) join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.num
where i.indrelid = 'doc_search'::regclass and i.indisprimary`;
const PLACE = `select p.partkey, (select count(*)::int from pg_dist_shard s where s.logicalrelid = p.logicalrelid) as shards
from pg_dist_partition p where p.logicalrelid = 'doc_search'::regclass`;

test.for([
  ['tenant', 'owner, id', 'owner'],
  ['id', 'id', 'id'],
] as const)('apply() distributes the table by %s, and is done then', async ([by, key, column]) => {
  const { engine, query } = await openCluster(300, { migrated: by === 'id' });
  const { capture } = projectDocs(engine, { distribute: { by, shards: 8 } });
  expect((await capture.plan()).sql).toMatch(
    /create table[^;]*;\nset local citus[^;]*;\nselect pg_catalog\.create_distributed_table/,
  );
  await capture.apply();
  expect(await query(KEYS)).toEqual([{ columns: key }]);
  expect(await query(PLACE)).toEqual([{ partkey: column, shards: 8 }]);
  expect(await capture.verify()).toEqual([]);
  expect(await capture.apply()).toEqual([]);
});

test('a table that was there before is distributed, if its primary key allows that', async () => {
  const { engine, client, query } = await openCluster();
  await client.query(
    'create table doc_search (doc int primary key, title text, body text, code text, extra json, owner int, at int)',
  );
  await expect(projectDocs(engine, { distribute: { by: 'tenant' } }).capture.apply()).rejects.toThrow(
    /primary key of two columns, owner and the key/,
  );
  await projectDocs(engine, { distribute: { by: 'id' } }).capture.apply();
  expect(await query(PLACE)).toEqual([{ partkey: 'doc', shards: 32 }]);
});

test('a table that is distributed in another way than declared is named, and left as it is', async () => {
  const { engine, query } = await openCluster();
  await projectDocs(engine, { distribute: { by: 'id', shards: 4 } }).capture.apply();
  const problem = async (distribute: (typeof TARGET)['distribute']): Promise<string> => {
    const { capture } = projectDocs(engine, { distribute });
    await expect(capture.apply()).rejects.toThrow(InvalidInput);
    return (await capture.verify())
      .filter(({ kind }) => kind === 'target')
      .map((each) => each.problem)
      .join();
  };
  expect(await problem(undefined)).toMatch(/Citus keeps its rows on other nodes, by id; declare it with distribute/);
  expect(await problem({ by: 'id', shards: 16 })).toMatch(/it has 4 shards, and is declared with 16; run alter_dist/);
  expect(await problem({ by: 'tenant' })).toMatch(/primary key of two columns/);
  await engine.session((session) =>
    session.run('alter table doc_search drop constraint doc_search_pkey, add primary key (owner, id)'),
  );
  expect(await problem({ by: 'tenant' })).toMatch(
    /distributed by id, and declared as distributed by owner; run undist/,
  );
  expect(await query(PLACE)).toEqual([{ partkey: 'id', shards: 4 }]);
});

test('by tenant needs a tenant and its column', async () => {
  const { engine } = await openCluster();
  const capture = createCapture(engine, { entity: 'doc', root: 'doc' });
  expect(() => capture.project({ ...TARGET, tenant: undefined, distribute: { by: 'tenant' } })).toThrow(
    expect.objectContaining({ code: 'invalid_input', field: 'distribute.by' }),
  );
  expect(() => capture.project({ ...TARGET, distribute: { by: 'id', shards: 0 } })).toThrow(/distribute\.shards/);
  const { capture: other } = projectDocs(engine, {
    columns: { title: 'text', body: 'text', code: 'text', at: 'int' },
    distribute: { by: 'tenant' },
  });
  await expect(other.apply()).rejects.toThrow(/no column owner, by which it is to be distributed/);
});

test('by tenant takes only types whose texts find a node', async () => {
  const { engine, client, query } = await openCluster(3);
  await client.query(
    "create type region as enum ('north', 'south'); create domain short as text check (length(value) < 9)",
  );
  const refusal = async (owner: string): Promise<string> => {
    const { capture } = projectDocs(engine, { columns: { ...TARGET.columns, owner }, distribute: { by: 'tenant' } });
    await expect(capture.apply()).rejects.toThrow(InvalidInput);
    return (await capture.verify()).map(({ problem }) => problem).join();
  };
  for (const type of ['region', 'short', 'date', 'timestamptz', 'int[]']) {
    expect(await refusal(type), type).toMatch(/its column owner is of type .*make it an integer, a uuid or a text/);
  }
  expect(await query("select to_regclass('doc_search') as t")).toEqual([{ t: null }]);
  for (const owner of ['uuid', 'varchar(20) not null', 'bigint', 'numeric(5, 0)']) {
    const { capture } = projectDocs(engine, { columns: { ...TARGET.columns, owner }, distribute: { by: 'tenant' } });
    expect((await capture.plan()).sql, owner).toMatch(/create_distributed_table/);
  }
  await projectDocs(engine, { columns: { ...TARGET.columns, owner: 'date' }, distribute: { by: 'id' } }).capture.plan();
});

test('a database without Citus is told by name, before anything is done', async () => {
  const { engine, query } = await openCluster(10, { hasCitus: false });
  const { capture } = projectDocs(engine, { distribute: { by: 'id' } });
  await expect(capture.plan()).rejects.toThrow(/"distribute" for project needs Citus.*"doc_search"/);
  await expect(capture.apply()).rejects.toThrow(NotSupported);
  expect((await capture.verify()).map(({ problem }) => problem).join()).toMatch(/needs Citus/);
  expect(await query("select to_regclass('doc_search') as t")).toEqual([{ t: null }]);
});

test('the table may be on the coordinator of a cluster that is another database', async () => {
  const cluster = await openCluster();
  const database = await freshDatabase();
  const home = postgres(database.url);
  onTestFinished(async () => {
    await home.stop();
    await database.drop();
  });
  await home.session((session) =>
    session.run(
      'create table doc (id int primary key, title text, body text, code text, extra json, owner int, at int)',
    ),
  );
  await home.session((session) => session.run("insert into doc values (1, 'a word', '', '', null, 2, 1)"));
  const { capture, projection } = projectDocs(home, { to: cluster.engine, distribute: { by: 'tenant' } });
  await capture.apply();
  await cluster.client.query('delete from both_note');
  await projection.backfill();
  expect(await cluster.query('select id, owner from doc_search')).toEqual([{ id: 1, owner: 2 }]);
  // The row and its version there are on two nodes.
  expect((await cluster.query('select * from both_note')).length).toBeGreaterThan(0);
  expect((await projection.search('word', { tenant: 2 })).matches).toBe(1);
  await home.session((session) => session.run('update doc set owner = 1'));
  const worker = projection.run({ poll: '20ms' });
  onTestFinished(() => worker.stop());
  await projection.settled();
  expect(await cluster.query('select id, owner from doc_search')).toEqual([{ id: 1, owner: 1 }]);
  expect(await projection.reconcile()).toMatchObject({ checked: 1, drifted: 0 });
});
