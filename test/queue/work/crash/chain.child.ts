// A worker whose process dies as soon as it runs the job with the payload "kill".
import { postgres } from '../../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../../src/queue/index.ts';

const [, , url = '', attempts = '', hold = 'lease'] = process.argv;
const queue = createQueue(postgres(url), 'chain', { kinds: { work: { attempts: Number(attempts) } } });
const work = ({ payload }: { payload: unknown }): void => {
  if (payload === 'kill') process.kill(process.pid, 'SIGKILL');
};
if (hold === 'transaction') queue.work({ work }, { hold, lease: '1s', concurrency: 1 });
else queue.work({ work });
