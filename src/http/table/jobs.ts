import { NotSupported } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import {
  type HandJob,
  type HandNode,
  type JobRelations,
  type JobStanding,
  QueueOverview,
  type TableQueueAdmin,
} from '../../queue/index.ts';
import type { Once } from '../protocol/idempotency.ts';
import { JobStore } from '../store/jobs.ts';
import type { AbsentDatabase } from './absent-database.ts';

/** Queries about jobs, on a table of DynamoDB. Figures over time are refused. */
export class TableQueues extends QueueOverview {
  readonly #admin: TableQueueAdmin;

  constructor(admin: TableQueueAdmin, absent: AbsentDatabase) {
    super(absent);
    this.#admin = admin;
  }

  override async payload(job: string): Promise<Record<'payload' | 'result' | 'progress', string | null>> {
    const { payload, result, progress } = await this.#admin.get(job);
    return { payload: written(payload), result: written(result), progress: written(progress) };
  }

  override async standing(jobs: readonly string[]): Promise<JobStanding[]> {
    const found = await this.#admin.getMany(jobs);
    return found.map(({ id, status, attempt }) => ({ id, status, attempt, progressAt: null }));
  }

  override trace(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  override relations(job: string): Promise<JobRelations> {
    return this.#admin.relations(job);
  }

  override async siblings(job: string): ReturnType<QueueOverview['siblings']> {
    const found = await this.#admin.siblings(job);
    return found.map(({ id, kind, status, processId, enqueuedAt, settledAt }) => {
      return { id, kind, status, processId, enqueuedAt, settledAt };
    });
  }
}

function written(value: unknown): string | null {
  return value === null ? null : JSON.stringify(value);
}

/** Adds jobs and batches over HTTP. If "all or none" would need several transactions, the request is refused. */
export class TableJobs extends JobStore {
  readonly #admin: TableQueueAdmin;

  constructor(admin: TableQueueAdmin, absent: AbsentDatabase) {
    super(absent, absent);
    this.#admin = admin;
  }

  override async enqueue(once: Once, raw: string, jobs: string): Promise<unknown> {
    const request: unknown = JSON.parse(jobs);
    if (Array.isArray(request)) {
      throw new NotSupported('not on DynamoDB: a list of jobs cannot be added as a whole; add them one by one');
    }
    const { queue, kind, payload, ...options } = handJob(request, JSON.parse(raw));
    const named = requestOf(once);
    if (named === undefined) return this.#admin.enqueue(queue, kind, payload, options);
    return this.#admin.enqueueOnce(named, queue, kind, payload, options);
  }

  override async flow({ key }: Once, raw: string, nodes: object[]): Promise<unknown> {
    if (key !== null) {
      throw new NotSupported(
        'not on DynamoDB: the row of an Idempotency-Key names one job, and a flow is several; add it without one',
      );
    }
    const body: unknown = JSON.parse(raw);
    const bodies: unknown[] = Array.isArray(body) ? body : [body];
    const given = nodes.map((node) => {
      const { n, name, after, jobs, batches, request } = said(node);
      const others = [after, jobs].flatMap((some) => (Array.isArray(some) ? some : []));
      const all = [...others, ...(Array.isArray(batches) ? batches : []).map((batch) => ({ batch }))];
      return { ...handJob(request, bodies[Number(n)]), name: String(name), after: all };
    });
    return { ids: await this.#admin.flow(given as readonly HandNode[]), duplicate: false };
  }

  override async newBatch(once: Once, raw: string): Promise<unknown> {
    const { queue, parent, ...callbacks } = said(JSON.parse(raw));
    const batch = Object.fromEntries(Object.entries(callbacks).map(([name, job]) => [name, withTimes(said(job))]));
    const given = { ...batch, ...(typeof parent === 'string' && { parent }) };
    return this.#admin.newBatchOnce(requestOf(once), String(queue), given);
  }

  /** A list is added row by row, 64 jobs each. */
  override async addToBatch(once: Once, batch: string, raw: string, jobs: string): Promise<unknown> {
    const [request, bodies]: [unknown, unknown] = [JSON.parse(jobs), JSON.parse(raw)];
    if (!Array.isArray(request)) {
      const { queue: _queue, ...job } = handJob(request, bodies);
      return this.#admin.addOneToBatch(requestOf(once), batch, job);
    }
    if (once.key !== null) {
      throw new NotSupported(
        'not on DynamoDB: a list of jobs is written row by row, so none of its answers stands for all; add them one by one, or without an Idempotency-Key',
      );
    }
    const all: unknown[] = Array.isArray(bodies) ? bodies : [];
    const each = request.map((one, nth) => {
      const { queue: _queue, ...job } = handJob(one, all[nth]);
      return job;
    });
    return this.#admin.addToBatch(batch, each);
  }

  override retry(): Promise<unknown> {
    throw new NotSupported(
      'not on DynamoDB: the row of an Idempotency-Key names a job that was added; retry it without one',
    );
  }

  /** No job is a new run of another one here. */
  override reruns(): Promise<{ readonly retriedFrom: null; readonly retriedAs: readonly string[] }> {
    return Promise.resolve({ retriedFrom: null, retriedAs: [] });
  }
}

/** Undefined: the request has no Idempotency-Key. */
function requestOf({ who, key, digest }: Once): { by: string; digest: string } | undefined {
  return key === null ? undefined : { by: JSON.stringify([who, key]), digest };
}

/** A job, from its parsed fields and from the body as it came, which has its payload. */
function handJob(request: unknown, body: unknown): HandJob & { readonly queue: string } {
  const { queue, kind, delay, ...options } = said(request);
  return {
    ...withTimes(options),
    ...(typeof delay === 'string' && { delay: Number.parseFloat(delay) }),
    queue: String(queue),
    kind: String(kind),
    payload: said(body)['payload'] ?? null,
  };
}

/** Null counts as left out, as in SQL. */
function said(value: unknown): Record<string, unknown> {
  return Object.fromEntries(Object.entries(isObject(value) ? value : {}).filter(([, one]) => one !== null));
}

/** Times are texts in JSON. */
function withTimes({ runAt, expiresAt, ...rest }: Record<string, unknown>): object {
  const date = (value: unknown): unknown => (typeof value === 'string' ? new Date(value) : value);
  return {
    ...rest,
    ...(runAt !== undefined && { runAt: date(runAt) }),
    ...(expiresAt !== undefined && { expiresAt: date(expiresAt) }),
  };
}
