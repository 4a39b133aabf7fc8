import { type Capture, createCapture, type Projection, type Sql, sql } from 'pawl/capture';
import type { PostgresEngine } from 'pawl/postgres';

/**
 * One row for each order, from all 17 tables. `of` says for which orders.
 *
 * Lists are sorted, so that the same order gives the same row every time.
 */
export function orderRows(of: Sql): Sql {
  return sql`
select o.id, c.name as customer, o.placed_at, o.status,
  concat_ws(' ',
    (select string_agg(a.street || ' ' || a.city, ' ' order by a.id) from shop.customer_address a where a.customer_id = c.id),
    (select string_agg(p.number, ' ' order by p.id) from shop.customer_phone p where p.customer_id = c.id),
    (select string_agg(e.email, ' ' order by e.id) from shop.customer_email e where e.customer_id = c.id)) as contact,
  (select string_agg(l.qty || ' ' || i.title || ' ' || b.name || coalesce(' ' || d.body, ''), ', ' order by l.id, d.language)
    from shop.order_line l join shop.item i on i.sku = l.sku join shop.brand b on b.id = i.brand_id
    left join shop.item_description d on d.sku = i.sku where l.order_id = o.id) as items,
  concat_ws(' ',
    (select string_agg(n.body, ' ' order by n.id) from shop.order_note n where n.order_id = o.id),
    (select string_agg(k.topic, ' ' order by k.year, k.id) from shop.call k where k.order_id = o.id),
    (select string_agg(w.serial || ' ' || w.years || coalesce(' ' || n.body, '') || coalesce(' ' || q.reason, ''), ' ' order by w.id, n.id, q.id)
      from shop.warranty w left join shop.warranty_note n on n.warranty_id = w.id left join shop.warranty_claim q on q.warranty_id = w.id
      where w.order_id = o.id)) as notes,
  (select string_agg(s.carrier || ' ' || s.tracking || coalesce(' ' || v.place, ''), ' ' order by s.id, v.id)
    from shop.shipment s left join shop.shipment_event v on v.shipment_id = s.id where s.order_id = o.id) as shipments,
  (select sum(p.amount) from shop.payment p where p.order_id = o.id) as paid
from shop.orders o join shop.customer c on c.id = o.customer_id
${of}`;
}

/** What an order is made of, and the table in which it is found. */
export function declareOrders(engine: PostgresEngine): { capture: Capture; projection: Projection } {
  const ofCustomer = { column: 'customer_id', to: 'shop.orders.customer_id' };
  const capture = createCapture(engine, {
    entity: 'shop_order',
    root: 'shop.orders',
    // The change itself, its author and its time, in addition to the fact that there was one.
    history: {
      'shop.orders': { rows: 'both', columns: ['id', 'customer_id', 'status'] },
      'shop.payment': { rows: 'after', columns: ['id', 'order_id', 'amount', 'method'] },
    },
    via: {
      'shop.order_line': 'order_id',
      'shop.order_note': 'order_id',
      'shop.payment': 'order_id',
      'shop.shipment': 'order_id',
      'shop.warranty': 'order_id',
      'shop.call': 'order_id',
      'shop.shipment_event': { column: 'shipment_id', to: 'shop.shipment.id' },
      'shop.warranty_note': { column: 'warranty_id', to: 'shop.warranty.id' },
      'shop.warranty_claim': { column: 'warranty_id', to: 'shop.warranty.id' },
      'shop.customer': { column: 'id', to: 'shop.orders.customer_id' },
      'shop.customer_address': ofCustomer,
      'shop.customer_phone': ofCustomer,
      'shop.customer_email': ofCustomer,
      'shop.item': { column: 'sku', to: 'shop.order_line.sku' },
      'shop.item_description': { column: 'sku', to: 'shop.order_line.sku' },
      'shop.brand': sql`select l.order_id from changed c join shop.item i on i.brand_id = c.id join shop.order_line l on l.sku = i.sku`,
    },
  });
  const projection = capture.project({
    into: 'shop.order_search',
    columns: {
      customer: 'text',
      placed_at: 'timestamptz',
      status: 'text',
      contact: 'text',
      items: 'text',
      notes: 'text',
      shipments: 'text',
      paid: 'numeric',
    },
    text: ['customer', 'items', 'notes', 'contact', 'shipments'],
    order: 'placed_at',
    build: orderRows(sql`where o.id = any ($1::bigint[])`),
  });
  return { capture, projection };
}
