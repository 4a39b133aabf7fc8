import { randomUUID } from 'node:crypto';
import { Stopped } from '../../base/errors.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { FailureLog } from '../../base/work/failure-log.ts';
import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { JobStatus } from '../job.ts';
import { PostgresQueueWaits, type ToldJob, type WaitedJob } from '../postgres/watch/waits.ts';

/** A job that has ended. If `told` is missing, the result has to be read. */
export interface EndedWait {
  /** Null: there is no such job. */
  readonly status: JobStatus | null;
  readonly told?: { readonly result: unknown };
  /** The engine was stopped meanwhile. */
  readonly stopped?: Stopped;
}

/** A job that callers in this process wait for. */
interface Wait {
  readonly callers: Set<Caller>;
  isAdded: boolean;
  /** The time of the next poll, by the monotonic clock, and the interval after that. */
  dueMs: number;
  restMs: number;
}

interface Caller {
  readonly queue: string;
  readonly tell: (ended: EndedWait) => void;
}

/**
 * A settlement that was under way when the wait began may have missed it. The first poll comes when such a settlement is usually
 * committed. Later polls are for lost notifications; workers poll every two seconds, too.
 */
const POLL_MS = { first: 20, last: 2000, factor: 5 } as const;
/**
 * How long the rows of a dead process stay. If no other statement renews this lease, the waits renew it when a third of it is
 * over.
 */
const LEASE_MS = 60_000;
/** The most jobs of one poll. */
const AT_ONCE = 1000;
/**
 * The most ended jobs to remember whose ids were not known here yet: jobs of calls that are under way, and of waits that were
 * given up.
 */
const EARLY_MOST = 1000;
/** How long the channel is kept without a wait: it saves the next wait a statement. */
const LINGER_MS = 2000;

/**
 * Waits for jobs to end, for all callers of this process on one database: one channel on the engine's listening connection, and
 * one statement for all waits that begin together. It also polls each job at intervals.
 */
export class JobWaits {
  static readonly #ofEngine = new WeakMap<PostgresEngine, JobWaits>();

  readonly #store: PostgresQueueWaits;
  readonly #failures: FailureLog;
  /** By job id. The waits with the earliest poll come first. */
  readonly #waits = new Map<string, Wait>();
  readonly #dropped = new Set<string>();
  readonly #channel = `pawl_wait_${randomUUID()}`;
  #subscription: Promise<Subscription> | undefined;
  #loop: Loop | undefined;
  #idleSinceMs = 0;
  /** When a statement last renewed the lease of the channel, by the monotonic clock. */
  #renewedMs = -Infinity;
  /** The database has a watch for the channel, and this process listens to it. */
  #isOpen = false;
  /** The number of calls that enqueue a job and wait for it, and the ended jobs that none of them has named yet. */
  #runs = 0;
  readonly #early = new Map<string, EndedWait>();

  private constructor(engine: PostgresEngine) {
    this.#store = new PostgresQueueWaits(engine);
    this.#failures = new FailureLog(engine.options.logger, 'waiting for jobs');
  }

  /** The waits of this process on this engine. */
  static for(engine: PostgresEngine): JobWaits {
    const waits = JobWaits.#ofEngine.get(engine) ?? new JobWaits(engine);
    JobWaits.#ofEngine.set(engine, waits);
    return waits;
  }

  /**
   * Runs a call that enqueues a job and waits for it. `run` gets the channel if the wait can begin with the enqueue. The job may
   * have ended before its id is known here.
   */
  async during<T>(run: (channel: string | undefined) => Promise<T>): Promise<T> {
    this.#runs += 1;
    try {
      return await run(this.#isOpen ? this.#channel : undefined);
    } finally {
      this.#runs -= 1;
      if (this.#runs === 0) this.#early.clear();
    }
  }

  /**
   * Resolves when the job has ended; resolves to undefined as soon as the signal is aborted. It does not find a job of another
   * queue.
   * @param isAdded  the wait was written together with the job
   */
  ended(queue: string, id: string, signal: AbortSignal, isAdded = false): Promise<EndedWait | undefined> {
    return new Promise((resolve) => {
      const finish = (ended: EndedWait | undefined): void => {
        signal.removeEventListener('abort', give);
        resolve(ended);
      };
      const caller: Caller = { queue, tell: finish };
      const give = (): void => {
        this.#leave(id, caller);
        finish(undefined);
      };
      if (signal.aborted) return finish(undefined);
      const early = this.#early.get(id);
      if (early !== undefined && isAdded) return finish(early);
      signal.addEventListener('abort', give, { once: true });
      this.#join(id, caller, isAdded);
    });
  }

  #join(id: string, caller: Caller, isAdded: boolean): void {
    const known = this.#waits.get(id);
    if (known !== undefined) {
      known.callers.add(caller);
      // The answer to a job that is added now says its queue.
      known.isAdded = false;
    } else {
      this.#dropped.delete(id);
      // The wait was written together with the job, so no settlement can have missed it.
      const restMs = isAdded ? POLL_MS.last : POLL_MS.first;
      this.#waits.set(id, { callers: new Set([caller]), isAdded, dueMs: performance.now() + restMs, restMs });
    }
    this.#loop ??= startLoop({
      name: 'queue.wait',
      run: () => this.#turn(),
      onError: (error) => this.#failures.warn(error),
      // Each caller has a timer of its own, which keeps the process alive.
      unref: true,
    });
    this.#loop.wake();
  }

  #leave(id: string, caller: Caller): void {
    const wait = this.#waits.get(id);
    if (!wait?.callers.delete(caller) || wait.callers.size > 0) return;
    this.#waits.delete(id);
    if (wait.isAdded) this.#dropped.add(id);
  }

  /** Registers new waits, drops finished ones, and polls those that are due. One round trip; none if there is nothing to do. */
  async #turn(): Promise<number | 'again'> {
    if (this.#waits.size === 0 && this.#dropped.size === 0) return this.#idle();
    this.#idleSinceMs = 0;
    try {
      await this.#listen();
      await this.#ask();
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      for (const id of Array.from(this.#waits.keys())) this.#tell(id, { status: null, stopped: error });
      this.#dropped.clear();
      return Infinity;
    }
    return this.#rest();
  }

  async #ask(): Promise<void> {
    const nowMs = performance.now();
    const added: string[] = [];
    const polled: string[] = [];
    for (const [id, wait] of this.#waits) {
      if (added.length + polled.length >= AT_ONCE) break;
      if (!wait.isAdded) added.push(id);
      else if (wait.dueMs <= nowMs) polled.push(id);
    }
    const dropped = [...this.#dropped];
    // Waits that were written together with their jobs need no statement: it would compete with the settlement that ends the
    // jobs.
    if (added.length + polled.length + dropped.length === 0 && nowMs - this.#renewedMs < LEASE_MS / 3) return;
    // Marked before the answer: a caller that joins meanwhile marks its wait to be added again.
    this.#mark(added, true);
    const asked = this.#store.wait(this.#channel, { added, polled, dropped, leaseMs: LEASE_MS });
    const answer = await asked.catch((error: unknown) => {
      this.#mark(added, false);
      throw error;
    });
    this.#isOpen = this.#subscription !== undefined;
    this.#renewedMs = nowMs;
    for (const id of dropped) this.#dropped.delete(id);
    this.#postpone([...added, ...polled]);
    for (const job of answer) this.#read(job);
  }

  #mark(ids: readonly string[], isAdded: boolean): void {
    for (const id of ids) {
      const wait = this.#waits.get(id);
      if (wait !== undefined) wait.isAdded = isAdded;
    }
  }

  /** Moves these waits to the end of the line. */
  #postpone(ids: readonly string[]): void {
    const nowMs = performance.now();
    for (const id of ids) {
      const wait = this.#waits.get(id);
      if (wait === undefined) continue;
      wait.dueMs = nowMs + wait.restMs;
      wait.restMs = Math.min(wait.restMs * POLL_MS.factor, POLL_MS.last);
      this.#waits.delete(id);
      this.#waits.set(id, wait);
    }
  }

  #read([number, queue, status]: WaitedJob): void {
    const id = String(number);
    for (const caller of this.#waits.get(id)?.callers ?? []) {
      if (queue !== caller.queue) {
        this.#leave(id, caller);
        caller.tell({ status: null });
      }
    }
    if (status !== null) this.#tell(id, { status });
  }

  #tell(id: string, ended: EndedWait): void {
    const wait = this.#waits.get(id);
    if (wait === undefined) return;
    this.#waits.delete(id);
    for (const caller of wait.callers) caller.tell(ended);
  }

  #told(jobs: readonly ToldJob[]): void {
    for (const job of jobs) {
      const [id, status] = job;
      const ended = job.length === 2 ? { status } : { status, told: { result: job[2] } };
      if (this.#runs > 0 && !this.#waits.has(String(id))) this.#keepEarly(String(id), ended);
      this.#tell(String(id), ended);
    }
  }

  #keepEarly(id: string, ended: EndedWait): void {
    this.#early.set(id, ended);
    const [oldest] = this.#early.keys();
    if (this.#early.size > EARLY_MOST && oldest !== undefined) this.#early.delete(oldest);
  }

  #rest(): number | 'again' {
    const nowMs = performance.now();
    let dueMs = Infinity;
    for (const wait of this.#waits.values()) {
      if (!wait.isAdded) return 'again';
      dueMs = Math.min(dueMs, wait.dueMs);
    }
    if (this.#dropped.size > 0) return 'again';
    return Number.isFinite(dueMs) ? Math.max(1, dueMs - nowMs) : LINGER_MS;
  }

  async #idle(): Promise<number> {
    const nowMs = performance.now();
    if (this.#idleSinceMs === 0) this.#idleSinceMs = nowMs;
    if (nowMs - this.#idleSinceMs < LINGER_MS / 2 || this.#runs > 0) return LINGER_MS;
    const subscription = this.#subscription;
    this.#isOpen = false;
    this.#renewedMs = -Infinity;
    this.#subscription = undefined;
    if (subscription === undefined) return Infinity;
    try {
      await (await subscription).stop();
      await this.#store.end(this.#channel);
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
    }
    return Infinity;
  }

  async #listen(): Promise<void> {
    this.#subscription ??= this.#store
      .listen(this.#channel, {
        onTold: (jobs) => this.#told(jobs),
        onReconnect: () => this.#pollAll(),
      })
      .catch((error: unknown) => {
        this.#subscription = undefined;
        throw error;
      });
    await this.#subscription;
  }

  #pollAll(): void {
    for (const wait of this.#waits.values()) wait.dueMs = 0;
    this.#loop?.wake();
  }
}
