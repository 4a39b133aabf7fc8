// A worker whose process dies as soon as it runs the job with the payload "kill".
import { postgres } from '../../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../../src/queue/index.ts';

const [, , url = '', attempts = ''] = process.argv;
const queue = createQueue(postgres(url), 'chain', { kinds: { work: { attempts: Number(attempts) } } });
queue.work({
  work: ({ payload }) => {
    if (payload === 'kill') process.kill(process.pid, 'SIGKILL');
  },
});
