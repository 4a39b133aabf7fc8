import { expect, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import { type Capture, type CaptureOptions, createCapture, type Projection, sql } from '../../../src/capture/index.ts';
import type { PostgresEngine } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { openWorld } from './world.ts';

// Declarations that change while the log has changes and workers run.

const TABLES = `
create table customer (id bigint primary key, name text);
create table product (id bigint primary key, name text);
create table root (id bigint primary key, customer bigint, product bigint);
insert into customer values (1, 'c1'), (2, 'c2');
insert into product values (1, 'p1'), (2, 'p2');
insert into root values (10, 1, 2), (20, 2, 1)`;

const CUSTOMER = { customer: { column: 'id', to: 'root.customer' } } as const;
const PRODUCT = { product: { column: 'id', to: 'root.product' } } as const;
const HISTORY = { customer: 'keys', product: 'keys' } as const;

function declare(
  engine: PostgresEngine,
  options: Omit<CaptureOptions, 'entity' | 'root'>,
): { capture: Capture; projection: Projection } {
  const capture = createCapture(engine, { entity: 'root', root: 'root', ...options });
  const projection = capture.project({
    into: 'projected',
    columns: { customer: 'text', product: 'text' },
    build: sql`select r.id, c.name as customer, p.name as product
      from root r join customer c on c.id = r.customer join product p on p.id = r.product where r.id = any ($1::bigint[])`,
  });
  return { capture, projection };
}

const PROJECTED = 'select customer, product from projected order by id';

test('changes from before apply are projected, and keep their table, if the declaration names the tables in another order', async () => {
  const { engine, query } = await openWorld(TABLES);
  const one = declare(engine, { via: { ...CUSTOMER, ...PRODUCT }, history: HISTORY });
  await one.capture.apply();
  await one.projection.backfill();
  await query("update customer set name = 'new' where id = 1");
  const two = declare(engine, { via: { ...PRODUCT, ...CUSTOMER }, history: HISTORY });
  await two.capture.apply();
  await query("update product set name = 'newer' where id = 2");
  await using _worker = two.projection.run();
  await two.projection.settled();
  expect(await query(PROJECTED)).toEqual([
    { customer: 'new', product: 'newer' },
    { customer: 'c2', product: 'p1' },
  ]);
  const history = await two.capture.history({});
  expect(history.map(({ table, key }) => [table, key])).toEqual([
    ['product', '2'],
    ['customer', '1'],
  ]);
});

test('the history names the table of a change after the table was taken out, and another one was declared', async () => {
  const { engine, query } = await openWorld(TABLES);
  const one = declare(engine, { via: CUSTOMER, history: { customer: 'keys' } });
  await one.capture.apply();
  await query("update customer set name = 'new' where id = 1");
  const two = declare(engine, { via: PRODUCT, history: { product: 'keys' } });
  await two.capture.apply();
  await query("update product set name = 'newer' where id = 2");
  const tables = async (capture: Capture): Promise<string[]> => (await capture.history({})).map(({ table }) => table);
  expect(await tables(two.capture)).toEqual(['product', 'customer']);
  expect((await two.capture.history({ table: 'customer', key: 1 })).map(({ op }) => op)).toEqual(['update']);
  expect(await two.capture.verify()).toEqual([]);
  await one.capture.apply();
  await query("update customer set name = 'newest' where id = 1");
  expect(await tables(one.capture)).toEqual(['customer', 'product', 'customer']);
});

test('a worker that runs while the way of a table to its entities changes follows the new way', async () => {
  const { engine, query } = await openWorld(TABLES);
  const one = declare(engine, { via: { ...CUSTOMER, product: sql`select r.id from root r join changed c on false` } });
  await one.capture.apply();
  await one.projection.backfill();
  await using _worker = one.projection.run();
  await one.projection.settled();
  const two = declare(engine, { via: { ...CUSTOMER, ...PRODUCT } });
  await two.capture.apply();
  await query("update product set name = 'new' where id = 2");
  await one.projection.settled();
  expect((await query(PROJECTED))[0]).toEqual({ customer: 'c1', product: 'new' });
  await query("update product set name = 'newer' where id = 2");
  await one.projection.settled();
  expect((await query(PROJECTED))[0]).toEqual({ customer: 'c1', product: 'newer' });
});

test('a worker that runs while the capture is detached says so, and goes on after the next apply', async () => {
  const { engine, query } = await openWorld(TABLES);
  const one = declare(engine, { via: CUSTOMER });
  await one.capture.apply();
  await one.projection.backfill();
  await using worker = one.projection.run({ poll: '50ms' });
  await one.projection.settled();
  const two = declare(engine, { via: CUSTOMER });
  await two.capture.detach();
  await until('it says so', () => Promise.resolve(worker.problem?.includes('is not installed') === true));
  await expect(one.projection.settled()).rejects.toThrow(NotFound);
  expect(await query('select from pawl.capture_definition')).toEqual([]);
  await two.capture.apply();
  await query("update customer set name = 'new' where id = 1");
  await one.projection.settled();
  expect((await query(PROJECTED))[0]).toEqual({ customer: 'new', product: 'p2' });
});

test('a follower that runs while the capture is detached says so, and goes on after the next apply', async () => {
  const { engine, query } = await openWorld(TABLES);
  const keys: (string | null)[] = [];
  const make = (): { capture: Capture; follower: ReturnType<Capture['follow']> } => {
    const capture = createCapture(engine, { entity: 'root', root: 'root' });
    const handler = async (changes: readonly { key: string | null }[]): Promise<void> =>
      void keys.push(...changes.map(({ key }) => key));
    return { capture, follower: capture.follow({ name: 'follower', handler }) };
  };
  const one = make();
  await one.capture.apply();
  await query('update root set customer = 2 where id = 10');
  await one.follower.next();
  const two = make();
  await two.capture.detach();
  await expect(one.follower.next()).rejects.toThrow(NotFound);
  await two.capture.apply();
  await query('update root set customer = 1 where id = 20');
  await one.follower.next();
  expect(keys).toEqual(['10', '20']);
});

test('to compare a declaration with the database uses no number up, and neither does an apply that fails again and again', async () => {
  const { engine, query } = await openWorld(TABLES);
  const { capture } = declare(engine, { via: CUSTOMER });
  await query("select setval('pawl.capture_line_id_seq', 32765), setval('pawl.capture_definition_id_seq', 32765)");
  for (let check = 0; check < 4; check += 1) expect(await capture.verify()).not.toEqual([]);
  await query('create table projected (id bigint)');
  for (let attempt = 0; attempt < 4; attempt += 1) await expect(capture.apply()).rejects.toThrow(/needs a primary key/);
  await query('drop table projected');
  await capture.apply();
  expect(await capture.verify()).toEqual([]);
});
