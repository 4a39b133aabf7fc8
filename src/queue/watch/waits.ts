import { randomUUID } from 'node:crypto';
import { Stopped } from '../../base/errors.ts';
import { type Loop, startLoop } from '../../base/loop.ts';
import { FailureLog } from '../../base/work/failure-log.ts';
import type { PostgresEngine, Subscription } from '../../engine/postgres/index.ts';
import type { JobStatus } from '../job.ts';
import { PostgresQueueWaits, type ToldJob, type WaitedJob } from '../postgres/waits.ts';

/** A job that has ended. Without `told`, its result has to be read. */
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
  /** When it is asked for again, by the monotonic clock, and how long the wait after that is. */
  dueMs: number;
  restMs: number;
}

interface Caller {
  readonly queue: string;
  readonly tell: (ended: EndedWait) => void;
}

/**
 * A settlement that was under way when the wait began may have missed it: the first poll comes when such a settlement is
 * committed as a rule. Later ones are for lost notifications; workers poll every two seconds, too.
 */
const POLL_MS = { first: 20, last: 2000, factor: 5 } as const;
/** How long what a dead process has left stays. */
const LEASE_MS = 60_000;
/** The most jobs of one poll. */
const AT_ONCE = 1000;
/** How long the channel is kept without a wait: the next one costs a statement less. */
const LINGER_MS = 2000;

/**
 * Waits for jobs to end, for all callers of this process on one database: one channel on the engine's listening connection, and one
 * statement for all waits that begin together. Each job is also asked for now and then.
 */
export class JobWaits {
  static readonly #ofEngine = new WeakMap<PostgresEngine, JobWaits>();

  readonly #store: PostgresQueueWaits;
  readonly #failures: FailureLog;
  /** By job id. Those that are due first come first. */
  readonly #waits = new Map<string, Wait>();
  readonly #dropped = new Set<string>();
  readonly #channel = `pawl_wait_${randomUUID()}`;
  #subscription: Promise<Subscription> | undefined;
  #loop: Loop | undefined;
  #idleSinceMs = 0;

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

  /** Resolves once the job has ended; to undefined as soon as the signal is aborted. A job of another queue is none. */
  ended(queue: string, id: string, signal: AbortSignal): Promise<EndedWait | undefined> {
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
      signal.addEventListener('abort', give, { once: true });
      this.#join(id, caller);
    });
  }

  #join(id: string, caller: Caller): void {
    const known = this.#waits.get(id);
    if (known !== undefined) {
      known.callers.add(caller);
      // Its queue is told with the answer to a job that is added.
      known.isAdded = false;
    } else {
      this.#dropped.delete(id);
      this.#waits.set(id, { callers: new Set([caller]), isAdded: false, dueMs: 0, restMs: POLL_MS.first });
    }
    this.#loop ??= startLoop({
      name: 'queue.wait',
      run: () => this.#turn(),
      onError: (error) => this.#failures.warn(error),
      // Each caller has a timer of its own, which keeps the process.
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

  /** Registers new waits, drops those that are over, polls those that are due. One round trip. */
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
    // Before the answer: who joins meanwhile wants to be added again.
    this.#mark(added, true);
    const asked = this.#store.wait(this.#channel, { added, polled, dropped, leaseMs: LEASE_MS });
    const answer = await asked.catch((error: unknown) => {
      this.#mark(added, false);
      throw error;
    });
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

  /** Moves these to the end of the line. */
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
      this.#tell(String(id), job.length === 2 ? { status } : { status, told: { result: job[2] } });
    }
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
    if (nowMs - this.#idleSinceMs < LINGER_MS / 2) return LINGER_MS;
    const subscription = this.#subscription;
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
