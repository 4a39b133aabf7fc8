import type { Offer } from '../../base/handoff/handoff.ts';
import { Cooldown } from '../../base/time/cooldown.ts';
import {
  type AnswerOptions,
  type PostgresEngine,
  type Session,
  type Subscription,
  type Transaction,
} from '../../engine/postgres/index.ts';
import type { Definition } from '../definition.ts';
import type { JobStatus, ParentRecord } from '../job.ts';
import type {
  Candidate,
  ClaimAnswer,
  ClaimedPart,
  ClaimRequest,
  DecidedJobs,
  HeldJob,
  NewJobs,
  PeekRequest,
  QueueIds,
  QueueStore,
  SettleAnswer,
  Settlement,
  UniqueJobs,
} from '../store.ts';
import { declarationOf } from './declaration.ts';
import { type HandoffHandlers, type JobNewsHandlers, listenForHandoffs, listenForJobs } from './listening.ts';
import { alone, fromJson, numbers, only } from './runner.ts';
import * as sql from './statements.ts';
import { Traces } from './traces.ts';
import { addValues, jobsText, oneValues, settleValues } from './values.ts';
import { PostgresWorkerStore } from './worker-store.ts';

/** The answer of pawl.enqueue() for one job. */
interface EnqueueRow {
  readonly id: string;
  readonly status: JobStatus;
  readonly duplicate: boolean;
}

/** Every statement of workers and producers. The functions that they call are in sql/queue/. */
export class PostgresQueueStore extends PostgresWorkerStore implements QueueStore {
  readonly #traces: Traces;
  readonly #cooldown = new Cooldown();

  constructor(engine: PostgresEngine, answer: AnswerOptions = {}) {
    super(engine, answer);
    this.#traces = new Traces(engine, this.runner);
  }

  /** A store with a time limit for each statement: see {@link AnswerOptions}. */
  within(deadlineMs: number): PostgresQueueStore {
    const store = new PostgresQueueStore(this.engine, { deadlineMs });
    store.schema = this.schema;
    if (this.keys !== this.runner) store.keys = alone(this.engine, { deadlineMs });
    return store;
  }

  /** A connection for a caller that runs several statements on it. */
  connect(): Promise<Session> {
    return this.engine.connect(this.answer);
  }

  async register(definition: Definition): Promise<QueueIds> {
    const [row] = await this.runner.query<{
      answer: { queue: number; kinds: Record<string, number> };
      isolation: string;
      schema: string;
      server: string;
    }>(sql.REGISTER, [JSON.stringify(declarationOf(definition))]);
    const { answer, isolation, schema, server } = only(row);
    await this.engine.meet(server);
    this.schema = Number(schema);
    if (isolation !== 'read committed') this.keys = alone(this.engine, this.answer);
    const { queue, kinds } = answer;
    const entries = Object.entries(kinds);
    return { queue, kindId: new Map(entries), kindName: new Map(entries.map(([name, id]) => [id, name])) };
  }

  async enqueue(request: object, tx: unknown, trace?: string): Promise<EnqueueRow> {
    return (await this.#enqueue(request, tx, trace)) as EnqueueRow;
  }

  async enqueueAll(requests: readonly object[], tx: unknown, trace?: string): Promise<EnqueueRow[]> {
    return (await this.#enqueue(requests, tx, trace)) as EnqueueRow[];
  }

  async #enqueue(request: object, tx: unknown, trace: string | undefined): Promise<unknown> {
    const value = JSON.stringify(request);
    const [row] =
      tx !== undefined
        ? await this.engine.callIn(tx, sql.ENQUEUE.text, value)
        : trace === undefined
          ? await this.keys.query<{ answer: unknown }>(sql.ENQUEUE, [value])
          : await this.keys.query<{ answer: unknown }>(sql.ENQUEUE_TRACED, [value, trace]);
    const answer = fromJson(only(row).answer) as EnqueueRow | EnqueueRow[];
    if (tx !== undefined && trace !== undefined) {
      const added = [answer].flat().filter((one) => !one.duplicate);
      if (added.length > 0)
        await this.#traces.write(
          tx,
          added.map(({ id }) => id),
          trace,
        );
    }
    return answer;
  }

  async addUnique(queue: number, jobs: UniqueJobs, tx: unknown, trace?: string): Promise<DecidedJobs> {
    const { payloads, options, ...columns } = jobs;
    const value = jobsText({ ...columns, queue: this.here(queue) }, payloads, options);
    const [row] =
      tx !== undefined
        ? await this.engine.callIn(tx, sql.ADD_UNIQUE.text, value)
        : trace === undefined
          ? await this.keys.query<{ answer: string }>(sql.ADD_UNIQUE, [value])
          : await this.keys.query<{ answer: string }>(sql.ADD_UNIQUE_TRACED, [value, trace]);
    const answer = JSON.parse(String(only(row).answer)) as { ids: number[]; duplicates: number[] };
    const ids = answer.ids.map(String);
    if (tx !== undefined && trace !== undefined) {
      const known = new Set(answer.duplicates);
      const added = ids.filter((_, index) => !known.has(index));
      if (added.length > 0) await this.#traces.write(tx, added, trace);
    }
    return { ids, duplicates: answer.duplicates };
  }

  async add(queue: number, batch: NewJobs, tx: unknown, trace?: string): Promise<number[]> {
    if (trace !== undefined) return this.#addTraced(queue, batch, tx, trace);
    if (batch.n === 1 && tx === undefined) return [await this.#addOne(oneValues(this.here(queue), batch))];
    const [row] =
      tx === undefined
        ? await this.runner.query<{ ids: string }>(sql.ADD, addValues(this.here(queue), batch))
        : await this.engine.callIn(tx, sql.ADD_JSON, this.#batchText(queue, batch));
    return numbers(String(only(row).ids));
  }

  async addInto(into: string, queue: number, jobs: NewJobs, tx: unknown): Promise<number[]> {
    const request = `[${into},${this.#batchText(queue, jobs)}]`;
    const [row] =
      tx === undefined
        ? await this.keys.query<{ ids: string }>(sql.BATCH_ADD, [request])
        : await this.engine.callIn(tx, sql.BATCH_ADD.text, request);
    return numbers(String(only(row).ids));
  }

  /** The parameter of `pawl.queue_add_json()`. */
  #batchText(queue: number, { payloads, options, ...columns }: NewJobs): string {
    return jobsText({ ...columns, queue: this.here(queue) }, payloads, options);
  }

  async #addTraced(queue: number, batch: NewJobs, tx: unknown, trace: string): Promise<number[]> {
    if (tx !== undefined) {
      const ids = await this.add(queue, batch, tx);
      await this.#traces.write(tx, ids, trace);
      return ids;
    }
    const [row] = await this.runner.query<{ ids: string }>(sql.ADD_TRACED, [
      ...addValues(this.here(queue), batch),
      trace,
    ]);
    this.#traces.pruneNowAndThen();
    return numbers(only(row).ids);
  }

  traces(ids: readonly string[], tx?: Transaction): Promise<ReadonlyMap<string, string>> {
    return this.#traces.read(ids, tx);
  }

  async addAwaited(queue: number, job: NewJobs, channel: string): Promise<{ id: number; isAwaited: boolean }> {
    const values = oneValues(this.here(queue), job);
    if (!this.#cooldown.isOver) return { id: await this.#addOne(values), isAwaited: false };
    const [row] = await this.runner.query<{ answer: string }>(sql.ADD_AWAITED, [...values, channel]);
    const { id, isAwaited = false } = this.#added(row);
    return { id, isAwaited };
  }

  /** Adds one job, with a direct hand-off if a worker is idle. */
  async #addOne(values: unknown[]): Promise<number> {
    if (!this.#cooldown.isOver) {
      const [added] = await this.runner.query<{ id: string }>(sql.ADD_ONE, values);
      return Number(only(added).id);
    }
    const [row] = await this.runner.query<{ answer: string }>(sql.ADD_ALONE, values);
    return this.#added(row).id;
  }

  #added(row: { answer: string } | undefined): { id: number; isAwaited?: boolean } {
    const added = JSON.parse(only(row).answer) as { id: number; isSlow?: boolean; isAwaited?: boolean };
    this.#cooldown.record(added.isSlow ?? false);
    return added;
  }

  async claim(request: ClaimRequest, offer?: Offer): Promise<ClaimAnswer> {
    const { queue, shard, worker, limit, slots, rows, chain, cursor, part } = request;
    const values = [queue, shard, worker, limit, slots, rows, chain, cursor.priority, cursor.id];
    if (part !== undefined) return this.#claimPart(values, part);
    const [row] =
      offer === undefined
        ? await this.keys.query<{ answer: string }>(sql.CLAIM, values)
        : await this.keys.query<{ answer: string }>(sql.CLAIM_OR_OFFER, [...values, offer.number, offer.channel]);
    return JSON.parse(only(row).answer) as ClaimAnswer;
  }

  async #claimPart(values: readonly unknown[], { kinds, upto }: ClaimedPart): Promise<ClaimAnswer> {
    const [row] = await this.keys.query<{ answer: string }>(sql.CLAIM_PART, [...values, kinds, upto]);
    return JSON.parse(only(row).answer) as ClaimAnswer;
  }

  async peek({ queue, shard, worker, rows, front }: PeekRequest): Promise<Candidate[]> {
    const values = [queue, shard, worker, rows, front.priority, front.id];
    const [row] = await this.keys.query<{ candidates: string | null }>(sql.PEEK, values);
    return JSON.parse(only(row).candidates ?? '[]') as Candidate[];
  }

  async settle(settlement: Settlement, offer?: Offer): Promise<SettleAnswer> {
    const values = settleValues(settlement);
    const [row] =
      offer === undefined
        ? await this.keys.query<{ answer: string }>(sql.SETTLE, values)
        : await this.keys.query<{ answer: string }>(sql.SETTLE_AND_OFFER, [...values, offer.number, offer.channel]);
    return JSON.parse(only(row).answer) as SettleAnswer;
  }

  async offer(queue: number, { worker, number, channel }: Offer): Promise<void> {
    await this.runner.query(sql.OFFER, [queue, worker, number, channel]);
  }

  async withdraw(queue: number, worker: number): Promise<number[]> {
    const [row] = await this.runner.query<{ numbers: string }>(sql.WITHDRAW, [queue, worker]);
    return numbers(only(row).numbers);
  }

  async wake(queue: number): Promise<void> {
    await this.runner.query(sql.WAKE, [queue]);
  }

  /**
   * Calls the listeners when a job was enqueued, when such notifications may have been lost, when a running job of this process
   * is to be cancelled, and when jobs may have ended that others come after.
   */
  listen(queue: number, handlers: JobNewsHandlers): Promise<Subscription> {
    return listenForJobs(this.engine, queue, handlers);
  }

  /** Calls back with each job that is handed over through this channel; marks the channel as listened to. */
  listenForHandoffs(channel: string, handlers: HandoffHandlers): Promise<Subscription> {
    return listenForHandoffs(this.engine, channel, handlers);
  }

  async progress(shard: number, claim: number | undefined, job: number, json: string): Promise<void> {
    await this.runner.query(sql.PROGRESS, [`[${JSON.stringify({ shard, claim, id: job })},${json}]`]);
  }

  async parents(shard: number, job: number): Promise<readonly ParentRecord[]> {
    const [row] = await this.runner.query<{ parents: readonly ParentRecord[] }>(sql.PARENTS, [shard, job]);
    return only(row).parents;
  }

  async guard(held: readonly HeldJob[], tx: unknown): Promise<void> {
    await this.engine.callIn(tx, sql.GUARD, JSON.stringify(held));
  }
}
