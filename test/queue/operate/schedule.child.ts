// A worker process of the queue that the test declares; says so, then does nothing but look after its schedules.
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';

const engine = postgres(process.env['URL'] ?? '');
const queue = createQueue(engine, 'two processes', { kinds: { tick: {} } });
const worker = queue.work({ tick: () => {} });
await worker.started;
console.log(JSON.stringify({ ready: true }));
