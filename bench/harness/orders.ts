import pg from 'pg';
import type { Context } from './context.ts';
import { type BenchCapture, type BenchProjection, loadCapture, type Sql } from './pawl-capture.ts';

const ORDERS = `
create table customer (id bigint primary key, name text not null);
create table orders (id bigint primary key, customer_id bigint not null, placed_at timestamptz not null, note text not null);
create table order_item (id bigint primary key, order_id bigint not null, title text not null);
insert into customer select i, (array['smith','jones','garcia','chen','patel','muller','rossi','silva','kim','novak'])[1 + i % 10] || ' ' || md5(i::text)
from generate_series(1, 20000) i`;

/** A tenth of all orders has the word `warranty`. Each order also has words that few other orders have. */
export function moreOrders(from: number, to: number): string {
  return `insert into orders select i, 1 + (i * 7919) % 20000, '2020-01-01'::timestamptz + i * interval '1 minute',
      case when i % 10 = 3 then 'warranty' else 'regular' end || ' ' || substr(md5(i::text), 1, 6) from generate_series(${from}::bigint, ${to}) i;
    insert into order_item select i, (i + 1) / 2, (array['pump','valve','motor','filter','hose','gauge','drum','lamp'])[1 + (i * 31) % 8] || ' model ' || (i * 17) % 5000
    from generate_series(${from * 2 - 1}::bigint, ${to * 2}) i`;
}

/** Selects the rows of those orders that meet the condition `of`. */
export const ROWS = (of: string): string => `
select o.id, c.name as customer, o.placed_at, o.note, i.items
from orders o join customer c on c.id = o.customer_id
left join (select l.order_id, string_agg(l.title, ', ') as items from order_item l where ${of.replace('o.id', 'l.order_id')} group by 1) i on i.order_id = o.id
where ${of}`;

const projectionOf = (sql: Sql): object => ({
  into: 'order_search',
  columns: { customer: 'text', placed_at: 'timestamptz', note: 'text', items: 'text' },
  text: ['customer', 'note', 'items'],
  order: 'placed_at',
  build: sql([ROWS('o.id = any ($1::bigint[])')]),
});

const CAPTURE = {
  entity: 'bench',
  root: 'orders',
  via: { order_item: 'order_id', customer: { column: 'id', to: 'orders.customer_id' } },
};

export async function withOrders<T>(
  { server }: Context,
  fn: (parts: { client: pg.Client; url: string; projection: BenchProjection; captured: BenchCapture }) => Promise<T>,
): Promise<T> {
  const { postgres, createCapture, sql } = await loadCapture();
  return server.withDatabase(async (url) => {
    const engine = postgres(url, { max: 8 });
    const client = new pg.Client(url);
    await client.connect();
    try {
      await engine.migrate();
      await client.query(
        `${ORDERS}; ${moreOrders(1, 20_000)}; create index on orders (customer_id); create index on order_item (order_id)`,
      );
      await client.query('vacuum analyze');
      const captured = createCapture(engine, CAPTURE);
      const projection = captured.project(projectionOf(sql));
      await captured.apply();
      return await fn({ client, url, projection, captured });
    } finally {
      await client.end();
      await engine.stop();
    }
  });
}
