import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';

// Says that its job runs, and never ends it.

const [, , url = '', name = '', hold = 'lease'] = process.argv;
const queue = createQueue(postgres(url), name, { kinds: { job: {} } });
queue.work(
  {
    job: () => {
      process.stdout.write('{"running":true}\n');
      return new Promise(() => {});
    },
  },
  { hold: hold === 'lease' ? 'lease' : 'transaction', lease: '1s', concurrency: 2 },
);
