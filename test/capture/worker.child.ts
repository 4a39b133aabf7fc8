// A process that projects orders.
import { createCapture } from '../../src/capture/index.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { build, TARGET, VIA } from './scene.ts';

const engine = postgres(process.argv[2] ?? '', { applicationName: 'capture child' });
const capture = createCapture(engine, { entity: 'order', root: 'orders', via: VIA });
const projection = capture.project({ ...TARGET, build });
const worker = projection.run({ poll: '50ms', timeout: process.env['TIMEOUT'] ?? '30s' });
await worker.started;
console.log(JSON.stringify({ started: true }));
