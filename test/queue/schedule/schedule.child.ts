// A worker process of the test's queue; prints that it is ready, then only runs the schedules.
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';

const engine = postgres(process.env['URL'] ?? '');
const queue = createQueue(engine, 'two processes', { kinds: { tick: {} } });
const worker = queue.work({ tick: () => {} });
await worker.started;
console.log(JSON.stringify({ ready: true }));
