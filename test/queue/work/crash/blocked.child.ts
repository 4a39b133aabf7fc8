// A worker of the queue "blocked" whose handler blocks the event loop for ever.
import { postgres } from '../../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../../src/queue/index.ts';

const { URL: url = '', HOLD } = process.env;
const engine = postgres(url, { max: 8, logger: { debug() {}, info() {}, warn() {}, error() {} } });
const queue = createQueue(engine, 'blocked', { kinds: { loop: { attempts: 2 } } });
const loop = (): void => {
  for (;;);
};
const hold = HOLD === 'transaction' ? 'transaction' : 'lease';
await queue.work({ loop }, { lease: '1s', concurrency: 2, hold, onBlocked: 'exit' }).started;
