import { postgres } from 'pawl/postgres';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { create, type Desk, update, type Written } from './handlers.ts';
import { sheetQueue } from './queue.ts';
import { readBackEnd } from './settings.ts';
import { createTables } from './postgres/table.ts';
import { makeFolder } from './workbook.ts';

// node dist-examples/spreadsheets/back-end.js, as often as you like
const { databaseUrl, folder, concurrency, pauseMs } = readBackEnd();
// Each unit holds a connection for as long as its handler runs; the rest are for everything else.
const engine = postgres(databaseUrl, { applicationName: 'spreadsheets back end', max: concurrency + 6 });
await engine.migrate();
await createTables(engine);
await makeFolder(folder);

const desk: Desk = { engine, folder, pauseMs, onWritten };
const worker = sheetQueue(engine).work(
  { create: (unit) => create(desk, unit), update: (unit) => update(desk, unit) },
  { hold: 'transaction', concurrency },
);
worker.events.on('failed', ({ unit, to, error }) => {
  console.error(`back end ${process.pid}: ${unit.kind} of ${unit.key} failed (now: ${to}): ${error}`);
});
stopWhenTold(async () => {
  await worker.stop();
  await engine.stop();
});

await worker.started;
console.log(`back end ${process.pid} waits for work`);
tellParent({ ready: true });

function onWritten({ id, version, rows, requests, tookMs }: Written): void {
  const of = requests === 1 ? '1 request' : `${requests} requests at once`;
  console.log(`back end ${process.pid} wrote ${id} v${version}: ${rows} rows, ${of}, ${Math.round(tookMs)} ms`);
  tellParent({ written: { id, version, rows, requests, tookMs } });
}
