// A worker: goes through the documents again and again, from hot copies on its host, and looks whether each is whole.
import { setTimeout as sleep } from 'node:timers/promises';
import { NotFound } from 'pawl';
import { postgres } from 'pawl/postgres';
import { stopWhenTold, tellParent } from '../child-process.ts';
import { readLog, unpack } from './pack.ts';
import { openDocuments } from './store.ts';

const { DATABASE_URL = '', DOCUMENTS_DIR = '', DOCUMENTS_HOT = '' } = process.env;
const engine = postgres(DATABASE_URL, { max: 3, applicationName: 'documents worker' });
const files = openDocuments(engine, DOCUMENTS_DIR);
const hot = files.hot({ dir: DOCUMENTS_HOT, maxBytes: 64 * 1024 * 1024 });
const collecting = files.collect({ every: '1s' });

async function look(id: string): Promise<void> {
  const { stream, version } = await hot.open(id);
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  const lines = readLog(unpack(Buffer.concat(chunks)));
  // Every push adds one line and makes one version.
  tellParent({ read: id, isRight: lines.length === version.version });
}

let isStopping = false;
async function work(): Promise<void> {
  while (!isStopping) {
    const start = performance.now();
    for (const { id } of await files.list()) {
      await look(id).catch((error: unknown) => {
        if (error instanceof NotFound) return;
        // A reader that was too slow, or a store that is busy: the next round looks again.
        tellParent({ failed: error instanceof Error ? `${error.name}: ${error.message}` : String(error) });
      });
    }
    // Half of the time is others'.
    await sleep(20 + performance.now() - start);
  }
}

tellParent({ ready: true });
const working = work();
stopWhenTold(async () => {
  isStopping = true;
  await working;
  await collecting.stop();
  await files.stop();
  await engine.stop();
});
