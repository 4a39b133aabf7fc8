// Sweeps, and moves strangers to quarantine, repeatedly until it must stop.
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createFiles } from '../../../src/files/index.ts';
import { note, plant, ready, url } from '../member/member-side.ts';
import type { SweeperEvent } from './history.ts';
import { limitsOf, openStore } from './member-store.ts';
import { plantInMember } from './plants.ts';

const { LIMIT = '2000', RETAIN = '1000' } = process.env;
/** Longer than a pass over a store that answers nothing: after five failures in a row, calls fail at once. */
const HUNG_MS = 8 * Number(LIMIT);

const engine = postgres(url, { max: 3 });
const content = await openStore(process.env);
note<SweeperEvent>({ do: 'born' });
if (plant !== undefined) plantInMember(plant, content);
const limits = limitsOf(Number(LIMIT));
const files = createFiles(engine, {
  content,
  limits,
  pending: 2 * limits.total,
  retain: Number(RETAIN),
  tombstone: '1m',
});

let isOver = false;
const over = new AbortController();

async function pass(n: number): Promise<void> {
  const hung = setTimeout(() => {
    note<SweeperEvent>({ do: 'hung' });
    process.kill(process.pid, 'SIGKILL');
  }, HUNG_MS);
  try {
    await files.sweep({ signal: over.signal });
    note<SweeperEvent>({ do: 'swept' });
    if (n % 4 !== 3) return;
    const { quarantined } = await files.reconcile({ dryRun: false, signal: over.signal });
    if (quarantined.length > 0) note<SweeperEvent>({ do: 'quarantined', names: quarantined });
  } catch (error) {
    const code = String(Reflect.get(Object(error), 'code') ?? Object(error).constructor?.name);
    note<SweeperEvent>({ do: 'failed', code, message: String(error) });
  } finally {
    clearTimeout(hung);
  }
}

const sweeping = (async () => {
  for (let n = 0; !isOver; n += 1) {
    await pass(n);
    await sleep(100);
  }
})();
ready(async () => {
  isOver = true;
  over.abort(new Error('it was told to stop'));
  await sweeping;
  await files.stop();
  await engine.stop();
});
