// A shop in fourteen tables: orders with lines, of customers in segments, taken by employees with territories. Lines are partitioned by
// warehouse.
import type { CaptureOptions } from '../../../src/capture/index.ts';
import { sql } from '../../../src/capture/index.ts';

export const CUSTOMERS = 12;
export const PRODUCTS = 15;
export const ORDERS = 60;
export const EMPLOYEES = 6;

export const TABLES: readonly string[] = [
  'region',
  'state',
  'territory',
  'employee',
  'employee_territory',
  'shipper',
  'category',
  'supplier',
  'product',
  'customer',
  'segment',
  'customer_segment',
  'orders',
  'order_line',
];

/** The records of the schedule itself: the changes that an independent trigger saw, and those that the follower got. */
export const OWN_TABLES: readonly string[] = ['faults_audit', 'faults_journal'];

export const SCHEMA = `
create table region (id int primary key, name text not null);
create table state (id int primary key, region_id int not null references region, code text not null);
create table territory (id int primary key, state_id int not null references state, name text not null);
create table employee (id int primary key, boss_id int references employee, name text not null);
create table employee_territory (employee_id int not null references employee, territory_id int not null references territory,
  primary key (employee_id, territory_id));
create table shipper (id int primary key, name text not null);
create table category (id int primary key, name text not null);
create table supplier (id int primary key, name text not null, city varchar(40));
create table product (id int primary key, category_id int references category, supplier_id int references supplier, name text not null);
create table customer (id int primary key, name text not null);
create table segment (id text primary key, name text not null);
create table customer_segment (customer_id int not null references customer, segment_id text not null references segment,
  primary key (customer_id, segment_id));
create table orders (id int primary key, customer_id int not null references customer, employee_id int references employee,
  shipper_id int references shipper, status text not null default 'new', freight numeric not null default 0);
create table order_line (order_id int not null references orders on delete cascade, product_id int not null references product,
  warehouse int not null, qty int not null default 1, primary key (warehouse, order_id, product_id)) partition by list (warehouse);
create table order_line_0 partition of order_line for values in (0);
create table order_line_1 partition of order_line for values in (1);
create index on order_line (order_id);
create index on order_line (product_id);
create index on orders (customer_id);
create index on orders (employee_id);
create table faults_audit (n bigserial primary key, source text not null, op text not null, key text not null);
create table faults_journal (n bigserial primary key, change bigint not null, source text not null, op text not null, key text, old_key text);`;

export const AUDIT = `
create function faults_audit() returns trigger language plpgsql as $$
begin
  insert into faults_audit (source, op, key) values (tg_argv[0], lower(tg_op),
    case when tg_op = 'DELETE' then to_jsonb(old) else to_jsonb(new) end ->> tg_argv[1]);
  return null;
end $$;
create trigger audit after insert or update or delete on orders for each row execute function faults_audit('orders', 'id');
create trigger audit after insert or update or delete on order_line for each row execute function faults_audit('order_line', 'order_id');`;

export const ROWS: string = `
insert into region select i, 'region ' || i from generate_series(1, 3) i;
insert into state select i, 1 + i % 3, 'S' || i from generate_series(1, 6) i;
insert into territory select i, 1 + i % 6, 'territory ' || i from generate_series(1, 9) i;
insert into employee select i, nullif(i / 3, 0), 'employee ' || i from generate_series(1, ${EMPLOYEES}) i;
insert into employee_territory select 1 + i % ${EMPLOYEES}, i from generate_series(1, 9) i;
insert into shipper select i, 'shipper ' || i from generate_series(1, 3) i;
insert into category select i, 'category ' || i from generate_series(1, 4) i;
insert into supplier select i, 'supplier ' || i, 'city' from generate_series(1, 5) i;
insert into product select i, nullif(i % 5, 0), 1 + i % 5, 'product ' || i from generate_series(1, ${PRODUCTS}) i;
insert into customer select i, 'customer ' || i from generate_series(1, ${CUSTOMERS}) i;
insert into segment select 's' || i, 'segment ' || i from generate_series(1, 4) i;
insert into customer_segment select i, 's' || (1 + i % 4) from generate_series(1, ${CUSTOMERS}) i;
insert into orders select i, 1 + i % ${CUSTOMERS}, nullif(i % ${EMPLOYEES + 1}, 0), 1 + i % 3 from generate_series(1, ${ORDERS}) i;
insert into order_line select 1 + i % ${ORDERS}, 1 + i % ${PRODUCTS}, i % 2, i from generate_series(1, ${ORDERS * 2}) i on conflict do nothing;`;

export const VIA: NonNullable<CaptureOptions['via']> = {
  order_line: 'order_id',
  customer: { column: 'id', to: 'orders.customer_id' },
  employee: { column: 'id', to: 'orders.employee_id' },
  shipper: { column: 'id', to: 'orders.shipper_id' },
  customer_segment: { column: 'customer_id', to: 'orders.customer_id' },
  employee_territory: { column: 'employee_id', to: 'orders.employee_id' },
  segment: sql`select o.id from orders o join customer_segment s on s.customer_id = o.customer_id join changed c on c.id = s.segment_id`,
  product: sql`select l.order_id from order_line l join changed c on c.id = l.product_id`,
  category: sql`select l.order_id from order_line l join product p on p.id = l.product_id join changed c on c.id = p.category_id`,
  supplier: sql`select l.order_id from order_line l join product p on p.id = l.product_id join changed c on c.id = p.supplier_id`,
  territory: sql`select o.id from orders o join employee_territory t on t.employee_id = o.employee_id join changed c on c.id = t.territory_id`,
  state: sql`select o.id from orders o join employee_territory e on e.employee_id = o.employee_id join territory t on t.id = e.territory_id
    join changed c on c.id = t.state_id`,
  region: sql`select o.id from orders o join employee_territory e on e.employee_id = o.employee_id join territory t on t.id = e.territory_id
    join state s on s.id = t.state_id join changed c on c.id = s.region_id`,
};

/** The query for the rows of each projection. */
export const ROW = `
select o.id, o.status, o.freight::text as freight, c.name as customer, e.name as employee, h.name as shipper,
  (select string_agg(concat_ws('/', l.warehouse, p.name, l.qty, g.name, s.name, s.city), ', ' order by l.warehouse, l.product_id)
    from order_line l join product p on p.id = l.product_id left join category g on g.id = p.category_id
    left join supplier s on s.id = p.supplier_id where l.order_id = o.id) as lines,
  (select string_agg(s.name, ', ' order by s.id) from customer_segment m join segment s on s.id = m.segment_id
    where m.customer_id = o.customer_id) as segments,
  (select string_agg(concat_ws('/', t.name, s.code, r.name), ', ' order by t.id) from employee_territory m
    join territory t on t.id = m.territory_id join state s on s.id = t.state_id join region r on r.id = s.region_id
    where m.employee_id = o.employee_id) as territories
from orders o join customer c on c.id = o.customer_id left join employee e on e.id = o.employee_id left join shipper h on h.id = o.shipper_id`;

export const COLUMNS: Readonly<Record<string, string>> = Object.fromEntries(
  ['status', 'freight', 'customer', 'employee', 'shipper', 'lines', 'segments', 'territories'].map((name) => [
    name,
    'text',
  ]),
);
