import pg from 'pg';
import { onTestFinished } from 'vitest';
import {
  type Capture,
  type CaptureOptions,
  createCapture,
  type Projection,
  type ProjectOptions,
  sql,
} from '../../src/capture/index.ts';
import { type PostgresEngine, postgres, statement, type Transaction } from '../../src/engine/postgres/index.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

/** Orders with lines, their customers, notes in a partitioned table, and items with titles. */
export const SCHEMA = `
create table customer (id bigint primary key, name text not null);
create table orders (id bigint primary key, customer_id bigint not null references customer (id), status text not null default 'new');
create table item (sku text primary key, title text not null);
create table order_line (
  id bigint primary key, order_id bigint references orders (id) on delete cascade,
  sku text not null references item (sku) on update cascade, qty numeric not null default 1, extra json
);
create table note (id bigint not null, order_id bigint, year int not null, body text, primary key (year, id)) partition by range (year);
create table note_2025 partition of note for values from (2025) to (2026);
create table note_2026 partition of note for values from (2026) to (2027);
create index on orders (customer_id);
create index on order_line (order_id);
create index on order_line (sku);
create index on note (order_id);
insert into customer select i, 'customer ' || i from generate_series(1, 20) i;
insert into item select 's' || i, 'item ' || i from generate_series(1, 20) i;
insert into orders select i, 1 + i % 20 from generate_series(1, 100) i;
insert into order_line select i, 1 + i % 100, 's' || (1 + i % 20) from generate_series(1, 300) i;
insert into note select i, 1 + i % 100, 2025 + i % 2, 'note ' || i from generate_series(1, 100) i`;

export const VIA: NonNullable<CaptureOptions['via']> = {
  order_line: { column: 'order_id', nulls: 'ignore' },
  note: { column: 'order_id', nulls: 'ignore' },
  customer: { column: 'id', to: 'orders.customer_id' },
  item: sql`select l.order_id from order_line l join changed c on c.sku = l.sku where l.order_id is not null`,
};

/** The expected rows of the projection, for all orders or some. */
export const EXPECTED = `
select o.id, c.name as customer, o.status,
  (select string_agg(i.title || ' x' || l.qty, ', ' order by l.id) from order_line l join item i on i.sku = l.sku where l.order_id = o.id) as items,
  (select string_agg(n.body, ' ' order by n.year, n.id) from note n where n.order_id = o.id) as notes
from orders o join customer c on c.id = o.customer_id`;

export const TARGET: Omit<ProjectOptions, 'build'> = {
  into: 'order_search',
  columns: { customer: 'text', status: 'text', items: 'text', notes: 'text' },
  text: ['customer', 'items', 'notes'],
};

export async function build(ids: readonly string[], tx: Transaction): Promise<Record<string, unknown>[]> {
  const result = await tx.client.query({ text: `${EXPECTED} where o.id = any ($1::bigint[])`, values: [ids] });
  return (Array.isArray(result) ? [] : result.rows) as Record<string, unknown>[];
}

export interface Scene {
  readonly url: string;
  readonly database: FreshDatabase;
  readonly engine: PostgresEngine;
  readonly capture: Capture;
  readonly projection: Projection;
  /** Runs plain SQL on a connection of its own, like an application that does not use Pawl. */
  readonly client: pg.Client;
  readonly connect: () => Promise<pg.Client>;
  readonly query: <Row = Record<string, unknown>>(text: string, values?: unknown[]) => Promise<Row[]>;
  /** The keys in the log since the last call, distinct and sorted; `link:` stands before values that have to be followed. */
  readonly dirty: () => Promise<string[]>;
  /** How many rows of the target differ from the expected ones. */
  readonly diff: () => Promise<number>;
}

export async function openScene(options: Partial<ProjectOptions> = {}): Promise<Scene> {
  const database = await freshDatabase();
  const engine = postgres(database.url, { max: 12 });
  const clients: pg.Client[] = [];
  const connect = async (): Promise<pg.Client> => {
    const client = new pg.Client({ connectionString: database.url });
    client.on('error', () => {});
    await client.connect();
    clients.push(client);
    return client;
  };
  onTestFinished(async () => {
    for (const client of clients) await client.end().catch(() => {});
    await engine.stop();
    await database.drop();
  });
  const client = await connect();
  await client.query(SCHEMA);
  const capture = createCapture(engine, { entity: 'order', root: 'orders', via: VIA });
  const projection = capture.project({ ...TARGET, build, ...options });
  const query = <Row>(text: string, values: unknown[] = []): Promise<Row[]> =>
    engine.query<Row>(statement('test', text, { prepare: false }), values);
  return {
    url: database.url,
    database,
    engine,
    capture,
    projection,
    client,
    connect,
    query,
    dirty: async () => {
      const rows = await query<{ key: string }>(
        `with gone as (delete from pawl.capture_dirty returning source, key)
        select distinct case when source > 0 then 'link:' when source < 0 then 'whole' else '' end || key as key from gone order by 1`,
      );
      return rows.map(({ key }) => key);
    },
    diff: async () => {
      const [row] = await query<{ n: number }>(
        `with want as (${EXPECTED}) select count(*)::int as n from want w full join order_search s on s.id = w.id
        where (w.id, w.customer, w.status, w.items, w.notes) is distinct from (s.id, s.customer, s.status, s.items, s.notes)`,
      );
      return row?.n ?? -1;
    },
  };
}
