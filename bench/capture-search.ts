import type pg from 'pg';
import type { Context } from './harness/context.ts';
import { type Figure, figure, median, percentile } from './harness/figures.ts';
import { moreOrders, ROWS, withOrders } from './harness/orders.ts';
import type { BenchCapture, BenchProjection } from './harness/pawl-capture.ts';

/** Workers project the orders up to this number. This measures how many entities a second they project. */
const BY_WORKERS = 100_000;

/**
 * How long searches take in tables of these sizes. Workers project the first 100,000 orders. One statement adds the rest and the
 * indexes are made afterwards, because only searches are measured then.
 */
export async function searching(
  context: Context,
  sizes: readonly number[],
): Promise<{ figures: Record<string, Figure>; projection: number; narrow: number; wide: number }> {
  const figures: Record<string, Figure> = {};
  const rates: number[] = [];
  let [narrow, wide] = [Number.NaN, Number.NaN];
  await withOrders(context, async ({ client, projection, captured }) => {
    let have = 20_000;
    await projection.backfill({ batch: 2000, again: true });
    for (const size of sizes) {
      for (; have < Math.min(size, BY_WORKERS); have = Math.min(have + 40_000, size)) {
        const next = Math.min(have + 40_000, size);
        await client.query(moreOrders(have + 1, next));
        rates.push(((next - have) * 1000) / (await work(projection)));
        context.say(`projection: ${next} orders, ${Math.round(rates.at(-1) ?? 0)} entities/s`);
      }
      if (have < size) await fill(context, client, captured, { from: have + 1, to: size });
      have = size;
      await client.query('vacuum analyze order_search');
      narrow = percentile(await measure(projection, 60, (i) => `${NAMES[i % 10]} ${(i * 17) % 5000}`), 95);
      wide = percentile(await measure(projection, 60, (i) => (i % 2 === 0 ? 'warranty' : (NAMES[i % 10] ?? ''))), 95);
      figures[`search_narrow/${size}`] = figure('ms', [narrow]);
      figures[`search_wide/${size}`] = figure('ms', [wide]);
      context.say(`search in ${size}: narrow p95 ${narrow.toFixed(1)} ms, wide p95 ${wide.toFixed(1)} ms`);
    }
    if (rates.length === 0) rates.push(await again(client, projection));
  });
  const [small, large] = [sizes[0] ?? 0, sizes.at(-1) ?? 0];
  if (large > small) {
    for (const kind of ['search_narrow', 'search_wide']) {
      const growth = (figures[`${kind}/${large}`]?.median ?? 0) / (figures[`${kind}/${small}`]?.median ?? 1);
      figures[`${kind}_growth`] = figure('times', [growth]);
    }
  }
  figures['projection'] = figure('entities/s', rates);
  return { figures, projection: median(rates), narrow, wide };
}

const NAMES = ['smith', 'jones', 'garcia', 'chen', 'patel', 'muller', 'rossi', 'silva', 'kim', 'novak'];

/** Runs workers until everything is projected. @returns milliseconds */
async function work(projection: BenchProjection): Promise<number> {
  const since = performance.now();
  const workers = [projection.run(), projection.run()];
  await projection.settled();
  const took = performance.now() - since;
  await Promise.all(workers.map((worker) => worker.stop()));
  return took;
}

/** Adds orders without triggers and without the indexes of the target, and then makes both again. */
async function fill(
  { say }: Context,
  client: pg.Client,
  captured: BenchCapture,
  { from, to }: { from: number; to: number },
): Promise<void> {
  const since = performance.now();
  await captured.detach();
  const { rows } = await client.query<{ name: string; text: string }>(
    `select i.indexrelid::regclass::text as name, pg_get_indexdef(i.indexrelid) as text
    from pg_index i where i.indrelid = 'order_search'::regclass and not i.indisprimary`,
  );
  for (const { name } of rows) await client.query(`drop index ${name}`);
  await client.query(`${moreOrders(from, to)}; analyze orders; analyze order_item`);
  await client.query("set work_mem = '256MB'; set maintenance_work_mem = '512MB'");
  await client.query(`insert into order_search (id, customer, placed_at, note, items) ${ROWS(`o.id >= ${from}`)}`);
  say(`filled with ${to - from + 1} orders in ${((performance.now() - since) / 1000).toFixed(0)} s`);
  for (const { text } of rows) await client.query(text);
  await captured.apply();
  say(`with its indexes in ${((performance.now() - since) / 1000).toFixed(0)} s`);
}

/** Changes all orders, which the workers then project. @returns entities a second */
async function again(client: pg.Client, projection: BenchProjection): Promise<number> {
  await client.query("update orders set note = note || ' again'");
  return (20_000 * 1000) / (await work(projection));
}

async function measure(projection: BenchProjection, count: number, query: (i: number) => string): Promise<number[]> {
  const took: number[] = [];
  let found = 0;
  for (let i = 0; i < count; i++) {
    const since = performance.now();
    const { rows } = await projection.search(query(i), { limit: 20 });
    took.push(performance.now() - since);
    found += rows.length;
  }
  if (found === 0) throw new Error(`nothing was found for ${query(0)} and others`);
  return took.slice(Math.floor(count / 10));
}
