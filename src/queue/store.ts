import type { Handoff, Offer, RecallResult } from '../base/handoff/handoff.ts';
import type { Transaction } from '../engine/postgres/index.ts';
import type { UniqueRule } from './declare/unique.ts';
import type { Definition } from './definition.ts';
import type { JobStatus, ParentRecord } from './job.ts';
import type { Origin } from './job-options.ts';
import type { Charge, ChargedJob, RescueAnswer } from './lost-jobs.ts';
import type { StoredPart } from './paused-part.ts';

/** The ids of a queue and its kinds in a database. */
export interface QueueIds {
  readonly queue: number;
  readonly kindId: ReadonlyMap<string, number>;
  readonly kindName: ReadonlyMap<number, string>;
}

/** Jobs to be added in one statement, as parallel arrays. A single element in `kinds` or `priorities` stands for all jobs. */
export interface NewJobs {
  readonly shard: number;
  readonly n: number;
  readonly kinds: readonly number[];
  readonly priorities: readonly number[];
  /** A JSON array of n payloads. */
  readonly payloads: string;
  readonly keys: readonly (string | null)[] | null;
  readonly runAt: readonly (Date | null)[] | null;
  /** Milliseconds from now, if `runAt` is null. */
  readonly delays: readonly (number | null)[] | null;
  /** A JSON array of the options that are stored with each job, or null. */
  readonly options: string | null;
  /** The number of shards that the producer declares: if another one is declared by now, the database divides the jobs anew. */
  readonly declared?: number | undefined;
}

/** Jobs for some of which the database decides whether they exist already. Each has a shard, or the only one stands for all. */
export interface UniqueJobs extends Omit<NewJobs, 'shard'> {
  readonly shards: readonly number[];
  readonly rules: readonly (UniqueRule & { readonly kind: number })[];
}

/** The ids of many jobs, and the indexes, from 0, of those that existed already. */
export interface DecidedJobs {
  readonly ids: readonly string[];
  readonly duplicates: readonly number[];
}

/** Where a pass through one shard continues. */
export interface Cursor {
  readonly priority: number;
  readonly id: number;
}

export interface ClaimRequest {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  /** The most jobs to claim. */
  readonly limit: number;
  /** How many of them can start at once. */
  readonly slots: number;
  /** Ready rows to read. */
  readonly rows: number;
  /** The most jobs of one key to claim together. */
  readonly chain: number;
  readonly cursor: Cursor;
  /** Undefined: any job. */
  readonly part?: ClaimedPart | undefined;
}

/** The part of the work that a worker takes: its kinds, and the last priority. Its passes begin at the first priority. */
export interface ClaimedPart {
  readonly kinds: readonly number[];
  readonly upto: number;
}

/** Jobs without a key with consecutive ids. */
export interface ClaimedRun {
  readonly claim: number;
  readonly first: number;
  readonly n: number;
  readonly kind: number;
  readonly attempt: number;
  readonly origin: Origin;
  readonly payloads: readonly unknown[];
}

/** Jobs of one key, oldest first, with an array per field. */
export interface ClaimedKey {
  readonly key: string;
  readonly epoch: number;
  readonly ids: readonly number[];
  readonly claims: readonly number[];
  readonly kinds: readonly number[];
  readonly attempts: readonly number[];
  readonly origins: readonly Origin[];
  readonly payloads: readonly unknown[];
  /** The number of the coalesced unit of each job; null for other jobs. Missing if no kind coalesces. */
  readonly units?: readonly (number | null)[];
  /** The predecessor that ended in error, for kinds that fail then. Missing if no kind has predecessors. */
  readonly brokenBy?: readonly (number | null)[];
  /** The units for which only the newest job has its payload. */
  readonly latest?: readonly number[];
}

/** First attempts of keys whose jobs run one by one, oldest first, with an array per field; `nth` counts the keys from 1. */
export interface ClaimedChains {
  readonly claim: number;
  readonly epoch: number;
  readonly keys: readonly string[];
  readonly nth: readonly number[];
  readonly ids: readonly number[];
  readonly kinds: readonly number[];
  readonly origins: readonly Origin[];
  readonly payloads: readonly unknown[];
}

export interface ClaimAnswer {
  readonly runs: readonly ClaimedRun[];
  readonly keys: readonly ClaimedKey[];
  readonly chains?: ClaimedChains;
  /** Process id by claim. */
  readonly processes?: Readonly<Record<string, string>>;
  /** How many ready rows were read. */
  readonly seen: number;
  /** The pass has handled all rows up to here. */
  readonly last?: Cursor;
  readonly paused?: boolean;
  /** If jobs were claimed: the paused parts of the queue. The worker sets jobs of these parts aside. */
  readonly pausedParts?: readonly StoredPart[];
  /** Claims whose jobs should start at once: a crash would cost their last attempt, or a crash was charged to them before. */
  readonly alone?: readonly number[];
  /** True: nothing was claimed although there are rows, because other transactions hold them now. */
  readonly busy?: boolean;
  /** True: nothing was claimed, and the worker's offer was made. */
  readonly offered?: boolean;
  /** Milliseconds until the next delayed job is due. */
  readonly due?: number;
  /** hold 'transaction': what blocks the claim and must be removed in a separate transaction first: see {@link Blocker}. */
  readonly blockedBy?: Blocker['what'];
  /** hold 'transaction': after that, there may be jobs to claim from the beginning of this poll on. */
  readonly again?: boolean;
  /** hold 'transaction', for a job without a key: the time of the claim, because there is no row in queue_running. */
  readonly claimedAt?: string;
}

/**
 * hold 'transaction': where the search for one unit begins, how many ready rows it reads, and the blocker to remove first.
 */
export interface ClaimOneRequest extends Omit<ClaimRequest, 'limit' | 'slots' | 'chain'> {
  readonly blocker?: Blocker | undefined;
}

/** What blocks a claim, and the rows that it had read. */
export interface Blocker {
  /** `due`: due jobs have to be made ready. `places`: jobs of groups have to be admitted. `run`: a run has to be split. `keys`: jobs of busy keys have to be parked. */
  readonly what: 'due' | 'places' | 'run' | 'keys';
  readonly rows: number;
  readonly cursor: Cursor;
}

/** The request of a look-ahead: which ready jobs without a key a worker reads. */
export interface PeekRequest {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  readonly rows: number;
  /** An earlier position of this worker: any worker may take jobs up to there that are still ready. */
  readonly front: Cursor;
}

/** A ready job without a key from a look-ahead. */
export interface Candidate extends Cursor {
  readonly kind: number;
  readonly origin: Origin;
  /** The place of its row. */
  readonly tid: string;
  /** The transaction that wrote the row: after an update, another row may be at the same place. */
  readonly xmin: number;
  /** Undefined for a large payload, which the take reads. Null is a payload. */
  readonly payload?: unknown;
}

/** One job that did not complete. `retry` spends the attempt, `release` does not. */
export interface JobFailure {
  readonly claim: number;
  readonly id: number;
  readonly to: 'retry' | 'release' | 'error' | 'cancelled';
  /** Milliseconds until the job may run again. */
  readonly wait?: number | undefined;
  /** True for a job of a key if the key's next head is settled after it: the job is parked, and has no delay of its own. */
  readonly behind?: boolean | undefined;
  readonly reason: string;
  readonly error?: string | undefined;
}

/** One job, and its claim in this attempt. */
export interface HeldJob {
  readonly shard: number;
  readonly claim: number;
  readonly id: number;
  /** How long the guarding transaction may be idle before the server ends it. */
  readonly idleMs?: number | undefined;
}

/** The outcomes of claimed jobs of one shard. */
export interface Settlement {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  /** Claims whose remaining jobs are all complete, except those in `failed`. */
  readonly whole: readonly number[];
  readonly part: readonly { readonly claim: number; readonly ids: readonly number[] }[];
  readonly failed: readonly JobFailure[];
  /** `result` is JSON. */
  readonly results: readonly { readonly id: number; readonly claim: number; readonly result: string }[];
  /** Results of units of several jobs, also JSON, each with its claims and their jobs: written once. */
  readonly shared: readonly {
    readonly result: string;
    readonly jobs: readonly (readonly [claim: number, ...ids: number[]])[];
  }[];
  /** Keys to give up, each with the epoch of its claim. */
  readonly keys: readonly (readonly [key: string, epoch: number])[];
  /** Jobs among these whose handler called `guard`: a transaction of the handler may still hold them. */
  readonly guarded?: readonly number[];
}

/** The part of a settlement that was not written, and whether there may be jobs to claim after it. */
export interface SettleAnswer {
  /** Claims that the worker no longer owned: nothing was written for them. */
  readonly stale: readonly number[];
  /** Jobs that an open transaction guards. If there is such a job, nothing was written at all. */
  readonly guarded: readonly number[];
  /** True: a job waits for a key that was given up. */
  readonly hasNext: boolean;
}

/** A job that an enqueue has claimed for a worker. */
export interface JobHandoff extends ClaimAnswer, Handoff {
  readonly shard: number;
}

export interface WorkerRow {
  readonly queue: number;
  readonly host: string;
  readonly pid: number;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly hold: 'lease' | 'transaction';
  /** Undefined: any job. */
  readonly takes?: TakenPart | undefined;
}

/** The part of the work that a worker takes. */
export interface TakenPart {
  readonly kinds: readonly string[];
  readonly min: number;
  readonly max: number;
}

export interface Heartbeat {
  readonly worker: number;
  readonly wantsNotify: boolean;
  readonly holding: readonly number[];
  /** Whether the program of this worker listens for ends of jobs. */
  readonly tells: boolean;
}

export interface HeartbeatAnswer {
  /** Workers whose lease was renewed; a missing worker has lost its lease. */
  readonly alive: readonly number[];
  readonly cancel: readonly { readonly worker: number; readonly id: number; readonly reason: string | null }[];
  /** hold 'transaction': workers of a queue in which one was found dead within the last ten minutes. */
  readonly wary: readonly number[];
}

/** The port of a queue's workers to a database. Every method is one round trip unless it says otherwise. */
export interface QueueStore {
  /** Registers the queue and its kinds, or updates them. @throws Conflict when shards cannot change now */
  register(definition: Definition): Promise<QueueIds>;
  /** Adds one job, in the caller's transaction or its own. @param trace  the traceparent of the enqueue */
  enqueue(request: object, tx: unknown, trace?: string): Promise<{ id: string; status: JobStatus; duplicate: boolean }>;
  /** Adds many jobs like `enqueue`, all or none. @returns an answer for each, in order */
  enqueueAll(
    requests: readonly object[],
    tx: unknown,
    trace?: string,
  ): Promise<readonly { id: string; status: JobStatus; duplicate: boolean }[]>;
  /** Adds many jobs, all or none, of kinds without rules and of kinds whose rule is not one job of a key for ever. */
  addUnique(queue: number, jobs: UniqueJobs, tx: unknown, trace?: string): Promise<DecidedJobs>;
  /** Adds many jobs of kinds without rules. @param trace  the traceparent of the enqueue @returns their ids in order */
  add(queue: number, batch: NewJobs, tx: unknown, trace?: string): Promise<number[]>;
  /**
   * Adds one job, and the wait of this channel's process for it.
   * @returns isAwaited: false if the channel has no waits any more
   */
  addAwaited(queue: number, job: NewJobs, channel: string): Promise<{ id: number; isAwaited: boolean }>;
  /** Adds many jobs of kinds without rules into an open batch. @throws NotFound, Conflict */
  addInto(batch: string, queue: number, jobs: NewJobs, tx: unknown): Promise<number[]>;
  /** The traces in which these jobs were enqueued, for jobs that have one. With `tx`, it reads them through that transaction. */
  traces(ids: readonly string[], tx?: Transaction): Promise<ReadonlyMap<string, string>>;
  /** Claims jobs; makes the offer if there is nothing to claim. */
  claim(request: ClaimRequest, offer?: Offer): Promise<ClaimAnswer>;
  /** hold 'transaction': reads candidates for the lanes. @throws LeaseLost when the worker is no longer registered */
  peek(request: PeekRequest): Promise<Candidate[]>;
  /** Writes outcomes, and makes an offer in the same commit, if there is one. Does not wait for guards. */
  settle(settlement: Settlement, offer?: Offer): Promise<SettleAnswer>;
  offer(queue: number, offer: Offer): Promise<void>;
  /** Withdraws the offers that no enqueue is using now. @returns their numbers */
  withdraw(queue: number, worker: number): Promise<number[]>;
  /** Notifies idle workers to poll. */
  wake(queue: number): Promise<void>;
  addWorker(row: WorkerRow): Promise<number>;
  /** Sends the heartbeats of all workers of a process in one statement. */
  beat(beats: readonly Heartbeat[]): Promise<HeartbeatAnswer>;
  /** Gives back, uncharged, all claims of the worker except these: the answer to a claim, or a notification, was lost. */
  recall(queue: number, worker: number, known: readonly number[]): Promise<RecallResult>;
  /** The same before a worker stops, when all its offers are gone, including used ones. */
  leave(queue: number, worker: number, known: readonly number[]): Promise<void>;
  /** Sets whether an enqueue should wake this worker. */
  setWants(worker: number, wants: boolean): Promise<void>;
  /**
   * Stores the progress of a job. @throws LeaseLost when the claim is no longer the worker's; without a claim the caller has
   * another proof of ownership
   */
  progress(shard: number, claim: number | undefined, job: number, json: string): Promise<void>;
  /** The jobs that this one comes after. */
  parents(shard: number, job: number): Promise<readonly ParentRecord[]>;
  /** Guards jobs until the caller's transaction ends. @throws LeaseLost when a job is no longer held under its claim */
  guard(held: readonly HeldJob[], tx: unknown): Promise<void>;
  removeWorker(worker: number): Promise<void>;
  /**
   * Gives back the jobs of lost workers, and ends the transactions that they left open. It skips the workers `mine`, which are
   * alive.
   */
  rescue(queue: number, mine: readonly number[]): Promise<RescueAnswer>;
  /**
   * Charges an attempt. @returns the jobs that were charged. @throws LockNotAvailable while another transaction holds one of
   * them
   */
  charge(charge: Charge): Promise<ChargedJob[]>;
  /** Removes a bounded amount of history. @returns the number of removed jobs */
  prune(queue: number): Promise<number>;
}
