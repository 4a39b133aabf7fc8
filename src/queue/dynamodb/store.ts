import { Conflict, InvalidInput, LeaseLost, NotSupported } from '../../base/errors.ts';
import type { RecallResult } from '../../base/handoff/handoff.ts';
import {
  attribute,
  type ConditionCheckItem,
  type DynamoEngine,
  Expression,
  fieldsOf,
  num,
  TTL,
  workerOf,
} from '../../engine/dynamodb/index.ts';
import type { Debounce } from '../declare/unique.ts';
import type { Definition } from '../definition.ts';
import type { JobStatus, ParentRecord } from '../job.ts';
import type {
  ClaimAnswer,
  ClaimRequest,
  DecidedJobs,
  NewJobs,
  QueueIds,
  SettleAnswer,
  Settlement,
  UniqueJobs,
  WorkerRow,
} from '../store.ts';
import type { GivenNode } from '../watch/flow.ts';
import { NO_HANDOFF, type PortedStore, type WorkerPorts } from '../work/ports.ts';
import { Batches, refuseTx } from './batch/batches.ts';
import { BatchWatch } from './batch/watch.ts';
import { QueueRows } from './database.ts';
import { declared, listName, readDeclared } from './declaration.ts';
import { Deciding } from './enqueue/deciding.ts';
import { addFlow, type FlowQueue } from './enqueue/flow.ts';
import { addJobs } from './enqueue/producing.ts';
import { isQuiet, rescued } from './heads/head.ts';
import { parentsOf } from './operate/parents.ts';
import { LEAST_MS } from './records.ts';
import { declarationOf, headOf, progressOf, workersKey } from './rows.ts';
import { DynamoSchedules } from './schedules.ts';
import { Claimer, type ClaimKinds } from './work/claiming.ts';
import type { HeldClaim } from './work/held.ts';
import { Household, keeperOf } from './work/household.ts';
import { Pruning } from './work/pruning.ts';
import { Settling } from './work/settling.ts';
import { Waits } from './work/waits.ts';
import { WorkerRows } from './work/workers.ts';

/** How long the store tries a request of a producer or of a person. */
const CALLER_MS = 30_000;
/** A claim is two requests of some milliseconds each. Other claims of the shard may come between them. */
const AHEAD_MS = 150;

/** The requests of producers and workers of one queue. The service may execute each twice: see docs/decisions/024-queue-on-dynamodb.md. */
export class DynamoQueueStore implements PortedStore {
  readonly engine: PortedStore['engine'];
  readonly rows: QueueRows;
  readonly household: Household;
  readonly schedules: DynamoSchedules;
  readonly workers: WorkerRows;
  readonly batches: Batches;
  readonly #engine: DynamoEngine;
  readonly #definition: Definition;
  readonly #held = new Map<number, HeldClaim>();
  readonly #claimer: Claimer;
  readonly #settling: Settling;
  readonly #deciding: Deciding;
  #kinds: ClaimKinds = { coalescing: new Set(), debounced: new Map() };
  #ids: QueueIds | undefined;

  constructor(engine: DynamoEngine, definition: Definition, timeoutMs: number = CALLER_MS) {
    this.#engine = engine;
    this.#definition = definition;
    this.rows = new QueueRows(engine, definition.name, timeoutMs);
    this.household = Household.of(engine, definition.name);
    this.workers = new WorkerRows(this.rows, this.household);
    this.schedules = new DynamoSchedules(this.rows, definition, () => this.register(definition));
    this.engine = {
      isStopped: false,
      options: { logger: engine.logger },
      address: () => Promise.resolve(`the table "${engine.table}" of DynamoDB`),
    };
    const waits = new Waits(this.rows, definition, () => this.#known(), this.household.awaited);
    const { awaited, members } = this.household;
    const batches = new BatchWatch(this.rows, definition, () => this.#known(), members);
    this.batches = new Batches(this.rows, definition, batches);
    this.#claimer = new Claimer(this.rows, definition, this.household.liveness, this.#held, { waits, batches });
    this.#settling = new Settling(this.rows, this.#held, definition, [awaited, members]);
    this.#deciding = new Deciding(this.rows, definition, () => this.#known(), waits);
  }

  within(deadlineMs: number): DynamoQueueStore {
    const store = new DynamoQueueStore(this.#engine, this.#definition, deadlineMs);
    store.#kinds = this.#kinds;
    if (this.#ids !== undefined) store.#settling.ids = this.#ids;
    return store;
  }

  ports(_queue: number, leaseMs: number): WorkerPorts {
    this.household.ticks ??= this.schedules;
    this.household.pruning ??= new Pruning(this.rows, this.#definition, () => this.register(this.#definition));
    return {
      keeper: keeperOf(leaseMs, (beats) => this.workers.beat(beats)),
      group: this.household,
      handoff: () => NO_HANDOFF,
      aheadMs: AHEAD_MS,
    };
  }

  /** @throws Conflict  the number of shards, or whether keys have an order, differs while jobs are outstanding */
  async register(definition: Definition): Promise<QueueIds> {
    const { name, shards, keyed } = definition;
    const place = declarationOf(name);
    const before = fieldsOf(await this.rows.get(place));
    const known = readDeclared(name, before);
    const isOther = known !== undefined && (known.shards !== shards || known.keyed !== keyed);
    if (isOther) await this.#requireQuiet(known.shards, definition);
    if (known === undefined) await listName(this.rows);
    const now = this.#engine.now();
    let seen = before;
    const after = await this.rows.decide(place, (fields) => {
      seen = fields;
      return declared(fields, definition, now);
    });
    // If there was nothing to declare, the row that was read last counts: another program may have written it meanwhile.
    const { kinds = [] } = readDeclared(name, after ?? seen) ?? {};
    const ids = kinds.map((kind, id) => [kind, id] as const);
    this.#kinds = claimKindsOf(definition, ids);
    this.#ids = { queue: 0, kindId: new Map(ids), kindName: new Map(ids.map(([kind, id]) => [id, kind])) };
    this.#settling.ids = this.#ids;
    return this.#ids;
  }

  async #requireQuiet(shards: number, { name, shards: wanted }: Definition): Promise<void> {
    for (let shard = 0; shard < shards; shard += 1) {
      if (isQuiet(await this.rows.head(shard))) continue;
      throw new Conflict(
        `queue "${name}" has ${shards} shards and jobs that are not over: it can be declared with ${wanted} shards, or another perKey, once it is drained`,
      );
    }
  }

  async add(_queue: number, batch: NewJobs, tx: unknown, trace?: string): Promise<number[]> {
    refuseTransaction(tx);
    const ids = await addJobs(this.rows, this.withoutWaits(batch), trace, this.#definition.keyed);
    this.household.notify();
    return ids;
  }

  /** Adds a job, unless it exists already. The status is then that of the existing job. */
  async enqueue(
    request: object,
    tx: unknown,
    trace?: string,
  ): Promise<{ id: string; status: JobStatus; duplicate: boolean }> {
    refuseTransaction(tx);
    const answer = await this.#deciding.enqueue(request, trace);
    this.household.notify();
    return answer;
  }

  /** Adds one job after another. If one is refused, the jobs before it stay. */
  async enqueueAll(
    requests: readonly object[],
    tx: unknown,
    trace?: string,
  ): Promise<{ id: string; status: JobStatus; duplicate: boolean }[]> {
    const answers: { id: string; status: JobStatus; duplicate: boolean }[] = [];
    for (const request of requests) answers.push(await this.enqueue(request, tx, trace));
    return answers;
  }

  /** Adds one job after another, like `enqueueAll`. */
  async addUnique(_queue: number, batch: UniqueJobs, tx: unknown, trace?: string): Promise<DecidedJobs> {
    refuseTransaction(tx);
    const decided = await this.#deciding.addMany(this.withoutWaits(batch), trace);
    this.household.notify();
    return decided;
  }

  /** Removes the delays of jobs of debounced kinds: the worker that takes their key decides how long they wait. */
  withoutWaits<B extends Pick<NewJobs, 'n' | 'kinds' | 'delays'>>(batch: B): B {
    const { debounced } = this.#kinds;
    if (batch.delays === null || debounced.size === 0) return batch;
    const kindAt = (at: number): number => (batch.kinds.length === 1 ? batch.kinds[0] : batch.kinds[at]) ?? 0;
    return { ...batch, delays: batch.delays.map((delay, at) => (debounced.has(kindAt(at)) ? null : delay)) };
  }

  /** @param queues  the queues of the nodes, by name */
  async flow(
    given: readonly GivenNode[],
    queues: ReadonlyMap<string, FlowQueue>,
    ids: QueueIds,
  ): Promise<Readonly<Record<string, string>>> {
    if (given.length === 0) return {};
    const added = await addFlow({ rows: this.rows, definition: this.#definition, ids }, queues, given);
    this.household.notify();
    return added;
  }

  addAwaited(): Promise<never> {
    return Promise.reject(
      new NotSupported(
        'on DynamoDB a job is not awaited by its enqueue: run() enqueues it, and then looks for its end',
      ),
    );
  }

  async addInto(batch: string, _queue: number, jobs: NewJobs, tx: unknown): Promise<number[]> {
    refuseTx(tx);
    const ids = await this.batches.add(batch, this.withoutWaits(jobs));
    this.household.notify();
    return ids;
  }

  /** Adds one job to an open batch, or finds the existing job, like `enqueue`. @throws NotFound, Conflict */
  async enqueueInto(batch: string, request: object): Promise<{ id: string; status: JobStatus; duplicate: boolean }> {
    for (;;) {
      const answer = await this.#deciding.enqueueInto(request, (id) => this.batches.membership(batch, id));
      if (answer !== undefined) {
        this.household.notify();
        return answer;
      }
      await this.batches.requireOpen(batch);
    }
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#claimer.claim(request, this.#kinds);
  }

  settle(settlement: Settlement): Promise<SettleAnswer> {
    return this.#settling.settle(settlement);
  }

  wake(): Promise<void> {
    this.household.notify();
    return Promise.resolve();
  }

  addWorker(worker: WorkerRow): Promise<number> {
    return this.workers.add(worker);
  }

  removeWorker(worker: number): Promise<void> {
    return this.workers.remove(worker);
  }

  /** Does nothing, since there are no notifications. */
  setWants(): Promise<void> {
    return Promise.resolve();
  }

  async recall(_queue: number, worker: number, known: readonly number[]): Promise<RecallResult> {
    let lost = 0;
    for (let shard = 0; shard < this.#definition.shards; shard += 1) {
      const head = await this.rows.head(shard);
      for (const claim of head.claims) {
        const id = claim.token * 256 + shard;
        if (claim.worker !== worker || known.includes(id)) continue;
        const { isDone } = await this.rows.change(headOf(this.rows.shard(shard)), rescued(claim, false));
        this.#held.delete(id);
        if (isDone) lost += claim.spans.length;
      }
    }
    return { lost, offers: [] };
  }

  async leave(queue: number, worker: number, known: readonly number[]): Promise<void> {
    await this.recall(queue, worker, known);
  }

  /** Writes the progress in one transaction with a check of the worker's row. @throws LeaseLost */
  async progress(shard: number, claim: number | undefined, job: number, json: string): Promise<void> {
    const held = claim === undefined ? undefined : this.#held.get(claim);
    if (held === undefined) throw lost(job);
    const now = this.#engine.now();
    const request = new Expression().set('y', attribute(json)).set('t', num(now));
    const keptMs = Math.max(this.#definition.historyMs, LEAST_MS);
    if (Number.isFinite(keptMs)) request.set(TTL, num(Math.ceil((now + keptMs) / 1000)));
    const written = request.write();
    const isDone = await this.rows.together([
      { key: progressOf(this.rows.shard(shard), job), written },
      { key: workerOf(workersKey(this.rows.queue), held.claim.worker), checked: IS_THERE },
    ]);
    if (!isDone) throw lost(job);
  }

  async parents(_shard: number, job: number): Promise<readonly ParentRecord[]> {
    const { kindName } = await this.#known();
    return parentsOf(this.rows, this.#definition, kindName, job);
  }

  async #known(): Promise<QueueIds> {
    return this.#ids ?? (await this.register(this.#definition));
  }

  guard(): Promise<void> {
    return Promise.reject(
      new NotSupported(
        'on DynamoDB unit.guard(tx) has no transaction to join: put unit.guardItems() into your TransactWriteItems',
      ),
    );
  }

  /** The condition that makes a transaction fail if the worker of the claim was declared dead. */
  guardItems(claim: number): readonly ConditionCheckItem[] {
    const held = this.#held.get(claim);
    if (held === undefined) throw new LeaseLost('the unit is over: nothing more can be written for it');
    return [this.#engine.check(workerOf(workersKey(this.rows.queue), held.claim.worker), IS_THERE)];
  }
}

function claimKindsOf({ kinds }: Definition, ids: readonly (readonly [string, number])[]): ClaimKinds {
  const coalescing = new Set<number>();
  const debounced = new Map<number, Debounce>();
  for (const [name, id] of ids) {
    const kind = kinds.get(name);
    if (kind !== undefined && kind.coalesce !== 'none') coalescing.add(id);
    if (kind?.debounce !== undefined) debounced.set(id, kind.debounce);
  }
  return { coalescing, debounced };
}

const IS_THERE = { ConditionExpression: 'attribute_exists(pk)' } as const;

function lost(job: number): LeaseLost {
  return new LeaseLost(`job ${job} is no longer this worker's: stop working on it`);
}

function refuseTransaction(tx: unknown): void {
  if (tx === undefined) return;
  throw new InvalidInput('on DynamoDB enqueue takes no tx: put queue.enqueueItems(…) into your TransactWriteItems', {
    field: 'tx',
  });
}
