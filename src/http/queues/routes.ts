import { NotFound } from '../../base/errors.ts';
import { type JobRecord, namePart, type PartOptions, type QueueRecord, type Reason } from '../../queue/index.ts';
import { choice, flag, integer, maybe, text } from '../protocol/field.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { type Hidden, quotingError } from '../redaction/hidden.ts';
import { diagnose } from './diagnosis.ts';
import { listQueues, QUEUE_ORDERS } from './list.ts';
import { seriesRoute } from './series.ts';

const queue = { queue: text({ max: 100, about: 'the name of a queue' }) };

/** Queues: their list, their state, and why a queue does not move. */
export const queueRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/queues',
    id: 'listQueues',
    tag: 'queues',
    summary:
      'Queues, with how many jobs are where, sorted and searched by name. Counts stop at 10,000, which means that many or more.',
    permission: 'view',
    query: {
      q: maybe(text({ max: 100, about: 'a part of the name' })),
      sort: choice(QUEUE_ORDERS, 'what comes first', 'name'),
      order: maybe(choice(['asc', 'desc'], 'default: names rising, figures falling')),
      limit: integer({ min: 1, max: 1000, default: 1000 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'QueueList',
    sharedMs: 1000,
    run: ({ query, services }) => listQueues(services, query),
  }),
  route({
    method: 'GET',
    path: '/queues/{queue}',
    id: 'getQueue',
    tag: 'queues',
    summary: 'One queue, with how many jobs are where.',
    permission: 'view',
    params: queue,
    answers: 'Queue',
    sharedMs: 1000,
    run: async ({ params, services }) => {
      const stats = await services.queues.reads.stats(params.queue);
      const record = find(await services.records([params.queue]), params.queue);
      return { ...record, pausedAt: stats.pausedAt, stats };
    },
  }),
  route({
    method: 'GET',
    path: '/queues/{queue}/diagnosis',
    id: 'diagnoseQueue',
    tag: 'queues',
    summary: 'Why a queue is not moving, or that it is.',
    permission: 'view',
    params: queue,
    answers: 'Diagnosis',
    sharedMs: 1000,
    run: async ({ params, services: { queues } }) => {
      const [stats, waiting] = await Promise.all([
        queues.reads.stats(params.queue),
        queues.reads.search('status:new', { queue: params.queue, limit: 1, budget: WAITING_MS }),
      ]);
      const [one] = waiting.jobs;
      const explained = one === undefined ? undefined : await queues.reads.explain(one.id);
      const why = explained?.reasons[0];
      return { queue: params.queue, ...diagnose(stats, one && why && newestOf(one, why)) };
    },
  }),
  route({
    method: 'DELETE',
    path: '/queues/{queue}',
    id: 'removeQueue',
    tag: 'queues',
    summary:
      'Removes a queue that no program uses any more, with its jobs, history, schedules, subscriptions and batches, and answers how many of each there were. 409 while a worker lives, a job waits or runs, or a batch is open, unless force is true: that cancels them. If the answer is lost, ask again: it goes on, and is 404 when it was done.',
    permission: 'queue:remove',
    params: queue,
    query: { force: flag('cancel what waits, and take what runs away from its workers') },
    answers: 'QueueRemoved',
    target: ({ params, query }) => `queue ${params.queue}${query.force ? ', by force' : ''}`,
    run: async ({ params, query: { force }, request, services, effects: { queues } }) => {
      const removed = await queues.remove(params.queue, { force, signal: request.signal });
      services.expire();
      return removed;
    },
  }),
  seriesRoute('/queues/{queue}/series', queue),
  ...(['pause', 'resume'] as const).map((verb) =>
    route({
      method: 'POST',
      path: `/queues/{queue}/${verb}`,
      id: `${verb}Queue`,
      tag: 'queues',
      summary:
        verb === 'pause'
          ? 'Lets no worker claim any more, in any process; what runs is finished. With a kind, a key or a tag: only jobs that have all of these.'
          : 'Ends a pause; workers look for work at once. A part is resumed by the words with which it was paused.',
      permission: 'queue:pause',
      params: queue,
      body: {
        kind: maybe(text({ max: 100, about: 'only jobs of this kind' })),
        key: maybe(text({ max: 1000, about: 'only jobs of this key' })),
        tag: maybe(text({ max: 100, about: 'only jobs with this tag' })),
      },
      answers: 'Done',
      target: ({ params, body }) => `${[...partWords(body), ''].join(' of ')}queue ${params.queue}`,
      run: async ({ params, body, effects: { queues } }) => {
        const part = partWords(body);
        await queues[verb](params.queue, part.length === 0 ? undefined : body);
        return { done: `${[...part, ''].join(' of ')}queue "${params.queue}" is ${verb}d` };
      },
    }),
  ),
];

/** The part of a queue in words; undefined for the whole queue. */
function partWords({ kind, key, tag }: PartOptions): string[] {
  const part = { kind: kind ?? null, key: key ?? null, tag: tag ?? null };
  return [namePart(part)].filter((words) => words !== '');
}

/** Any waiting job is good enough as an example. */
const WAITING_MS = 30;

function newestOf(job: JobRecord, { code, text: why }: Reason): Hidden | string {
  const text = `its newest waiting job, ${job.id}: ${why}`;
  return code === 'backing_off' ? quotingError(text, job) : text;
}

function find(records: readonly QueueRecord[], name: string): QueueRecord {
  const record = records.find((one) => one.name === name);
  if (record === undefined) throw new NotFound(`queue "${name}" does not exist`);
  return record;
}
