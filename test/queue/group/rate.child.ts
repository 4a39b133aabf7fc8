// A worker process of the queue "rated": each run takes a while.
import { setTimeout as sleep } from 'node:timers/promises';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';

const { URL: url = '', HOLD } = process.env;
const engine = postgres(url, { max: 8 });
const rate = { perGroup: { limit: 10, per: '1s' } } as const;
const queue = createQueue(engine, 'rated', { kinds: { send: {} }, rate });
const send = async (): Promise<void> => {
  console.log(JSON.stringify({ runs: true }));
  await sleep(60);
};
const worker = queue.work(
  { send },
  { hold: HOLD === 'transaction' ? 'transaction' : 'lease', lease: '1s', poll: '200ms', concurrency: 4 },
);
worker.events.on('error', () => {});
await worker.started;
console.log(JSON.stringify({ ready: true }));
