import { expect, onTestFinished, test } from 'vitest';
import { Random } from '../../examples/random.ts';
import { LONG } from '../support/long.ts';
import { openScene, type Scene } from './scene.ts';

/** One random statement of an application, on any table and of any kind that writes. */
function statementOf(random: Random): string {
  const order = (): number => random.whole(1, 110);
  const id = (): number => random.whole(1, 320);
  const word = (): string => `'w${random.whole(1, 1000)}'`;
  const all = [
    () => `update orders set status = ${word()} where id = ${order()}`,
    () => `update orders set customer_id = ${random.whole(1, 20)} where id between ${order()} and ${order()}`,
    () =>
      `insert into orders (id, customer_id) values (${order()}, ${random.whole(1, 20)}) on conflict (id) do update set status = ${word()}`,
    () => `delete from orders where id = ${order()}`,
    () => `update customer set name = ${word()} where id = ${random.whole(1, 20)}`,
    () => `update item set title = ${word()} where sku = 's${random.whole(1, 20)}'`,
    () =>
      `update order_line set order_id = o.id from (select id from orders order by id offset ${random.whole(0, 60)} limit 1) o where order_line.id = ${id()}`,
    () =>
      `insert into order_line (id, order_id, sku) select ${id()}, min(id), 's1' from orders where id >= ${order()} on conflict (id) do update set qty = order_line.qty + 1`,
    () => `update order_line set order_id = null where id = ${id()}`,
    () => `delete from order_line where id between ${id()} and ${id()} and qty > 1`,
    () =>
      `insert into note values (${id()}, ${order()}, ${random.whole(2025, 2026)}, ${word()}) on conflict do nothing`,
    () => `update note set year = 4051 - year, id = id + 1000 * ${random.whole(1, 99)} where id = ${id()}`,
    () => `update note_2025 set body = ${word()} where order_id = ${order()}`,
    () =>
      `with gone as (delete from note where id = ${id()} returning *) update orders set status = ${word()} where id = ${order()}`,
    () =>
      random.whole(1, 10) === 1 ? 'truncate note_2026' : `update note set order_id = ${order()} where id = ${id()}`,
  ];
  return random.pick(all)?.() ?? '';
}

/** Several applications at once, each with transactions of several statements, savepoints and rollbacks. */
async function workload(scene: Scene, seed: number, transactions: number): Promise<void> {
  await Promise.all(
    [1, 2, 3].map(async (nth) => {
      const random = new Random(seed * 10 + nth);
      const client = await scene.connect();
      for (let n = 0; n < transactions; n += 1) {
        await client.query('begin');
        for (let step = random.whole(1, 3); step > 0; step -= 1) {
          await client.query('savepoint s');
          // A constraint refuses some statements, and some lose a deadlock, as in any application.
          const isDone = await client.query(statementOf(random)).then(
            () => random.whole(1, 5) > 1,
            () => false,
          );
          await client.query(isDone ? 'release s' : 'rollback to s');
        }
        await client.query(random.whole(1, 6) === 1 ? 'rollback' : 'commit');
      }
    }),
  );
}

const SEEDS = LONG ? Array.from({ length: 40 }, (_, seed) => seed + 1) : [1, 2];
const TRANSACTIONS = LONG ? 400 : 60;

// Invariant C14.
test.each(SEEDS)(
  'whatever applications do at once, in the end every row matches the tables (seed %i)',
  async (seed) => {
    const scene = await openScene();
    const { capture, projection, diff } = scene;
    await capture.apply();
    const workers = [
      projection.run({ poll: '20ms', batch: 7 }),
      projection.run({ poll: '20ms', batch: 50, concurrency: 2 }),
    ];
    onTestFinished(() => Promise.all(workers.map((worker) => worker.stop())).then(() => {}));
    const filling = projection.backfill({ batch: 20 });
    await workload(scene, seed, TRANSACTIONS);
    await filling;
    await projection.settled();
    expect(await diff()).toBe(0);
    expect(await projection.reconcile({ repair: false })).toMatchObject({ drifted: 0 });
  },
);

test('this comparison finds a capture that misses changes', async () => {
  const scene = await openScene();
  const { capture, projection, client, diff } = scene;
  await capture.apply();
  await projection.backfill();
  await client.query(
    'alter table customer disable trigger pawl_capture_order_update; alter table order_line disable trigger pawl_capture_order_move',
  );
  const worker = projection.run({ poll: '20ms' });
  onTestFinished(() => worker.stop());
  await workload(scene, 1, 40);
  await projection.settled();
  // A truncate in the workload makes every row anew, and so repairs changes that were missed before it. This change comes
  // after it.
  await client.query("update customer set name = 'missed'");
  await projection.settled();
  await worker.stop();
  expect(await diff()).toBeGreaterThan(0);
  expect((await projection.reconcile({ repair: false })).drifted).toBe(await diff());
});
