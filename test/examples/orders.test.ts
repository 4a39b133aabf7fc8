import type * as Capture from 'pawl/capture';
import type * as Postgres from 'pawl/postgres';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import type * as Orders from '../../examples/orders/orders.ts';
import { SCHEMA, seedText } from '../../examples/orders/schema.ts';
import { Random } from '../../examples/random.ts';
import { freshDatabase } from '../support/database.ts';
import { LONG } from '../support/long.ts';
import { compiled } from './processes.ts';

const { declareOrders, orderRows } = await compiled<typeof Orders>('orders/orders.js');
const { postgres, statement } = await compiled<typeof Postgres>('../dist/engine/postgres/index.js');
const { sql } = await compiled<typeof Capture>('../dist/capture/index.js');

const ORDERS = 120;
const SEEDS = LONG ? Array.from({ length: 30 }, (_, seed) => seed + 1) : [1];
const TRANSACTIONS = LONG ? 300 : 50;

interface Column {
  readonly table: string;
  readonly name: string;
  readonly isNumber: boolean;
  readonly isKey: boolean;
}

/** A random change of any of the 17 tables, made of their catalog: no table and no column is left out. */
function change(random: Random, columns: readonly Column[]): string {
  const { table } = random.pick(columns) ?? { table: '' };
  const own = columns.filter((column) => column.table === table);
  const { name = '', isNumber = false } = random.pick(own) ?? {};
  const some = (n: number): string => `from ${table} offset ${random.whole(0, 100)} limit ${n}`;
  const rows = `${table}.ctid = any (array(select ctid ${some(random.whole(1, 4))}))`;
  const donor = `(select * ${some(1)}) d`;
  const kind = random.whole(1, 100);
  if (kind <= 12) return `delete from ${table} where ${rows}`;
  if (kind <= 14) return `truncate ${table} cascade`;
  if (kind <= 40) {
    const names = own.map((column) => column.name).join(', ');
    const values = own.map((one) =>
      one.isKey && one.isNumber ? `d.${one.name} + ${random.whole(1, 50)}` : `d.${one.name}`,
    );
    return `insert into ${table} (${names}) select ${values.join(', ')} from ${donor} on conflict do nothing`;
  }
  // What another row has, which may be a link; or what none has.
  if (kind <= 85) return `update ${table} set ${name} = d.${name} from ${donor} where ${rows}`;
  const value = isNumber ? `${name} + ${random.whole(1, 3)}` : `'w${random.whole(1, 99)}'`;
  return `update ${table} set ${name} = ${value} where ${rows}`;
}

async function apply(url: string, columns: readonly Column[], random: Random): Promise<number> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  let done = 0;
  for (let n = 0; n < TRANSACTIONS; n += 1) {
    await client.query('begin');
    for (let step = random.whole(1, 4); step > 0; step -= 1) {
      await client.query('savepoint s');
      // Some are refused by a constraint, or lose a deadlock: as in any application.
      const isDone = await client.query(change(random, columns)).then(
        () => random.whole(1, 6) > 1,
        () => false,
      );
      await client.query(isDone ? 'release s' : 'rollback to s');
      done += isDone ? 1 : 0;
    }
    await client.query(random.whole(1, 6) === 1 ? 'rollback' : 'commit');
  }
  await client.end();
  return done;
}

// Invariant C14.
test.each(SEEDS)(
  'after random work on all 17 tables every row found is what a full rebuild gives (seed %i)',
  async (seed) => {
    const database = await freshDatabase();
    const engine = postgres(database.url, { max: 10 });
    onTestFinished(() => engine.stop());
    await engine.session((session) => session.run(`${SCHEMA}; ${seedText(ORDERS)}`));
    const columns = await engine.query<Column>(
      statement(
        'test',
        `select a.attrelid::regclass::text as "table", quote_ident(a.attname) as name, t.typcategory = 'N' as "isNumber",
          exists (select from pg_index i where i.indrelid = a.attrelid and i.indisprimary and a.attnum = any (i.indkey)) as "isKey"
        from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
        where c.relnamespace = 'shop'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.attnum > 0 and not a.attisdropped`,
        { prepare: false },
      ),
    );
    expect(new Set(columns.map(({ table }) => table)).size).toBe(17);
    const { capture, projection } = declareOrders(engine);
    await capture.apply();
    const workers = [projection.run({ poll: '20ms', batch: 11 }), projection.run({ poll: '20ms', batch: 60 })];
    onTestFinished(() => Promise.all(workers.map((worker) => worker.stop())).then(() => {}));
    const filling = projection.backfill({ batch: 25 });
    const done = await Promise.all([1, 2, 3].map((nth) => apply(database.url, columns, new Random(seed * 10 + nth))));
    expect(Math.min(...done)).toBeGreaterThan(TRANSACTIONS / 2);
    await filling;
    await projection.settled();
    const wrong = `with want as (${orderRows(sql``).text}), have as (select * from shop.order_search s)
      select coalesce(w.id, h.id)::text as id from want w full join have h on h.id = w.id
      where (w.customer, w.placed_at, w.status, w.contact, w.items, w.notes, w.shipments, w.paid)
        is distinct from (h.customer, h.placed_at, h.status, h.contact, h.items, h.notes, h.shipments, h.paid) or w.id is null or h.id is null`;
    expect(await engine.query(statement('test', wrong, { prepare: false }))).toEqual([]);
    expect(await projection.reconcile({ repair: false })).toMatchObject({ drifted: 0 });
    expect(await capture.verify()).toEqual([]);
  },
  90_000,
);
