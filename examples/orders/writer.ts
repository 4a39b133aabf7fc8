// An application of the business. It changes orders by plain SQL and does not know Pawl.
import pg from 'pg';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { Random } from '../random.ts';

const { DATABASE_URL: url = '', ORDERS = '20000', SEED = '1' } = process.env;
const orders = Number(ORDERS);
const random = new Random(Number(SEED));
const client = new pg.Client({ connectionString: url, application_name: 'orders writer' });
await client.connect();
/** One change may touch a hundred orders, and the machine has other things to do. */
const PAUSE_MS = 40;
let isOver = false;
let next = orders + 1_000_000 * Number(SEED);

const upTo = (n: number): number => 1 + Math.floor(random.next() * n);
const run = (text: string, values: readonly unknown[]): Promise<unknown> => client.query(text, [...values]);

const CHANGES: readonly (() => Promise<unknown>)[] = [
  () => run('update shop.orders set status = $2 where id = $1', [upTo(orders), `step ${upTo(100)}`]),
  () => run('update shop.customer set name = $2 where id = $1', [upTo(orders / 10), `Renamed ${upTo(1e6)}`]),
  () => run('update shop.order_line set order_id = $2 where id = $1', [upTo(orders * 2), upTo(orders)]),
  () => run('update shop.item set title = $2 where sku = $1', [`S${upTo(400)}`, `thing ${upTo(1e6)}`]),
  () => run('insert into shop.warranty_note values ($1, $2, $3)', [++next, upTo(orders), `note ${next}`]),
  () => run('insert into shop.call values ($1, $2, 2026, $3)', [++next, upTo(orders), 'asked again']),
  () => run('delete from shop.orders where id = $1', [upTo(orders)]),
  () => run('update shop.shipment_event set place = $2 where id = $1', [upTo(orders / 3), `town ${upTo(1e6)}`]),
  () => run("update shop.customer_phone set number = number || '0' where id = $1", [upTo(orders / 10)]),
  () => run('update shop.payment set amount = amount + 1 where order_id between $1 and $1 + 20', [upTo(orders)]),
  async () => {
    const id = ++next;
    await client.query('begin');
    await run('insert into shop.orders select $1, $2, now(), $3', [id, upTo(orders / 10), 'new']);
    await run('insert into shop.order_line values ($1, $1, $2, 1)', [id, `S${upTo(400)}`]);
    await client.query(upTo(5) === 1 ? 'rollback' : 'commit');
  },
];

/** The order was deleted meanwhile, or the other application was first: what applications live with. */
async function giveUp(error: unknown): Promise<void> {
  await client.query('rollback');
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code !== '23503' && code !== '40P01') throw error;
}

async function work(): Promise<void> {
  while (!isOver) {
    const change = CHANGES[Math.floor(random.next() * CHANGES.length)];
    await change?.().catch(giveUp);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  await client.end();
}

const working = work();
working.catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});
stopWhenTold(async () => {
  isOver = true;
  await working;
});
tellParent({ ready: true });
