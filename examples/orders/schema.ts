/** A warranty business: 17 tables that belong to applications which know nothing of Pawl. */
export const SCHEMA = `
create schema shop;
create table shop.customer (id bigint primary key, name text not null, tier text not null default 'basic');
create table shop.customer_address (id bigint primary key, customer_id bigint not null references shop.customer, street text not null, city text not null);
create table shop.customer_phone (id bigint primary key, customer_id bigint not null references shop.customer, number text not null);
create table shop.customer_email (id bigint primary key, customer_id bigint not null references shop.customer, email text not null);
create table shop.brand (id int primary key, name text not null);
create table shop.item (sku text primary key, brand_id int not null references shop.brand, title text not null);
create table shop.item_description (sku text not null references shop.item, language text not null, body text not null, primary key (sku, language));
create table shop.orders (id bigint primary key, customer_id bigint not null references shop.customer, placed_at timestamptz not null, status text not null);
create table shop.order_line (id bigint primary key, order_id bigint not null references shop.orders on delete cascade, sku text not null references shop.item, qty int not null);
create table shop.order_note (id bigint primary key, order_id bigint not null references shop.orders on delete cascade, body text not null);
create table shop.payment (id bigint primary key, order_id bigint not null references shop.orders on delete cascade, amount numeric(12, 2) not null, method text not null);
create table shop.shipment (id bigint primary key, order_id bigint not null references shop.orders on delete cascade, carrier text not null, tracking text not null);
create table shop.shipment_event (id bigint primary key, shipment_id bigint not null references shop.shipment on delete cascade, place text not null);
create table shop.warranty (id bigint primary key, order_id bigint not null references shop.orders on delete cascade, serial text not null, years int not null);
create table shop.warranty_note (id bigint primary key, warranty_id bigint not null references shop.warranty on delete cascade, body text not null);
create table shop.warranty_claim (id bigint primary key, warranty_id bigint not null references shop.warranty on delete cascade, reason text not null);
create table shop.call (id bigint not null, order_id bigint not null, year int not null, topic text not null, primary key (year, id)) partition by range (year);
create table shop.call_2025 partition of shop.call for values from (2025) to (2026);
create table shop.call_2026 partition of shop.call for values from (2026) to (2027)`;

const WORDS = {
  name: ['Smith', 'Jones', 'Garcia', 'Chen', 'Patel', 'Müller', 'Rossi', 'Silva', 'Kim', 'Novak'],
  city: ['Porto', 'Lyon', 'Graz', 'Turku', 'Leeds', 'Ghent', 'Malmö', 'Split'],
  thing: ['pump', 'valve', 'motor', 'filter', 'hose', 'gauge', 'drum', 'lamp'],
  reason: ['leaks', 'rattles', 'overheats', 'arrived broken', 'does not start'],
} as const;

function pick(list: readonly string[], from: string): string {
  return `(array[${list.map((word) => `'${word}'`).join(', ')}])[1 + ${from} % ${list.length}]`;
}

/** Fills the tables with so many orders. */
export function seedText(orders: number): string {
  const customers = Math.max(10, Math.floor(orders / 10));
  return `
insert into shop.customer select i, ${pick(WORDS.name, 'i')} || ' ' || substr(md5(i::text), 1, 6) from generate_series(1, ${customers}) i;
insert into shop.customer_address select i, i, i || ' Mill Road', ${pick(WORDS.city, 'i')} from generate_series(1, ${customers}) i;
insert into shop.customer_phone select i, i, '+44 ' || (1000000 + i * 7919) from generate_series(1, ${customers}) i;
insert into shop.customer_email select i, i, 'c' || i || '@example.com' from generate_series(1, ${customers}) i;
insert into shop.brand select i, 'Brand ' || chr(64 + i) from generate_series(1, 20) i;
insert into shop.item select 'S' || i, 1 + i % 20, ${pick(WORDS.thing, 'i')} || ' ' || i from generate_series(1, 400) i;
insert into shop.item_description select 'S' || i, 'en', 'a ' || ${pick(WORDS.thing, 'i')} || ' for every day' from generate_series(1, 400) i;
insert into shop.orders select i, 1 + (i * 31) % ${customers}, '2024-01-01'::timestamptz + i * interval '10 minutes', 'new' from generate_series(1, ${orders}) i;
insert into shop.order_line select i, (i + 1) / 2, 'S' || (1 + (i * 17) % 400), 1 + i % 3 from generate_series(1, ${orders * 2}) i;
insert into shop.order_note select i, i * 2, 'call before delivery ' || i from generate_series(1, ${orders / 2}) i;
insert into shop.payment select i, i, 10 + i % 500, 'card' from generate_series(1, ${orders}) i;
insert into shop.shipment select i, i, 'Carrier ' || i % 4, 'TR' || lpad(i::text, 9, '0') from generate_series(1, ${orders}) i;
insert into shop.shipment_event select i, i * 3, ${pick(WORDS.city, 'i')} from generate_series(1, ${Math.floor(orders / 3)}) i;
insert into shop.warranty select i, i, 'SN' || md5(i::text), 2 + i % 3 from generate_series(1, ${orders}) i;
insert into shop.warranty_note select i, i * 4, 'warranty card seen' from generate_series(1, ${Math.floor(orders / 4)}) i;
insert into shop.warranty_claim select i, i * 10, 'it ' || ${pick(WORDS.reason, 'i')} from generate_series(1, ${Math.floor(orders / 10)}) i;
insert into shop.call select i, 1 + (i * 13) % ${orders}, 2025 + i % 2, 'asked about order' from generate_series(1, ${Math.floor(orders / 10)}) i;
create index on shop.orders (customer_id); create index on shop.order_line (order_id); create index on shop.order_line (sku);
create index on shop.order_note (order_id); create index on shop.payment (order_id); create index on shop.shipment (order_id);
create index on shop.shipment_event (shipment_id); create index on shop.warranty (order_id); create index on shop.warranty_note (warranty_id);
create index on shop.warranty_claim (warranty_id); create index on shop.call (order_id); create index on shop.item (brand_id);
create index on shop.customer_phone (customer_id); create index on shop.customer_address (customer_id); create index on shop.customer_email (customer_id)`;
}
