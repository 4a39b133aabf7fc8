import { NotSupported } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import {
  type AnyQueueAdmin,
  type JobRelations,
  type JobStanding,
  QueueOverview,
  type TableQueueAdmin,
} from '../../queue/index.ts';
import type { Once } from '../protocol/idempotency.ts';
import { JobStore } from '../store/jobs.ts';
import type { AbsentDatabase } from './absent-database.ts';

/** What this surface asks about jobs, on a table of DynamoDB. Figures over time and neighbours of a key are refused. */
export class TableQueues extends QueueOverview {
  readonly #admin: AnyQueueAdmin;

  constructor(admin: AnyQueueAdmin, absent: AbsentDatabase) {
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

  override relations(): Promise<JobRelations> {
    const none = { parents: [], children: [], afterError: null, afterCancel: null, afterBatches: [], batches: [] };
    return Promise.resolve(none);
  }
}

function written(value: unknown): string | null {
  return value === null ? null : JSON.stringify(value);
}

/** Jobs that are added over HTTP, one by one; what is more than that is refused. */
export class TableJobs extends JobStore {
  readonly #admin: TableQueueAdmin;

  constructor(admin: TableQueueAdmin, absent: AbsentDatabase) {
    super(absent, absent);
    this.#admin = admin;
  }

  override async enqueue({ who, key, digest }: Once, raw: string, jobs: string): Promise<unknown> {
    const request: unknown = JSON.parse(jobs);
    const body: unknown = JSON.parse(raw);
    if (Array.isArray(request) || !isObject(request) || !isObject(body)) {
      throw new NotSupported('not on DynamoDB: a list of jobs cannot be added as a whole; add them one by one');
    }
    // Null says nothing, as in SQL.
    const said = Object.fromEntries(Object.entries(request).filter(([, value]) => value !== null));
    const { queue, kind, runAt, expiresAt, delay, ...options } = said;
    const date = (value: unknown): Date | undefined => (typeof value === 'string' ? new Date(value) : undefined);
    const given = {
      ...options,
      runAt: date(runAt),
      expiresAt: date(expiresAt),
      ...(typeof delay === 'string' && { delay: Number.parseFloat(delay) }),
    };
    const payload = body['payload'] ?? null;
    if (key === null) return this.#admin.enqueue(String(queue), String(kind), payload, given);
    const once = { by: JSON.stringify([who, key]), digest };
    return this.#admin.enqueueOnce(once, String(queue), String(kind), payload, given);
  }

  /** No job is a new run of another one. */
  override reruns(): Promise<{ readonly retriedFrom: null; readonly retriedAs: readonly string[] }> {
    return Promise.resolve({ retriedFrom: null, retriedAs: [] });
  }
}
