import { Draw } from '../../support/random.ts';
import { drawFaults, type FaultName, type Weights } from '../fault.ts';
import type { Plan } from '../plan.ts';
import { CUSTOMERS, EMPLOYEES, ORDERS, PRODUCTS } from './schema.ts';

/** A transaction of a writer. */
export interface Work {
  readonly restMs: number;
  readonly statements: readonly string[];
  readonly end: 'commit' | 'rollback';
}

/** The captured server at the end: the same one, the same after a crash without its last commits, its standby, or the target of a dump. */
export type Turn = 'none' | 'crash' | 'failover' | 'dump';

export interface Change {
  readonly at: number;
  readonly what: ChangeName;
}

export const CHANGES = [
  'add a column',
  'drop a column',
  'rename a column',
  'add a partition',
  'attach a partition',
  'detach a partition',
  'drop a partition',
  'truncate a partition',
  'write unseen',
] as const;
export type ChangeName = (typeof CHANGES)[number];

export interface CapturePlan extends Plan {
  readonly turn: Turn;
  /** When the standby stops following, or the dump is made. */
  readonly turnAt: number;
  readonly workers: number;
  readonly batch: number;
  readonly concurrency: number;
  /** After this time a suspended worker loses its claims. */
  readonly timeoutMs: number;
  /** The transactions of each writer, before the turn and after it. */
  readonly before: readonly (readonly Work[])[];
  readonly after: readonly (readonly Work[])[];
  readonly changes: readonly Change[];
}

const WEIGHTS: Weights = {
  kill: 5,
  deploy: 1,
  stop: 2,
  terminate: 2,
  reset: 2,
  refuse: 1,
  silence: 1,
  deafen: 1,
  freeze: 1,
  lose: 2,
};
const WITHIN_MS = 2500;
const WRITERS = 2;

export function planCapture(seed: number): CapturePlan {
  const draw = new Draw(seed, 'shape');
  const turn = draw.weighted<Turn>({ none: 4, crash: 2, failover: 2, dump: 2 });
  const workers = draw.int(1, 2);
  const faults = drawFaults(new Draw(seed, 'faults'), {
    n: draw.int(2, 7),
    members: workers + WRITERS,
    withinMs: WITHIN_MS,
    leaseMs: 1000,
    weights: turn === 'none' && draw.chance(0.3) ? { ...WEIGHTS, restart: 4 } : WEIGHTS,
  });
  const hasOwnServer = turn !== 'none' || faults.some((fault) => fault.do === ('restart' satisfies FaultName));
  const works = (what: string, n: number): Work[][] =>
    Array.from({ length: WRITERS }, (_, writer) => drawWorks(new Draw(seed, `${what} ${writer}`), writer, n));
  return {
    seed,
    title: `${workers} workers, then ${turn}`,
    faults,
    hasOwnServer,
    turn,
    turnAt: draw.int(300, 1800),
    workers,
    batch: draw.pick(1, 3, 10, 200),
    concurrency: draw.int(1, 3),
    timeoutMs: 3000,
    before: works('before', draw.int(40, 90)),
    after: turn === 'none' ? [] : works('after', draw.int(10, 25)),
    // A restored dump has the schema of the start, so there are no changes.
    changes: turn === 'dump' ? [] : drawChanges(new Draw(seed, 'changes')),
  };
}

function drawChanges(draw: Draw): Change[] {
  const [first, ...others] = CHANGES;
  return Array.from({ length: draw.int(0, 4) }, () => ({
    at: draw.int(100, WITHIN_MS),
    what: draw.pick(first, ...others),
  })).toSorted((a, b) => a.at - b.at);
}

export function drawWorks(draw: Draw, writer: number, n: number): Work[] {
  return Array.from({ length: n }, (_, at): Work => {
    const statements: string[] = [];
    for (let left = draw.pick(1, 1, 1, 2, 4); left > 0; left -= 1)
      statements.push(...drawStatement(draw, writer, at * 10 + left));
    if (draw.chance(0.15))
      statements.push('savepoint s', ...drawStatement(draw, writer, at * 10 + 9), 'rollback to savepoint s');
    return { restMs: draw.int(0, 50), statements, end: draw.chance(0.1) ? 'rollback' : 'commit' };
  });
}

const WHAT = {
  status: 6,
  order: 3,
  'no order': 2,
  line: 4,
  'no line': 2,
  move: 3,
  customer: 3,
  segment: 2,
  employee: 2,
  product: 2,
  bulk: 1,
  truncate: 0.2,
};

/** Each writer has its own numbers for new orders. */
function drawStatement(draw: Draw, writer: number, n: number): string[] {
  const order = draw.int(1, ORDERS);
  const [product, customer, warehouse] = [draw.int(1, PRODUCTS), draw.int(1, CUSTOMERS), draw.int(0, 1)];
  const tag = `w${writer}n${n}`;
  switch (draw.weighted(WHAT)) {
    case 'status':
      return [`update orders set status = '${tag}', freight = freight + 1 where id = ${order}`];
    case 'order':
      return [
        `insert into orders values (${1000 + writer * 100_000 + n}, ${customer}, ${draw.int(1, EMPLOYEES)}, null, '${tag}')
         on conflict (id) do update set status = excluded.status`,
        `insert into order_line values (${1000 + writer * 100_000 + n}, ${product}, ${warehouse}) on conflict do nothing`,
      ];
    case 'no order':
      return [
        draw.chance(0.5)
          ? `delete from orders where id = ${order}`
          : `delete from orders where id > 1000 and id % 7 = ${n % 7}`,
      ];
    case 'line':
      return [
        `insert into order_line select ${order}, ${product}, ${warehouse}, ${n} where exists (select from orders where id = ${order})
         on conflict (warehouse, order_id, product_id) do update set qty = excluded.qty`,
      ];
    case 'no line':
      return [`delete from order_line where order_id = ${order} and product_id % 3 = ${n % 3}`];
    case 'move':
      return [
        draw.pick(
          `update order_line set order_id = ${draw.int(1, ORDERS)} where order_id = ${order} and product_id = ${product}`,
          `update order_line set warehouse = 1 - warehouse where order_id = ${order} and warehouse in (0, 1)`,
          `update orders set customer_id = ${customer}, employee_id = ${draw.int(1, EMPLOYEES)} where id = ${order}`,
          `update product set category_id = ${draw.int(1, 4)} where id = ${product}`,
        ),
      ];
    case 'customer':
      return [`update customer set name = '${tag}' where id = ${customer}`];
    case 'segment':
      return [
        draw.pick(
          `update segment set name = '${tag}' where id = 's${draw.int(1, 4)}'`,
          `delete from customer_segment where customer_id = ${customer}`,
          `insert into customer_segment values (${customer}, 's${draw.int(1, 4)}') on conflict do nothing`,
        ),
      ];
    case 'employee':
      return [
        draw.pick(
          `update employee set name = '${tag}' where id = ${draw.int(1, EMPLOYEES)}`,
          `update employee_territory set employee_id = ${draw.int(1, EMPLOYEES)} where territory_id = ${draw.int(1, 9)}`,
          `update territory set state_id = ${draw.int(1, 6)} where id = ${draw.int(1, 9)}`,
          `update state set region_id = ${draw.int(1, 3)}, code = '${tag}' where id = ${draw.int(1, 6)}`,
          `update region set name = '${tag}' where id = ${draw.int(1, 3)}`,
        ),
      ];
    case 'product':
      return [
        draw.pick(
          `update product set name = '${tag}' where id = ${product}`,
          `update category set name = '${tag}' where id = ${draw.int(1, 4)}`,
          `update supplier set name = '${tag}' where id = ${draw.int(1, 5)}`,
          `update shipper set name = '${tag}' where id = ${draw.int(1, 3)}`,
        ),
      ];
    case 'bulk':
      return [
        `update orders set freight = freight + 1 where id % 5 = ${n % 5}`,
        `update order_line set qty = qty + 1 where product_id = ${product}`,
      ];
    case 'truncate':
      return ['truncate customer_segment'];
  }
}
