import { stopWhenTold, tellParent } from '../child-process.ts';
import { handlersOf, type Written } from './handlers.ts';
import { openStore } from './open-store.ts';
import { readBackEnd } from './settings.ts';
import { makeFolder } from './workbook.ts';

// node dist-examples/spreadsheets/back-end.js, as often as you like
const { place, folder, concurrency, leaseMs, pauseMs } = readBackEnd();
// On Postgres each unit holds a connection for as long as its handler runs; the rest are for everything else.
const store = await openStore(place, 'spreadsheets back end', concurrency + 6);
await makeFolder(folder);

const worker = store.work(handlersOf({ store, folder, pauseMs, onWritten }), { concurrency, leaseMs });
worker.events.on('failed', ({ unit, to, error }) => {
  console.error(`back end ${process.pid}: ${unit.kind} of ${unit.key} failed (now: ${to}): ${error}`);
});
stopWhenTold(async () => {
  await worker.stop();
  await store.stop();
});

await worker.started;
console.log(`back end ${process.pid} waits for work`);
tellParent({ ready: true });

function onWritten({ id, version, rows, requests, tookMs }: Written): void {
  const of = requests === 1 ? '1 request' : `${requests} requests at once`;
  console.log(`back end ${process.pid} wrote ${id} v${version}: ${rows} rows, ${of}, ${Math.round(tookMs)} ms`);
  tellParent({ written: { id, version, rows, requests, tookMs } });
}
