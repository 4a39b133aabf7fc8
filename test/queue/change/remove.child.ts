import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueueAdmin } from '../../../src/queue/index.ts';

// A process that removes or moves what a queue has, and is killed where PAWL_FAULT says.
const [url = '', queue = '', to] = process.argv.slice(2);
const engine = postgres(url);
const admin = createQueueAdmin(engine);
if (to === undefined) await admin.remove(queue, { force: true });
else await admin.move(queue, 'status:new', to);
await engine.stop();
