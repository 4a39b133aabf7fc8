import { NotSupported } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { type AnyQueueAdmin, type JobRelations, type JobStanding, QueueOverview } from '../../queue/index.ts';
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
  readonly #admin: AnyQueueAdmin;

  constructor(admin: AnyQueueAdmin, absent: AbsentDatabase) {
    super(absent, absent);
    this.#admin = admin;
  }

  override async enqueue({ key }: Once, raw: string, jobs: string): Promise<unknown> {
    if (key !== null) {
      throw new NotSupported(
        'not on DynamoDB: no row keeps the answers of an Idempotency-Key; use a kind that is unique by key',
      );
    }
    const request: unknown = JSON.parse(jobs);
    const body: unknown = JSON.parse(raw);
    if (Array.isArray(request) || !isObject(request) || !isObject(body)) {
      throw new NotSupported('not on DynamoDB: a list of jobs cannot be added as a whole; add them one by one');
    }
    // Null says nothing, as in SQL.
    const said = Object.fromEntries(Object.entries(request).filter(([, value]) => value !== null));
    const { queue, kind, runAt, expiresAt, delay, ...options } = said;
    const date = (value: unknown): Date | undefined => (typeof value === 'string' ? new Date(value) : undefined);
    return this.#admin.enqueue(String(queue), String(kind), body['payload'] ?? null, {
      ...options,
      runAt: date(runAt),
      expiresAt: date(expiresAt),
      ...(typeof delay === 'string' && { delay: Number.parseFloat(delay) }),
    });
  }

  /** No job is a new run of another one. */
  override reruns(): Promise<{ readonly retriedFrom: null; readonly retriedAs: readonly string[] }> {
    return Promise.resolve({ retriedFrom: null, retriedAs: [] });
  }
}
