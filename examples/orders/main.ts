// A search prompt over the orders: `node dist-examples/orders/main.js [postgres://…]`. Without a URL it starts a database,
// and fills it first.
import { createInterface } from 'node:readline/promises';
import { postgres, statement } from 'pawl/postgres';
import { declareOrders } from './orders.ts';
import { SCHEMA, seedText } from './schema.ts';

const engine = postgres(process.argv[2] ?? process.env['DATABASE_URL'], { applicationName: 'orders search' });
await engine.migrate();
const { capture, projection } = declareOrders(engine);
const [there] = await engine.query<{ yes: boolean }>(
  statement('orders.there', "select to_regclass('shop.orders') is not null as yes"),
);
if (there?.yes !== true) {
  console.log('making 20,000 orders…');
  await engine.session((session) => session.run(`${SCHEMA}; ${seedText(20_000)}`));
}
await capture.apply();
const worker = projection.run();
await projection.backfill({ onProgress: ({ done, total }) => process.stdout.write(`\r${done} of about ${total}  `) });
const prompt = createInterface({ input: process.stdin, output: process.stdout });
console.log('\nwords, "phrases", beginnings*, -not; an empty line ends');
for (;;) {
  const query = (await prompt.question('search: ')).trim();
  if (query === '') break;
  const since = performance.now();
  try {
    const { rows, matches, capped } = await projection.search(query, { limit: 5 });
    const took = Math.round(performance.now() - since);
    console.log(`${capped ? `the best of the newest 500 of ${matches} or more` : `${matches} found`} in ${took} ms`);
    for (const { row, snippet } of rows)
      console.log(`  ${String(row['id'])}  ${snippet.replaceAll(/<\/?mark>/g, '*')}`);
  } catch (error) {
    console.log(error instanceof Error ? error.message : error);
  }
}
prompt.close();
await worker.stop();
await engine.stop();
