// Changes of the tables by an administrator during the schedule, followed by apply().
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Change, ChangeName } from './plan.ts';

/** The transactions of a change, one after another. */
function statements(what: ChangeName, n: number): string[] {
  const own = `order_line_x${n}`;
  const some = `insert into ${own} (order_id, product_id, warehouse, qty) select o.id, 1 + o.id % 15, ${n + 10}, 1 from orders o where o.id % 5 = 0`;
  const partition = `create table ${own} partition of order_line for values in (${n + 10})`;
  switch (what) {
    case 'add a column':
      return [`alter table product add column c${n} int default 1`];
    case 'drop a column':
      return [`alter table customer add column d${n} text`, `alter table customer drop column d${n}`];
    case 'rename a column':
      return [`alter table employee add column e${n} text`, `alter table employee rename column e${n} to f${n}`];
    case 'add a partition':
      return [partition, `insert into order_line select id, 2, ${n + 10} from orders where id % 7 = 0`];
    case 'attach a partition':
      return [
        `create table ${own} (like order_line including all); ${some}; alter table order_line attach partition ${own} for values in (${n + 10})`,
      ];
    case 'detach a partition':
      return [`${partition}; ${some}`, `alter table order_line detach partition ${own}`];
    case 'drop a partition':
      return [`${partition}; ${some}`, `drop table ${own}`];
    case 'truncate a partition':
      return [`${partition}; ${some}`, `truncate ${own}`];
    case 'write unseen':
      return [
        'alter table order_line disable trigger user',
        `update order_line set qty = qty + 100 where order_id % 4 = ${n % 4}`,
        'alter table order_line enable trigger user',
      ];
  }
}

/** Executes the changes at their times, and calls `mend` after each. Statements that fail because of a fault are left out. */
export async function change(eye: pg.Pool, changes: readonly Change[], mend: () => Promise<unknown>): Promise<void> {
  const since = performance.now();
  for (const [n, { at, what }] of changes.entries()) {
    await sleep(Math.max(0, at - (performance.now() - since)));
    for (const statement of statements(what, n)) {
      await eye.query(`set local lock_timeout = '2s'; ${statement}`).catch(() => {});
    }
    await mend().catch(() => {});
  }
}
