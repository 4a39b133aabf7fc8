import { arrangeNodes, NAMED_ID, readNodeName } from '../../queue/index.ts';
import { anything, integer, jobId, listOf, maybe, text, type Values } from '../protocol/field.ts';
import { onceOf } from '../protocol/idempotency.ts';
import { Reply } from '../protocol/reply.ts';
import { AFTER, type AnyRoute, route } from '../protocol/route.ts';
import { traceOf } from '../protocol/telemetry.ts';
import { check, jobFields, locationOf, requestOf, within } from './enqueue.ts';

const MOST = 1000;
const batch = { id: jobId('the id of a batch') };
const callback = 'a job that is enqueued then: its kind, its payload and so on, and a queue if it is another one';

const { after: _after, ...plain } = jobFields;
const node = {
  ...plain,
  queue: text({ max: 100 }),
  name: text({ max: 200, about: 'names the node in this flow; not a number' }),
  after: maybe(listOf(anything(), { max: MOST }, 'names of nodes, ids of jobs, and {"batch": id}')),
};

type Node = Values<typeof node>;

/** Flows and batches. */
export const flowRoutes: readonly AnyRoute[] = [
  route({
    method: 'POST',
    path: '/flows',
    id: 'addFlow',
    tag: 'jobs',
    summary:
      'Adds a graph of jobs as a list of nodes, all or none; a node names those that it comes after, in any order. Asked again with the same Idempotency-Key within a day, it answers the ids of the first time, and adds nothing.',
    permission: 'job:enqueue',
    body: node,
    list: { max: MOST },
    takesKey: true,
    status: 201,
    answers: 'FlowAdded',
    target: ({ body }) => `flow in queue ${body.queue}`,
    run: async ({ body, list, text: raw, request, who, services, effects }) => {
      const nodes = list ?? [body];
      for (const [index, one] of nodes.entries()) {
        await within(index, check(services, one.queue, { ...one, after: null }));
        readNodeName(one.name, `nodes[${index}]`);
      }
      return effects.jobs.flow(
        onceOf(request, who.name, raw),
        raw,
        inOrder(nodes, services.table === undefined ? undefined : NAMED_ID),
        traceOf(request.headers),
      );
    },
  }),
  route({
    method: 'POST',
    path: '/batches',
    id: 'makeBatch',
    tag: 'jobs',
    summary:
      'Makes an open batch: add jobs to it, and seal it. When its last member has ended, onComplete is enqueued if all completed and onError if not, and onDone in both cases, each exactly once.',
    permission: 'job:enqueue',
    body: {
      queue: text({ max: 100 }),
      parent: maybe(jobId('the batch that it is a member of')),
      onComplete: anything(callback),
      onError: anything(callback),
      onDone: anything(callback),
    },
    takesKey: true,
    status: 201,
    answers: 'BatchMade',
    target: ({ body }) => `batch of queue ${body.queue}`,
    run: ({ text: raw, request, who, effects }) => effects.jobs.newBatch(onceOf(request, who.name, raw), raw),
  }),
  route({
    method: 'POST',
    path: '/batches/{id}/jobs',
    id: 'addToBatch',
    tag: 'jobs',
    summary:
      'Adds a job, or a list of up to 1,000, to an open batch, in its queue. 409: it is sealed. Idempotency-Key: as for a job of its own.',
    permission: 'job:enqueue',
    params: batch,
    body: jobFields,
    list: { max: MOST },
    takesKey: true,
    status: 201,
    answers: { anyOf: [{ $ref: '#/components/schemas/Enqueued' }, { $ref: '#/components/schemas/EnqueuedList' }] },
    target: ({ params }) => `batch ${params.id}`,
    run: async ({ params, body, list, text: raw, request, who, services, effects }) => {
      const { queue } = await services.queues.reads.batch(params.id);
      const jobs = list ?? [body];
      for (const [index, one] of jobs.entries())
        await within(list === undefined ? undefined : index, check(services, queue, one));
      const requests = jobs.map((one) => requestOf(queue, one));
      const added = JSON.stringify(list === undefined ? requests[0] : requests);
      const once = onceOf(request, who.name, raw);
      const answer = await effects.jobs.addToBatch(once, params.id, raw, added, traceOf(request.headers));
      if (Array.isArray(answer)) return new Reply({ items: answer }, {});
      return new Reply(answer, { headers: locationOf(services, answer) });
    },
  }),
  route({
    method: 'POST',
    path: '/batches/{id}/seal',
    id: 'sealBatch',
    tag: 'jobs',
    summary:
      'From here on nothing is added, so that the batch can end. Waits for transactions that are adding. Sealing it again does nothing.',
    permission: 'job:enqueue',
    params: batch,
    answers: 'Batch',
    target: ({ params }) => `batch ${params.id}`,
    run: async ({ params, request, services, effects: { queues } }) => {
      await queues.sealBatch(params.id, { signal: request.signal });
      return services.queues.reads.batch(params.id);
    },
  }),
  route({
    method: 'GET',
    path: '/batches',
    id: 'listBatches',
    tag: 'jobs',
    summary: 'Batches of one queue or of all, newest first, each with how far it is.',
    permission: 'view',
    query: {
      queue: maybe(text({ max: 100 })),
      limit: integer({ min: 1, max: 200, default: 20 }),
      after: maybe(text({ about: AFTER })),
    },
    answers: 'BatchList',
    sharedMs: 1000,
    run: async ({ query: { queue, limit, after: before }, services: { queues } }) => {
      const items = await queues.reads.batches({ queue, limit, before });
      return { items, after: items.length < limit ? null : (items.at(-1)?.id ?? null) };
    },
  }),
  route({
    method: 'GET',
    path: '/batches/{id}',
    id: 'getBatch',
    tag: 'jobs',
    summary: 'How far a batch is. Members are its jobs, and the batches in it.',
    permission: 'view',
    params: batch,
    answers: 'Batch',
    run: ({ params, services }) => services.queues.reads.batch(params.id),
  }),
];

/** Each node after its parents, in the form for `pawl.http_flow()`. */
function inOrder(nodes: readonly Node[], ids: RegExp | undefined): object[] {
  const arranged = arrangeNodes(
    nodes.map(({ name, after = [] }) => ({ name, after })),
    ids,
  );
  return nodes
    .map(({ name, queue, ...job }, n) => {
      const { after = [], layer = 0, ...others } = arranged[n] ?? { jobs: [], batches: [] };
      const names = after.map((nth) => nodes[nth]?.name);
      return { layer, node: { n, name, after: names, ...others, request: requestOf(queue, { ...job, after: null }) } };
    })
    .toSorted((a, b) => a.layer - b.layer)
    .map((one) => one.node);
}
