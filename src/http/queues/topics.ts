import { check, jobFields, requestOf } from '../jobs/enqueue.ts';
import { text } from '../protocol/field.ts';
import { onceOf } from '../protocol/idempotency.ts';
import { type AnyRoute, route } from '../protocol/route.ts';

const { kind: _kind, ...fields } = jobFields;

/** Topics: each published payload becomes a job in each subscribed queue. Programs subscribe their own queues. */
export const topicRoutes: readonly AnyRoute[] = [
  route({
    method: 'GET',
    path: '/topics',
    id: 'listTopics',
    tag: 'queues',
    summary: 'The topics to which a queue is subscribed, or was once, with their subscriptions.',
    permission: 'view',
    answers: 'TopicList',
    sharedMs: 1000,
    run: async ({ services: { queues } }) => ({ items: await queues.reads.topics() }),
  }),
  route({
    method: 'POST',
    path: '/topics/{topic}/jobs',
    id: 'publish',
    tag: 'queues',
    summary:
      'Adds a job to each queue that is subscribed, all or none; none where no queue is. Asked again with the same Idempotency-Key within a day, it answers the jobs of the first time, and adds nothing.',
    permission: 'job:enqueue',
    params: { topic: text({ max: 100, about: 'the name of a topic' }) },
    body: fields,
    takesKey: true,
    status: 201,
    answers: 'Published',
    target: ({ params }) => `topic ${params.topic}`,
    run: async ({ params: { topic }, body, text: raw, request, who, services, effects }) => {
      const job = { ...body, kind: '' };
      for (const { queue, kind } of await subscriptions(services.queues.reads.topics(), topic))
        await check(services, queue, { ...job, kind });
      const { kind: _none, queue: _any, ...asked } = { ...requestOf(undefined, job) } as Record<string, unknown>;
      return effects.jobs.publish(onceOf(request, who.name, raw), raw, { ...asked, topic });
    },
  }),
];

async function subscriptions(
  all: Promise<readonly { name: string; subscriptions: readonly { queue: string; kind: string }[] }[]>,
  topic: string,
): Promise<readonly { queue: string; kind: string }[]> {
  return (await all).find(({ name }) => name === topic)?.subscriptions ?? [];
}
