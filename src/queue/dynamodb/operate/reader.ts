import { fieldsOf } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import type { JobRecord, JobTransition } from '../../job.ts';
import { type Explanation, explainFacts, type Facts } from '../../operate/explain/explain.ts';
import type { QueueRows } from '../database.ts';
import { AFTER_OTHERS, endsOf, termsIn } from '../enqueue/after.ts';
import { Homes } from '../enqueue/homes.ts';
import { pausedAt } from '../heads/by-hand.ts';
import { isIn } from '../heads/spans.ts';
import { delayOf, progressOf } from '../rows.ts';
import type { DynamoQueueStore } from '../store.ts';
import { attemptOf, backUntil, type FoundJob, findJob, holderOf } from './standing.ts';
import { transitionsOf } from './transitions.ts';

/** Reads the jobs of a queue for people. */
export class DynamoQueueReader {
  readonly #store: DynamoQueueStore;
  readonly #rows: QueueRows;
  readonly #definition: Definition;

  constructor(store: DynamoQueueStore, definition: Definition) {
    this.#store = store;
    this.#rows = store.rows;
    this.#definition = definition;
  }

  async get(id: string, kindName: ReadonlyMap<number, string>): Promise<JobRecord> {
    const job = await findJob(this.#rows, this.#definition, id);
    const last = job.records.at(-1);
    const isOver = job.status !== 'new' && job.status !== 'in-progress';
    const claim = this.#claimOf(job);
    const progress = fieldsOf(await this.#rows.get(progressOf(this.#rows.shard(job.shard), job.id)))['y'];
    return {
      id,
      queue: this.#definition.name,
      kind: kindName.get(job.kind) ?? `unknown kind ${job.kind}`,
      key: job.label ?? null,
      group: null,
      status: job.status,
      priority: job.priority,
      attempt: attemptOf(job),
      payload: job.payload,
      enqueuedAt: new Date(job.enqueuedAt),
      runAt: job.runAt > 0 && job.runAt < AFTER_OTHERS ? new Date(job.runAt) : null,
      claimedAt: isOver && typeof last?.claimedAt === 'number' ? new Date(last.claimedAt) : null,
      settledAt: isOver && last !== undefined ? new Date(last.at) : null,
      processId: claim ?? (isOver ? (last?.processId ?? null) : null),
      error: last?.error ?? null,
      progress: progress === undefined ? null : JSON.parse(String(progress)),
      result: isOver && last?.result !== undefined ? JSON.parse(last.result) : null,
      schedule:
        job.own?.schedule === undefined ? null : { name: job.own.schedule.name, at: new Date(job.own.schedule.at) },
      attempts: job.own?.attempts ?? this.#attemptsOf(kindName.get(job.kind)),
      expiresAt: job.own?.expiresAt === undefined ? null : new Date(job.own.expiresAt),
      tags: job.own?.tags ?? [],
      meta: job.own?.meta ?? null,
    };
  }

  async history(id: string): Promise<JobTransition[]> {
    return transitionsOf(await findJob(this.#rows, this.#definition, id));
  }

  async explain(id: string, kindName: ReadonlyMap<number, string>): Promise<Explanation> {
    const job = await findJob(this.#rows, this.#definition, id);
    const workers = await this.#store.workers.list();
    const last = job.records.at(-1);
    const left = job.keyHead?.left.find((one) => one.id === job.id);
    // The head of the key decides about the time, and the time of a poke does not count.
    const times = left !== undefined ? [left.dueAt] : [backUntil(job), job.isDelayed ? job.dueAt : 0];
    const retryAt = Math.max(0, ...times.filter((time) => time < AFTER_OTHERS));
    const parents = job.status === 'new' && job.isDelayed ? await this.#waitsFor(job) : null;
    const before = job.keyHead?.left.find((one) => one.id < job.id);
    const at = this.#rows.engine.now();
    const pause = pausedAt(job.head);
    const holder = workers.find((worker) => worker.id === holderOf(job));
    if (job.status === 'in-progress') {
      const worker = holder === undefined ? undefined : `${holder.host}:${holder.pid}`;
      const by = worker ?? 'a worker that no longer exists; the job is given back within seconds';
      const text = `in progress at ${by}, attempt ${attemptOf(job)}`;
      return { status: job.status, reasons: [{ code: 'in_progress', text, worker }] };
    }
    const facts: Facts = {
      status: job.status,
      place: parents !== null || retryAt > at ? 'delayed' : before === undefined ? 'ready' : 'parked',
      queue: this.#definition.name,
      kind: kindName.get(job.kind) ?? '',
      key: job.label ?? null,
      attempt: attemptOf(job),
      runAt: retryAt > 0 ? iso(retryAt) : null,
      claimedAt: null,
      settledAt: last === undefined ? null : iso(last.at),
      error: last?.error ?? null,
      now: iso(at),
      pausedAt: pause === undefined ? null : iso(pause),
      pausedParts: [],
      tags: [],
      isSetAside: false,
      worker: null,
      before:
        job.status === 'new' && before !== undefined && retryAt <= at
          ? {
              job: String(before.id),
              place: before.isTaken ? 'running' : before.dueAt > at ? 'delayed' : 'ready',
              runAt: iso(before.dueAt),
            }
          : null,
      waits: null,
      ahead: 0,
      failure: last === undefined ? null : { at: iso(last.at), reason: last.reason, error: last.error },
      wish: null,
      workers: workers.length,
      slots: workers.reduce((sum, { slots }) => sum + slots, 0),
      running: 0,
      holder: null,
      isHeld: false,
      parents,
    };
    return explainFacts(id, facts);
  }

  /** Reads the status of each parent. @returns null if the job waits for no parents */
  async #waitsFor({ dueAt, shard, spot }: FoundJob): Promise<Facts['parents']> {
    if (dueAt !== AFTER_OTHERS) return null;
    const terms = termsIn(await this.#rows.get(delayOf(this.#rows.shard(shard), dueAt, spot.piece)));
    if (terms === undefined) return null;
    const ends = await endsOf(new Homes(this.#rows, this.#definition), terms.parents);
    const open = terms.parents.filter((id) => !ends.has(id));
    return { jobs: open.length, first: open[0] === undefined ? null : String(open[0]) };
  }

  #attemptsOf(kind: string | undefined): number {
    return this.#definition.kinds.get(kind ?? '')?.attempts ?? this.#definition.attempts;
  }

  #claimOf({ head, spot, status }: FoundJob): string | undefined {
    if (status !== 'in-progress') return undefined;
    return head.claims.find(({ spans }) => isIn(spans, spot))?.request;
  }
}

function iso(at: number): string {
  return new Date(at).toISOString();
}
