import { InvalidInput } from '../../base/errors.ts';
import { checkOptions } from '../../base/options/options.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import { type OpenTransaction, openTransaction, type PostgresEngine } from '../../engine/postgres/index.ts';
import type { Kinds, PayloadIn } from '../definition.ts';
import type { Producer } from '../enqueue.ts';
import { readJobId } from '../job-id.ts';
import type { JobInput } from '../job-input.ts';
import { PostgresQueueFlows } from '../postgres/watch/flows.ts';
import { Batch, type BatchHome, readBatch } from './batch.ts';
import { flowText, type GivenNode, readNode } from './flow.ts';

/** A job of any kind of a queue, for `enqueueMany`. */
export type JobOf<K extends Kinds> = {
  [N in keyof K & string]: Omit<JobInput, 'kind' | 'payload'> & { readonly kind: N; readonly payload: PayloadIn<K[N]> };
}[keyof K & string];

/** Any queue. */
export interface AnyQueue {
  readonly name: string;
  readonly engine: PostgresEngine | DynamoEngine;
}

/** One node of a flow. */
export type FlowNode<K extends Kinds> =
  | (NodeOptions & JobOf<K> & { readonly queue?: undefined })
  | (NodeOptions & Omit<JobInput, 'after'> & { readonly queue: AnyQueue });

interface NodeOptions {
  /** Names the node in this flow; not stored. Any text that is not a number. */
  readonly name: string;
  /** The parents that have to end before: names of nodes, ids of jobs, batches. */
  readonly after?: readonly (string | { readonly batch: string })[] | undefined;
}

/** A job that a batch enqueues when it is done. */
export type BatchCallback<K extends Kinds> =
  | (JobOf<K> & { readonly queue?: undefined })
  | (JobInput & { readonly queue: AnyQueue });

type CallbackInput = JobInput & { readonly queue?: unknown };

export interface BatchCallbacks<K extends Kinds> {
  /** Enqueued when all members have ended, and all completed. */
  readonly onComplete?: BatchCallback<K> | undefined;
  /** Enqueued when all members have ended, and at least one ended in error or was cancelled. */
  readonly onError?: BatchCallback<K> | undefined;
  /** Enqueued when all members have ended. */
  readonly onDone?: BatchCallback<K> | undefined;
}

interface TxOption {
  readonly tx?: OpenTransaction | undefined;
}

/** The queue of graphs and batches, as far as they need it. */
export interface FlowHome {
  readonly engine: PostgresEngine;
  readonly name: string;
  readonly register: () => Promise<unknown>;
  readonly producer: Producer;
  /** The producer of another queue of the same engine; undefined if the value is no such queue. */
  readonly producerOf: (queue: unknown) => Producer | undefined;
}

/** The graphs and the batches of a queue, whose jobs may be of other queues. */
export class Flows<K extends Kinds> {
  readonly #home: FlowHome;

  constructor(home: FlowHome) {
    this.#home = home;
  }

  /** See {@link Queue.flow}. */
  async add(nodes: readonly object[], options: TxOption): Promise<Readonly<Record<string, string>>> {
    const { tx } = checkOptions('flow', options, { tx: openTransaction });
    if (!Array.isArray(nodes)) throw new InvalidInput('flow takes an array of nodes', { field: 'nodes' });
    const given: GivenNode[] = [];
    for (const [nth, node] of nodes.entries())
      given.push(await readNode(node, nth, (queue, field) => this.#producerOf(queue, field)));
    if (given.length === 0) return {};
    const { text, names } = flowText(given);
    const ids = await new PostgresQueueFlows(this.#home.engine).add(text, tx);
    return Object.fromEntries(names.map((name, nth) => [name, ids[nth] ?? '']));
  }

  open(id: string): Batch<JobOf<K>, BatchCallbacks<K>> {
    const home: BatchHome = {
      seal: (batch) => new PostgresQueueFlows(this.#home.engine).seal(batch),
      progress: (batch) => readBatch(this.#home.engine, batch),
      manyInto: (batch, jobs, given) => this.#home.producer.manyInto(batch, jobs, given),
      newBatch: (parent, callbacks, given) => this.newBatch(parent, callbacks, given),
    };
    return new Batch<JobOf<K>, BatchCallbacks<K>>(home, readJobId(id));
  }

  async newBatch(parent: string | undefined, given: object, options: TxOption): Promise<string> {
    const { tx } = checkOptions('batch', options, { tx: openTransaction });
    const callbacks = await readCallbacks(given, (queue, name) => this.#producerOf(queue, name));
    await this.#home.register();
    return new PostgresQueueFlows(this.#home.engine).newBatch({ queue: this.#home.name, callbacks, parent }, tx);
  }

  #producerOf(queue: unknown, field: string): Producer {
    const producer = queue === undefined ? this.#home.producer : this.#home.producerOf(queue);
    if (producer !== undefined) return producer;
    throw new InvalidInput(`${field}.queue must be a queue of the same engine`, { field: `${field}.queue` });
  }
}

/** Checks the callbacks of a batch. @returns a request for each, by its name @throws InvalidInput, NotFound */
export async function readCallbacks(
  given: object,
  producerOf: (queue: unknown, field: string) => Producer,
): Promise<Record<string, object>> {
  const callbacks: Record<string, object> = {};
  for (const [name, value] of Object.entries(given) as [string, CallbackInput | undefined][]) {
    if (!['onComplete', 'onError', 'onDone'].includes(name)) {
      throw new InvalidInput(`batch takes onComplete, onError and onDone, but was given "${name}"`, { field: name });
    }
    if (value === undefined) continue;
    const { queue, ...job } = value;
    callbacks[name] = await producerOf(queue, name).later(job, name);
  }
  return callbacks;
}
