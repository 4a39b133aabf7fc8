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
import { kindIdOf } from '../declare/kind-id.ts';
import type { Definition } from '../definition.ts';
import { shardOf } from '../enqueue.ts';
import type { JobStatus, ParentRecord } from '../job.ts';
import { type OwnOptions, ownOptions } from '../job-options.ts';
import type { ClaimAnswer, ClaimRequest, NewJobs, QueueIds, SettleAnswer, Settlement, WorkerRow } from '../store.ts';
import { NO_HANDOFF, type PortedStore, type WorkerPorts } from '../work/ports.ts';
import { QueueRows } from './database.ts';
import { declared, listName, readDeclared } from './declaration.ts';
import { isQuiet, rescued } from './heads/head.ts';
import { statusOfJob } from './operate/standing.ts';
import { addJobs, addUnique } from './producing.ts';
import { LEAST_MS } from './records.ts';
import { declarationOf, headOf, progressOf, uniqueOf, workersKey } from './rows.ts';
import { DynamoSchedules } from './schedules.ts';
import { Claimer } from './work/claiming.ts';
import type { HeldClaim } from './work/held.ts';
import { Household, keeperOf } from './work/household.ts';
import { Pruning } from './work/pruning.ts';
import { Settling } from './work/settling.ts';
import { WorkerRows } from './work/workers.ts';

/** How long a request of a producer or of a person is tried. */
const CALLER_MS = 30_000;
/** A claim is two requests of some milliseconds each, and others of the shard may come between. */
const AHEAD_MS = 150;

/** The requests of producers and workers of one queue. Each may be carried out twice: see docs/decisions/024-queue-on-dynamodb.md. */
export class DynamoQueueStore implements PortedStore {
  readonly engine: PortedStore['engine'];
  readonly rows: QueueRows;
  readonly household: Household;
  readonly schedules: DynamoSchedules;
  readonly workers: WorkerRows;
  readonly #engine: DynamoEngine;
  readonly #definition: Definition;
  readonly #held = new Map<number, HeldClaim>();
  readonly #claimer: Claimer;
  readonly #settling: Settling;
  #coalescing: ReadonlySet<number> = new Set();
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
    this.#claimer = new Claimer(this.rows, this.household.liveness, this.#held);
    this.#settling = new Settling(this.rows, this.#held, definition);
  }

  within(deadlineMs: number): DynamoQueueStore {
    const store = new DynamoQueueStore(this.#engine, this.#definition, deadlineMs);
    store.#coalescing = this.#coalescing;
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

  /** @throws Conflict  the shards, or whether keys run one by one, differ while jobs are outstanding */
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
    // Where nothing was left to declare, the row that says so counts: another program may have written it meanwhile.
    const { kinds = [] } = readDeclared(name, after ?? seen) ?? {};
    const ids = kinds.map((kind, id) => [kind, id] as const);
    this.#coalescing = new Set(
      ids.flatMap(([kind, id]) => ((definition.kinds.get(kind)?.coalesce ?? 'none') === 'none' ? [] : [id])),
    );
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
    refuseOptions(batch.options);
    const ids = await addJobs(this.rows, batch, trace, this.#definition.keyed);
    this.household.notify();
    return ids;
  }

  /** Of a unique kind. The status is that of a job that was there before: the caller reads it. */
  async enqueue(
    request: object,
    tx: unknown,
    trace?: string,
  ): Promise<{ id: string; status: JobStatus; duplicate: boolean }> {
    refuseTransaction(tx);
    const { kind, batch, key } = await this.#uniqueOf(request);
    const unique = uniqueOf(this.rows.shard(batch.shard), kind, key);
    const { id, isDuplicate } = await addUnique(this.rows, batch, unique, trace, this.#definition.keyed);
    this.household.notify();
    const status = isDuplicate ? await statusOfJob(this.rows, this.#definition, id) : 'new';
    return { id: String(id), status, duplicate: isDuplicate };
  }

  /** One after another: those before one that is refused are there. */
  async enqueueAll(
    requests: readonly object[],
    tx: unknown,
    trace?: string,
  ): Promise<{ id: string; status: JobStatus; duplicate: boolean }[]> {
    const answers: { id: string; status: JobStatus; duplicate: boolean }[] = [];
    for (const request of requests) answers.push(await this.enqueue(request, tx, trace));
    return answers;
  }

  addUnique(): Promise<never> {
    return Promise.reject(new NotSupported('on DynamoDB the only rule of unique is "key"'));
  }

  addAwaited(): Promise<never> {
    return Promise.reject(new NotSupported('on DynamoDB a job is not awaited by its enqueue: run() enqueues it, and then looks for its end'));
  }

  addInto(): Promise<number[]> {
    return Promise.reject(new NotSupported('there are no batches of jobs on DynamoDB'));
  }

  /** The request of a unique job as a batch of one. */
  async #uniqueOf(request: object): Promise<{ kind: string; key: string; batch: NewJobs }> {
    const { kindId } = await this.register(this.#definition);
    const given: UniqueRequest = request;
    const { kind = '', key = '', payload = null, priority = 0, runAt, delay } = given;
    if (given.after !== undefined && given.after.length > 0)
      throw new NotSupported('on DynamoDB no job comes after others: leave out after, or use a key');
    const { schedule: _, ...options } = given;
    const own = ownOptions(options);
    refuseOptions(own === undefined ? null : JSON.stringify([own]));
    const batch: NewJobs = {
      shard: shardOf(key, this.#definition.shards),
      n: 1,
      kinds: [kindIdOf(kind, { kindId })],
      priorities: [priority],
      payloads: JSON.stringify([payload]),
      keys: [key],
      runAt: runAt === undefined ? null : [new Date(runAt)],
      delays: delay === undefined ? null : [Number.parseFloat(delay)],
      options: own === undefined ? null : JSON.stringify([own]),
    };
    return { kind, key, batch };
  }

  claim(request: ClaimRequest): Promise<ClaimAnswer> {
    return this.#claimer.claim(request, { coalescing: this.#coalescing });
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

  /** There are no notifications to wish for. */
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

  /** In one transaction with the check of its worker's row. @throws LeaseLost */
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

  parents(): Promise<readonly ParentRecord[]> {
    return Promise.resolve([]);
  }

  guard(): Promise<void> {
    return Promise.reject(
      new NotSupported(
        'on DynamoDB unit.guard(tx) has no transaction to join: put unit.guardItems() into your TransactWriteItems',
      ),
    );
  }

  /** Fails the transaction that it is put into, unless the claim is still this worker's. */
  guardItems(claim: number): readonly ConditionCheckItem[] {
    const held = this.#held.get(claim);
    if (held === undefined) throw new LeaseLost('the unit is over: nothing may be written for it any more');
    return [this.#engine.check(workerOf(workersKey(this.rows.queue), held.claim.worker), IS_THERE)];
  }
}

/** A request as a producer makes it: see `requestOptions` in job-options.ts. */
interface UniqueRequest extends OwnOptions {
  readonly kind?: string;
  readonly key?: string;
  readonly payload?: unknown;
  readonly priority?: number;
  readonly runAt?: string;
  /** `250 milliseconds`. */
  readonly delay?: string;
  readonly after?: readonly string[];
}

const IS_THERE = { ConditionExpression: 'attribute_exists(pk)' } as const;

function lost(job: number): LeaseLost {
  return new LeaseLost(`job ${job} is no longer this worker's: stop working on it`);
}

/** @throws NotSupported  no claim removes a job whose time is over */
export function refuseOptions(options: string | null): void {
  if (options?.includes('"expiresAt":') !== true) return;
  const all: ({ readonly expiresAt?: string } | null)[] = JSON.parse(options);
  if (all.every((own) => own?.expiresAt === undefined)) return;
  throw new NotSupported('on DynamoDB jobs do not expire: leave out expiresAt, and look at the time in the handler');
}

function refuseTransaction(tx: unknown): void {
  if (tx === undefined) return;
  throw new InvalidInput('on DynamoDB enqueue takes no tx: put queue.enqueueItems(…) into your TransactWriteItems', {
    field: 'tx',
  });
}
