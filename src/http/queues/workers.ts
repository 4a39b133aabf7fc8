import { id } from '../protocol/field.ts';
import { type AnyRoute, route } from '../protocol/route.ts';

/** Operations on one worker of a queue. */
export const workerRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/workers/{worker}/release',
    id: 'releaseWorker',
    tag: 'workers',
    summary:
      'Gives back the jobs of a worker of a queue that is dead, without waiting for the end of its lease; they are charged like those of any lost worker. A worker that lives anyway learns it, and none of its later settlements is written.',
    permission: 'worker:release',
    params: { worker: id('the id of a worker of a queue') },
    answers: 'WorkerReleased',
    target: ({ params }) => `worker ${params.worker}`,
    run: async ({ params, effects: { queues } }) => ({
      id: params.worker,
      ...(await queues.releaseWorker(params.worker)),
    }),
  }),
];
