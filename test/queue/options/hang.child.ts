import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';

// Says that its job runs, and never ends it.

const [, , url = '', name = '', hold = 'lease'] = process.argv;
// A worker that does not know the kind of the dead letters would declare the queue without it.
const kinds = { job: { onError: 'late' }, late: {} };
const queue = createQueue(postgres(url), name, { kinds });
queue.work(
  {
    job: () => {
      process.stdout.write('{"running":true}\n');
      return new Promise(() => {});
    },
    late: () => undefined,
  },
  { hold: hold === 'lease' ? 'lease' : 'transaction', lease: '1s', concurrency: 2 },
);
