import type { Handoff, Offer, RecallResult } from '../base/handoff/handoff.ts';
import type { Transaction } from '../engine/postgres/index.ts';
import type { Definition } from './definition.ts';
import type { JobStatus } from './job.ts';

/** The ids under which a database knows a queue and its kinds. */
export interface QueueIds {
  readonly queue: number;
  readonly kindId: ReadonlyMap<string, number>;
  readonly kindName: ReadonlyMap<number, string>;
}

/** Jobs to be added at once; arrays run parallel. A single-element kinds or priorities stands for all. */
export interface Batch {
  readonly shard: number;
  readonly n: number;
  readonly kinds: readonly number[];
  readonly priorities: readonly number[];
  /** A JSON array of n payloads. */
  readonly payloads: string;
  readonly keys: readonly (string | null)[] | null;
  readonly runAt: readonly (Date | null)[] | null;
}

/** Where a pass through one shard goes on. */
export interface Cursor {
  readonly priority: number;
  readonly id: number;
}

export interface ClaimRequest {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  /** Jobs there is room for. */
  readonly limit: number;
  /** How many of them start at once. */
  readonly slots: number;
  /** Ready rows to look at. */
  readonly rows: number;
  /** Jobs of one key to take together. */
  readonly chain: number;
  readonly cursor: Cursor;
}

/** When a job was enqueued, in milliseconds since 1970; of a job of a schedule also which tick it is for: see pawl.queue_origin(). */
export type Origin = number | ScheduledOrigin;

export interface ScheduledOrigin {
  readonly enqueuedAt: number;
  readonly schedule: string;
  readonly tickAt: number;
}

/** Jobs without a key, whose ids follow one another. */
export interface ClaimedRun {
  readonly claim: number;
  readonly first: number;
  readonly n: number;
  readonly kind: number;
  readonly attempt: number;
  readonly origin: Origin;
  readonly payloads: readonly unknown[];
}

/** Jobs of one key, oldest first, an array each field. */
export interface ClaimedKey {
  readonly key: string;
  readonly epoch: number;
  readonly ids: readonly number[];
  readonly claims: readonly number[];
  readonly kinds: readonly number[];
  readonly attempts: readonly number[];
  readonly origins: readonly Origin[];
  readonly payloads: readonly unknown[];
  /** Numbers of coalesced units, which jobs of one unit share; null for the others. Missing where no kind coalesces. */
  readonly units?: readonly (number | null)[];
  /** The predecessor that ended in error, where the kind fails then. Missing where no kind has one. */
  readonly brokenBy?: readonly (number | null)[];
  /** The units of which only the newest job came with its payload. */
  readonly latest?: readonly number[];
}

/** First attempts of keys whose jobs run one by one, oldest first, an array each field; `nth` counts the keys from 1. */
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
  /** How many ready rows were looked at. */
  readonly seen: number;
  /** Everything up to here, in order, is dealt with for this pass. */
  readonly last?: Cursor;
  readonly paused?: boolean;
  /** Claims whose jobs should start at once: a crash would cost them their last attempt, or was blamed on them before. */
  readonly alone?: readonly number[];
  /** Nothing was claimed, though rows are there: somebody else holds them just now. */
  readonly busy?: boolean;
  /** Nothing was claimed, and the offer that went along was left. */
  readonly offered?: boolean;
  /** Milliseconds until the next delayed job is due. */
  readonly due?: number;
  /** hold 'transaction': what a transaction of its own has to put out of the way: see {@link Blocker}. */
  readonly blockedBy?: Blocker['what'];
  /** hold 'transaction': once that is done, there may be something to claim from where this poll began. */
  readonly again?: boolean;
  /** hold 'transaction', a job without a key: when it was claimed. There is no row in queue_running. */
  readonly claimedAt?: string;
}

/** hold 'transaction': where the search for one unit begins, how many ready rows it reads, and what is to be done before. */
export interface ClaimOneRequest extends Omit<ClaimRequest, 'limit' | 'slots' | 'chain'> {
  readonly blocker?: Blocker | undefined;
}

/** What stands in the way of a claim, and which rows it had read. */
export interface Blocker {
  /** Jobs that are due are to be brought back, a run is to be taken apart, or jobs of busy keys are to be parked. */
  readonly what: 'due' | 'run' | 'keys';
  readonly rows: number;
  readonly cursor: Cursor;
}

/** Which ready jobs without a key a worker is to read ahead. */
export interface PeekRequest {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  readonly rows: number;
  /** Where this worker was a while ago: jobs up to there that are still ready are anybody's. */
  readonly front: Cursor;
}

/** A ready job without a key that was read ahead. Jobs are never changed. */
export interface Candidate extends Cursor {
  readonly kind: number;
  readonly origin: Origin;
  /** Where its row stands. */
  readonly tid: string;
  /** Undefined where it is large: the take reads it. Null is a payload. */
  readonly payload?: unknown;
}

/** One job that did not complete. `retry` spends the attempt, `release` does not. */
export interface JobFailure {
  readonly claim: number;
  readonly id: number;
  readonly to: 'retry' | 'release' | 'error' | 'cancelled';
  /** Milliseconds until it may run again. */
  readonly wait?: number | undefined;
  /** Of a key whose next head is settled after it: parked, and not delayed by itself. */
  readonly behind?: boolean | undefined;
  readonly reason: string;
  readonly error?: string | undefined;
}

/** One job, and the claim that it is held under in this attempt. */
export interface HeldJob {
  readonly shard: number;
  readonly claim: number;
  readonly id: number;
  /** After how long a silence the server is to end the transaction that guards it. */
  readonly idleMs?: number | undefined;
}

/** What became of claimed jobs of one shard. */
export interface Settlement {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  /** Claims all of whose remaining jobs are complete, but those in `failed`. */
  readonly whole: readonly number[];
  readonly part: readonly { readonly claim: number; readonly ids: readonly number[] }[];
  readonly failed: readonly JobFailure[];
  /** `result` is JSON. */
  readonly results: readonly { readonly id: number; readonly claim: number; readonly result: string }[];
  /** Results of units of several jobs, likewise, each with its claims and their jobs: written once. */
  readonly shared: readonly {
    readonly result: string;
    readonly jobs: readonly (readonly [claim: number, ...ids: number[]])[];
  }[];
  /** Keys to give up, each under the epoch it was taken with. */
  readonly keys: readonly (readonly [key: string, epoch: number])[];
  /** Jobs among these for whose unit `guard` was called: a transaction of the handler may hold them still. */
  readonly guarded?: readonly number[];
}

/** What of a settlement was not written, and whether there may be something to claim after it. */
export interface SettleAnswer {
  /** Claims that were no longer the worker's: nothing was written for them. */
  readonly stale: readonly number[];
  /** Jobs that are guarded by a transaction that is still open. Where there is one, nothing was written at all. */
  readonly guarded: readonly number[];
  /** Something waits for a key that was given up. */
  readonly hasNext: boolean;
}

/** A job that an enqueue has claimed for a worker. */
export interface JobHandoff extends ClaimAnswer, Handoff {
  readonly shard: number;
}

/** An attempt to be spent outside of the transaction that was to say so: see pawl.queue_charge(). */
export interface Charge {
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
  readonly ids: readonly number[];
  /** Only jobs that are still in this attempt; null: in whichever. */
  readonly attempts: readonly number[] | null;
  /** They end in error, whatever is left to them. */
  readonly ends: boolean;
  readonly reason: string;
  readonly error: string;
}

export interface Charged {
  readonly id: number;
  readonly to: 'new' | 'error';
}

/** A job that ended in error without the worker that had it. */
export interface EndedJob {
  readonly id: number;
  readonly kind: string;
  readonly key: string | null;
  readonly attempt: number;
  readonly error: string;
  readonly origin: Origin;
  /** Its last attempt; null where the crash has undone the claim. */
  readonly process: string | null;
  readonly payload: unknown;
}

export interface RescueAnswer {
  /** Jobs that were taken from lost workers. */
  readonly jobs: number;
  /** Those of them that ended in error, and how many more did than are told of at once. */
  readonly ended: { readonly jobs: readonly EndedJob[]; readonly more: number } | null;
  /** The server's processes with transactions of lost workers that this role may not end. */
  readonly unended: readonly number[];
}

export interface WorkerRow {
  readonly queue: number;
  readonly host: string;
  readonly pid: number;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly hold: 'lease' | 'transaction';
}

export interface Heartbeat {
  readonly worker: number;
  readonly wantsNotify: boolean;
  readonly holding: readonly number[];
}

export interface HeartbeatAnswer {
  /** Workers whose lease was renewed; one that is missing has lost it. */
  readonly alive: readonly number[];
  readonly cancel: readonly { readonly worker: number; readonly id: number; readonly reason: string | null }[];
  /** hold 'transaction': one of the same queue was found dead within the last ten minutes. */
  readonly wary: readonly number[];
}

/** What the workers of a queue ask of a database. Every method is one round trip unless it says otherwise. */
export interface QueueStore {
  /** Makes the queue and its kinds known, or brings what is known up to date. @throws Conflict when shards cannot change now */
  register(definition: Definition): Promise<QueueIds>;
  /** One job, in the caller's transaction or its own. @param trace  in which it is enqueued, as traceparent */
  enqueue(request: object, tx: unknown, trace?: string): Promise<{ id: string; status: JobStatus; duplicate: boolean }>;
  /** Many jobs of kinds that are not unique. @param trace  in which they are enqueued @returns their ids in order */
  add(queue: number, batch: Batch, tx: unknown, trace?: string): Promise<number[]>;
  /** The traces in which these jobs were enqueued, of those that have one. `tx` is asked instead, where it is given. */
  traces(ids: readonly string[], tx?: Transaction): Promise<ReadonlyMap<string, string>>;
  /** Leaves an offer when there is nothing to claim. */
  claim(request: ClaimRequest, offer?: Offer): Promise<ClaimAnswer>;
  /** hold 'transaction': what the lanes may take. @throws LeaseLost when the worker is no longer registered */
  peek(request: PeekRequest): Promise<Candidate[]>;
  /** Leaves an offer in the same commit, if there is one. Waits for no guard. */
  settle(settlement: Settlement, offer?: Offer): Promise<SettleAnswer>;
  offer(queue: number, offer: Offer): Promise<void>;
  /** Takes back the offers that nobody is just using. @returns their numbers */
  withdraw(queue: number, worker: number): Promise<number[]>;
  /** Has sleeping workers look for work. */
  wake(queue: number): Promise<void>;
  addWorker(row: WorkerRow): Promise<number>;
  /** All workers of a process in one statement. */
  beat(beats: readonly Heartbeat[]): Promise<HeartbeatAnswer>;
  /** Gives back, uncharged, what the worker holds beside these claims: a claim's answer was lost, or a notification. */
  recall(queue: number, worker: number, known: readonly number[]): Promise<RecallResult>;
  /** The same before a worker stops, once its offers are gone, used ones included. */
  leave(queue: number, worker: number, known: readonly number[]): Promise<void>;
  /** Says whether an enqueue should wake this worker. */
  setWants(worker: number, wants: boolean): Promise<void>;
  /** @throws LeaseLost when the claim is no longer the worker's; without a claim the caller has other proof that it is */
  progress(shard: number, claim: number | undefined, job: number, json: string): Promise<void>;
  /** In the caller's transaction, until that ends. @throws LeaseLost when a job is no longer held under its claim */
  guard(held: readonly HeldJob[], tx: unknown): Promise<void>;
  removeWorker(worker: number): Promise<void>;
  /** Gives back what lost workers held, and ends the transactions that they left open. */
  rescue(queue: number): Promise<RescueAnswer>;
  /** @returns the jobs that were charged. @throws LockNotAvailable while somebody else is at one of them */
  charge(charge: Charge): Promise<Charged[]>;
  /** Removes a bounded amount of history. @returns how many jobs went */
  prune(queue: number): Promise<number>;
}
