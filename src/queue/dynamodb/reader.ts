import { Conflict } from '../../base/errors.ts';
import { now as moment } from '../../base/time/clock.ts';
import { Expression, type Item, type Key, num } from '../../engine/dynamodb/index.ts';
import type { Definition } from '../definition.ts';
import type { JobRecord, JobStatus, JobTransition } from '../job.ts';
import { type Explanation, explainFacts, type Facts } from '../operate/explain.ts';
import type { QueueStats } from '../operate/stats.ts';
import type { RemainingWork } from '../postgres/reader.ts';
import type { QueueRows } from './database.ts';
import { cancelledInLine, pausedAt, pauseSet, restoredInLine, withdrawn } from './heads/by-hand.ts';
import { added, backName, isQuiet, readHead, type ShardHead } from './heads/head.ts';
import { jobAdded, keyCancelled, readKeyHead } from './heads/key-head.ts';
import { JOBS } from './heads/place.ts';
import { isIn, POKE } from './heads/spans.ts';
import { type JobRecordEntry, writeRecords } from './records.ts';
import {
  attribute,
  DELAYS,
  delayOf,
  fieldsOf,
  headOf,
  keyOf,
  pieceOf,
  progressOf,
  readJobRow,
  written,
} from './rows.ts';
import { attemptOf, backUntil, type FoundJob, findJob, holderOf } from './standing.ts';
import type { DynamoQueueStore } from './store.ts';
import { cancelledIn, unchanged } from './work/delays.ts';

const MOST_TRIES = 20;

/** Answers people about the jobs of a queue, and changes them by hand. */
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
      status: job.status,
      priority: job.priority,
      attempt: attemptOf(job),
      payload: job.payload,
      enqueuedAt: new Date(job.enqueuedAt),
      runAt: job.dueAt > 0 ? new Date(job.dueAt) : null,
      claimedAt: isOver && typeof last?.claimedAt === 'number' ? new Date(last.claimedAt) : null,
      settledAt: isOver && last !== undefined ? new Date(last.at) : null,
      processId: claim ?? (isOver ? (last?.processId ?? null) : null),
      error: last?.error ?? null,
      progress: progress === undefined ? null : JSON.parse(String(progress)),
      result: isOver && last?.result !== undefined ? JSON.parse(last.result) : null,
      schedule:
        job.own?.schedule === undefined ? null : { name: job.own.schedule.name, at: new Date(job.own.schedule.at) },
      attempts: job.own?.attempts ?? this.#attemptsOf(kindName.get(job.kind)),
      expiresAt: null,
      tags: job.own?.tags ?? [],
      meta: job.own?.meta ?? null,
    };
  }

  async history(id: string): Promise<JobTransition[]> {
    const { enqueuedAt, records } = await findJob(this.#rows, this.#definition, id);
    const first = {
      from: null,
      to: 'new',
      attempt: 0,
      processId: null,
      worker: null,
      reason: 'enqueue',
      error: null,
    } as const;
    const all: JobTransition[] = [{ ...first, at: new Date(enqueuedAt) }];
    for (const { to, attempt, reason, error, processId, claimedAt, at } of records) {
      const shared = { attempt, processId, worker: null };
      if (claimedAt !== null) {
        all.push({ ...shared, at: new Date(claimedAt), from: 'new', to: 'in-progress', reason: 'claim', error: null });
      }
      const from = claimedAt === null ? ('new' as const) : ('in-progress' as const);
      all.push({
        ...shared,
        at: new Date(at),
        from,
        to: to === 'retry' || to === 'release' ? 'new' : to,
        reason,
        error,
      });
    }
    return all;
  }

  async explain(id: string, kindName: ReadonlyMap<number, string>): Promise<Explanation> {
    const job = await findJob(this.#rows, this.#definition, id);
    const workers = await this.#store.workers();
    const last = job.records.at(-1);
    const left = job.keyHead?.left.find((one) => one.id === job.id);
    const retryAt = Math.max(left?.dueAt ?? 0, backUntil(job), job.isDelayed ? job.dueAt : 0);
    const before = job.keyHead?.left.find((one) => one.id < job.id);
    const at = this.#rows.engine.now();
    const pause = pausedAt(job.head);
    const holder = workers.find((worker) => worker.id === holderOf(job));
    if (job.status === 'in-progress') {
      const worker = holder === undefined ? undefined : `${holder.host}:${holder.pid}`;
      const by = worker ?? 'a worker that is gone; it is given back within seconds';
      const text = `in progress at ${by}, attempt ${attemptOf(job)}`;
      return { status: job.status, reasons: [{ code: 'in_progress', text, worker }] };
    }
    const facts: Facts = {
      status: job.status,
      place: retryAt > at ? 'delayed' : before === undefined ? 'ready' : 'parked',
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
      parents: null,
    };
    return explainFacts(id, facts);
  }

  async cancel(id: string, reason: string | null): Promise<JobStatus> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const job = await findJob(this.#rows, this.#definition, id);
      if (job.status === 'cancelled') return 'cancelled';
      if (job.status !== 'new' && job.status !== 'in-progress') {
        throw new Conflict(
          `job ${id} is ${job.status === 'error' ? 'in error' : 'complete'}: it cannot be cancelled any more`,
        );
      }
      if (job.status === 'in-progress') {
        const worker = holderOf(job);
        if (worker !== undefined && (await this.#store.wishToCancel(worker, job.id, reason))) return 'in-progress';
        continue;
      }
      await this.#recordByHand(job, 'cancelled', 'cancel', reason);
      if (await this.#takeOut(job)) return 'cancelled';
    }
    throw new Conflict(`job ${id} changes all the time; try again`);
  }

  async retry(id: string): Promise<JobStatus> {
    const job = await findJob(this.#rows, this.#definition, id);
    if (job.status !== 'error' && job.status !== 'cancelled') {
      throw new Conflict(`job ${id} is ${job.status}: only a job that ended in error or was cancelled can be retried`);
    }
    const at = Math.floor(this.#rows.engine.now());
    if (job.standing === 'cancelled') {
      const back = await this.#rows.decide(this.#head(job), (fields) => restoredInLine(readHead(fields), job.spot));
      if (back === undefined) throw new Conflict(`job ${id} is being claimed or retried now; look again`);
    } else if (job.key === undefined && (await this.#restoreDelay(job))) {
      // It is delayed again, until the time that it was enqueued for.
    } else if (job.key === undefined) await this.#giveBack(job, at);
    else await this.#addToKey(job, at);
    await this.#recordByHand(job, 'release', 'retry by hand', null);
    this.#store.household.notify();
    return 'new';
  }

  async stats(): Promise<QueueStats> {
    const heads = await this.#heads();
    const workers = await this.#store.workers();
    const counts = { ready: 0, inProgress: 0, delayed: 0 };
    const at = this.#rows.engine.now();
    let pause: number | undefined;
    for (const [shard, head] of heads.entries()) {
      for (const { spans } of head.claims) for (const { n } of spans) counts.inProgress += n;
      for (const { spans } of head.back) {
        for (const { n, dueAt } of spans) {
          if (dueAt > at) counts.delayed += n;
          else counts.ready += n;
        }
      }
      counts.ready += await this.#lineOf(shard, head);
      const delays = await this.#rows.range(this.#rows.shard(shard), DELAYS.first, DELAYS.last, 1000);
      for (const item of delays) counts.delayed += Number(fieldsOf(item)['n'] ?? 0) - cancelledIn(item).length;
      pause = pausedAt(head) ?? pause;
    }
    return {
      ...counts,
      new: counts.ready + counts.delayed,
      'in-progress': counts.inProgress,
      error: 0,
      cancelled: 0,
      parked: 0,
      completePerMinute: 0,
      oldestReadyMs: null,
      paused: pause !== undefined,
      pausedAt: pause === undefined ? null : new Date(pause),
      pausedParts: [],
      blockedKeys: 0,
      workers: workers.length,
      slots: workers.reduce((sum, { slots }) => sum + slots, 0),
    };
  }

  /** What is left to do: half a read unit for each shard, and a unit more where something may be in the line. */
  async left(): Promise<RemainingWork> {
    const left = { ready: false, parked: false, running: false, delayed: false };
    const at = this.#rows.engine.now();
    for (const [shard, head] of (await this.#heads()).entries()) {
      left.running ||= head.claims.length > 0;
      for (const { spans } of head.back) {
        left.ready ||= spans.some(({ dueAt }) => dueAt <= at);
        left.delayed ||= spans.some(({ dueAt }) => dueAt > at);
      }
      left.ready ||= !isQuiet({ ...head, back: [], claims: [] }) && (await this.#lineOf(shard, head)) > 0;
      const delays = await this.#rows.range(this.#rows.shard(shard), DELAYS.first, DELAYS.last, 1);
      left.delayed ||= delays.length > 0;
    }
    return left;
  }

  async setPause(isPaused: boolean): Promise<void> {
    const at = Math.floor(await this.#rows.engine.serviceTime(this.#rows.limits));
    for (let shard = 0; shard < this.#definition.shards; shard += 1) {
      await this.#rows.decide(headOf(this.#rows.shard(shard)), (fields) => {
        const head = readHead(fields);
        if (head.isPaused === isPaused) return undefined;
        return pauseSet(head, isPaused ? at : undefined);
      });
    }
    if (!isPaused) this.#store.household.notify();
  }

  #attemptsOf(kind: string | undefined): number {
    return this.#definition.kinds.get(kind ?? '')?.attempts ?? this.#definition.attempts;
  }

  #heads(): Promise<ShardHead[]> {
    return Promise.all(Array.from({ length: this.#definition.shards }, (_, shard) => this.#rows.head(shard)));
  }

  /** How many jobs are in the line, as far as one page of each band tells. */
  async #lineOf(shard: number, head: ShardHead): Promise<number> {
    const pk = this.#rows.shard(shard);
    let jobs = 0;
    for (const [band, next] of head.next.entries()) {
      const first = band * 2 ** 37 + Math.floor(next / JOBS);
      const last = band * 2 ** 37 + (head.last[band] ?? 0);
      if (last < first) continue;
      const items = await this.#rows.range(pk, pieceOf(pk, first).sk, pieceOf(pk, last).sk, 1000);
      for (const row of items.map(readJobRow)) {
        if (row.dueAt > 0) continue;
        jobs += row.piece === first ? Math.max(0, row.n - (next % JOBS)) : row.n;
        jobs -= head.cancelled.filter(({ piece }) => piece === row.piece).reduce((sum, { n }) => sum + n, 0);
      }
    }
    return jobs;
  }

  #head({ shard }: FoundJob): { pk: string; sk: string } {
    return headOf(this.#rows.shard(shard));
  }

  /** Takes out a job that no worker has. @returns false when it has moved meanwhile */
  async #takeOut(job: FoundJob): Promise<boolean> {
    const { shard, spot, key } = job;
    const pk = this.#rows.shard(shard);
    if (key !== undefined) {
      const done = await this.#rows.decide(headOf(keyOf(pk, key)), (fields) =>
        keyCancelled(readKeyHead(fields), job.id),
      );
      return done !== undefined;
    }
    if (job.isDelayed) {
      const place = delayOf(pk, job.dueAt, spot.piece);
      const item = await this.#rows.get(place);
      if (item === undefined) return false;
      return this.#setCancelled(place, item, [...cancelledIn(item), spot.index]);
    }
    const done = await this.#rows.decide(this.#head(job), (fields) => {
      const head = readHead(fields);
      return withdrawn(head, spot) ?? (isIn(head.cancelled, spot) ? undefined : cancelledInLine(head, spot));
    });
    return done !== undefined;
  }

  /** @returns false when its delay is over, or never was */
  async #restoreDelay({ shard, spot, dueAt }: FoundJob): Promise<boolean> {
    if (dueAt === 0) return false;
    const place = delayOf(this.#rows.shard(shard), dueAt, spot.piece);
    const item = await this.#rows.get(place);
    if (item === undefined || !cancelledIn(item).includes(spot.index)) return false;
    return this.#setCancelled(
      place,
      item,
      cancelledIn(item).filter((index) => index !== spot.index),
    );
  }

  /** Says which jobs of a delayed piece are cancelled. @returns false when it has changed meanwhile, or is due */
  async #setCancelled(place: Key, item: Item, cancelled: readonly number[]): Promise<boolean> {
    const { ConditionExpression = '', ExpressionAttributeValues: values } = unchanged(item);
    const request = {
      ConditionExpression,
      UpdateExpression: 'SET x = :new',
      ExpressionAttributeValues: { ...values, ':new': attribute(JSON.stringify(cancelled)) },
    };
    return (await this.#rows.engine.update(place, request, 'NONE', this.#rows.limits)).isDone;
  }

  /** Together with a mark in its last record: of two retries at once, one gives it back. */
  async #giveBack({ shard, spot, records, id }: FoundJob, at: number): Promise<void> {
    const last = records.at(-1);
    const spans = [{ ...spot, n: 1, attempts: 0, dueAt: 0 }];
    const change = added({ name: backName(`h${id}.${records.length}`), spans });
    const isDone =
      last !== undefined &&
      (await this.#rows.together([
        { key: headOf(this.#rows.shard(shard)), written: written(change) },
        {
          key: last.key,
          written: new Expression().set(`h${spot.index}`, num(at)).whenAbsent(`h${spot.index}`).write(),
        },
      ]));
    if (!isDone) throw new Conflict(`job ${id} is being retried by another call; look again`);
  }

  async #addToKey({ shard, spot, key = '', id, dueAt }: FoundJob, at: number): Promise<void> {
    const pk = this.#rows.shard(shard);
    // A time that it was enqueued for counts on.
    const due = dueAt > at ? { dueAt, isScheduled: true } : { dueAt: 0, isScheduled: false };
    await this.#rows.decide(headOf(keyOf(pk, key)), (fields) =>
      jobAdded(readKeyHead(fields), { id, attempt: 0, ...due }),
    );
    const name = backName(`h${id}.${at}.${Math.floor(moment())}`);
    await this.#rows.change(headOf(pk), added({ name, spans: [{ ...spot, n: 1, attempts: POKE, dueAt: due.dueAt }] }));
  }

  /** Its token is that of the head: what a worker writes later counts for more. */
  #recordByHand(job: FoundJob, to: JobRecordEntry['to'], reason: string, error: string | null): Promise<void> {
    const { id, shard, head } = job;
    return writeRecords(this.#rows, [{ id, to, attempt: attemptOf(job), reason, error, result: undefined }], {
      shard,
      token: Math.max(head.fence, job.records.at(-1)?.token ?? 0),
      part: `h${Math.floor(this.#rows.engine.now())}.${id}`,
      processId: null,
      claimedAt: null,
      historyMs: this.#definition.historyMs,
    });
  }

  #claimOf({ head, spot, status }: FoundJob): string | undefined {
    if (status !== 'in-progress') return undefined;
    return head.claims.find(({ spans }) => isIn(spans, spot))?.request;
  }
}

function iso(at: number): string {
  return new Date(at).toISOString();
}
