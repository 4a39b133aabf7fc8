import { InvalidInput } from '../../base/errors.ts';
import { checkOptions } from '../../base/options/options.ts';
import { isObject } from '../../base/options/shape.ts';
import { toJson } from '../../base/storable.ts';
import type { PostgresEngine, Transaction } from '../../engine/postgres/index.ts';
import { type UniqueOptions, uniqueOfJob } from '../declare/unique.ts';
import type { EnqueueResult } from '../enqueue.ts';
import { type JobOptions, jobShape, refuseTwoTimes, requestOptions } from '../job-options.ts';
import { BATCH_JOIN, BATCH_MAKE, BATCH_MEMBERS, ENQUEUE } from '../postgres/watch/flows.ts';
import { arrangeNodes, readNodeName } from './flow.ts';

/** Options of a job that is added without the declaration of its queue. */
export interface HandOptions extends JobOptions {
  /**
   * At most one of these jobs exists, by a rule; `true`: one job of a key, ever; `false`: no rule. Default: the rule that the
   * kind declares.
   */
  readonly unique?: boolean | UniqueOptions | undefined;
}

/** A job that is added without the declaration of its queue. */
export interface HandJob extends HandOptions {
  readonly kind: string;
  readonly payload?: unknown;
}

/** A node of a flow; `after` may also name other nodes. */
export interface HandNode extends HandJob {
  readonly queue: string;
  /** A text of 1 to 200 characters that is not a number. */
  readonly name: string;
}

export interface HandBatch {
  /** The batch of which it is a member. */
  readonly parent?: string | undefined;
  readonly onComplete?: HandCallback | undefined;
  readonly onError?: HandCallback | undefined;
  readonly onDone?: HandCallback | undefined;
}

/** A job that a batch enqueues when it is done, in its own queue or in another one. */
export interface HandCallback extends HandJob {
  readonly queue?: string | undefined;
}

const CALLBACKS = ['onComplete', 'onError', 'onDone'] as const;

const shape = { ...jobShape, unique: uniqueOfJob };

/** A checked job, in the form for `pawl.enqueue()`. @param of  the job among several: `jobs[3]` @throws InvalidInput */
export function readHandJob(queue: string, job: HandJob, of?: string): Readonly<Record<string, unknown>> {
  if (!isObject(job))
    throw new InvalidInput(`${of ?? 'job'} must be an object such as { kind, payload }`, { field: of ?? 'job' });
  const { kind, payload = null, ...options } = job;
  const given = checkOptions(of === undefined ? 'enqueue' : `enqueue, ${of}`, options, shape);
  refuseTwoTimes(given, of);
  const field = of === undefined ? 'payload' : `${of}.payload`;
  const { unique } = given;
  const json: unknown = JSON.parse(toJson(payload, field, field));
  return { ...requestOptions(given), ...(unique !== undefined && { unique }), queue, kind, payload: json };
}

/**
 * Adds a graph of jobs, all or none: one statement for each layer of the graph, in one transaction.
 * @returns the id of each node, by its name @throws InvalidInput, NotFound
 */
export async function addFlow(engine: PostgresEngine, nodes: readonly HandNode[]): Promise<Record<string, string>> {
  if (!Array.isArray(nodes)) throw new InvalidInput('flow takes an array of nodes', { field: 'nodes' });
  const given = nodes.map(readNode);
  const arranged = arrangeNodes(given);
  const layers: number[][] = [];
  for (const [nth, { layer }] of arranged.entries()) (layers[layer] ??= []).push(nth);
  return engine.transaction(async (tx) => {
    const ids: string[] = [];
    for (const layer of layers) {
      const requests = layer.map((nth) => {
        const { after = [], jobs = [], batches = [] } = arranged[nth] ?? {};
        const all = [...after.map((one) => ids[one]), ...jobs, ...batches.map((batch) => ({ batch }))];
        return { ...given[nth]?.request, ...(all.length > 0 && { after: all }) };
      });
      const [row] = await tx.query<{ answer: EnqueueResult[] }>(ENQUEUE, [JSON.stringify(requests)]);
      for (const [place, nth] of layer.entries()) ids[nth] = row?.answer[place]?.id ?? '';
    }
    return Object.fromEntries(given.map(({ name }, nth) => [name, ids[nth] ?? '']));
  });
}

/** Checks a flow as far as possible without its queues. @param ids  the pattern of the id of a job @throws InvalidInput */
export function checkFlow(nodes: readonly HandNode[], ids?: RegExp): void {
  if (!Array.isArray(nodes)) throw new InvalidInput('flow takes an array of nodes', { field: 'nodes' });
  arrangeNodes(nodes.map(readNode), ids);
}

function readNode(node: HandNode, nth: number): { name: string; after: readonly unknown[]; request: object } {
  const field = `nodes[${nth}]`;
  if (!isObject(node)) {
    throw new InvalidInput(`${field} must be an object such as { name, queue, kind, payload }`, { field });
  }
  const { name, queue, after = [], ...job } = node;
  if (!Array.isArray(after)) throw new InvalidInput(`${field}.after must be an array`, { field: `${field}.after` });
  if (typeof queue !== 'string') throw new InvalidInput(`${field}.queue must be a text`, { field: `${field}.queue` });
  return { name: readNodeName(name, field), after, request: readHandJob(queue, job, field) };
}

/** Makes an open batch with these jobs, all or nothing. @returns its id @throws InvalidInput, NotFound, Conflict */
export async function makeBatch(
  engine: PostgresEngine,
  queue: string,
  given: HandBatch,
  jobs: readonly HandJob[],
): Promise<string> {
  const request = { queue, parent: given.parent, ...readHandCallbacks(queue, given) };
  const requests = readJobs(queue, jobs);
  return engine.transaction(async (tx) => {
    const [row] = await tx.query<{ id: string }>(BATCH_MAKE, [JSON.stringify(request)]);
    if (row === undefined) throw new Error('the database returned no row where there is always one');
    if (requests.length > 0) await addIn(tx, row.id, requests);
    return row.id;
  });
}

/** Checks the callbacks of a batch. @returns a request for each, by its name @throws InvalidInput */
export function readHandCallbacks(queue: string, given: HandBatch): Record<string, object> {
  const stranger = Object.keys(given).find((name) => name !== 'parent' && !CALLBACKS.some((one) => one === name));
  if (stranger !== undefined) {
    throw new InvalidInput(`a batch takes parent, ${CALLBACKS.join(', ')}, not "${stranger}"`, { field: stranger });
  }
  const request: Record<string, object> = {};
  for (const name of CALLBACKS) {
    const callback = given[name];
    if (callback === undefined) continue;
    const { queue: other = queue, ...job } = isObject(callback) ? callback : { kind: '' };
    request[name] = readHandJob(other, job, name);
  }
  return request;
}

/** Adds jobs to an open batch of this queue, all or none. @throws InvalidInput, NotFound, Conflict */
export async function addToBatch(
  engine: PostgresEngine,
  { id, queue }: { readonly id: string; readonly queue: string },
  jobs: readonly HandJob[],
): Promise<EnqueueResult[]> {
  const requests = readJobs(queue, jobs);
  return engine.transaction(async (tx) => {
    await tx.query(BATCH_JOIN, [id]);
    return addIn(tx, id, requests);
  });
}

function readJobs(queue: string, jobs: readonly HandJob[]): object[] {
  if (!Array.isArray(jobs)) throw new InvalidInput('a batch takes an array of jobs', { field: 'jobs' });
  return jobs.map((job, nth) => readHandJob(queue, job, `jobs[${nth}]`));
}

/** The caller's transaction has joined the batch, or made it. */
async function addIn(tx: Transaction, id: string, requests: readonly object[]): Promise<EnqueueResult[]> {
  const [row] = await tx.query<{ answer: EnqueueResult[] }>(ENQUEUE, [JSON.stringify(requests)]);
  const answer = row?.answer ?? [];
  await tx.query(BATCH_MEMBERS, [id, JSON.stringify(answer)]);
  return answer;
}
