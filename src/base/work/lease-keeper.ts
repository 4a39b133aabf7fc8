import { ConnectionFailed, LeaseLost } from '../errors.ts';
import { faults } from '../fault.ts';
import { probe } from '../probe.ts';
import { type Renewal, startRenewal } from '../renewal.ts';
import { moment, ownedFor, sleep } from '../time/clock.ts';

/** A worker, in the form for the keeper of its lease. */
export interface LeaseHolder {
  readonly workerId: number | undefined;
  /**
   * Called when the lease is lost: another worker owns all its claims, or may own them if it is not certain that the database
   * says so.
   */
  lost(reason: LeaseLost, isCertain: boolean): void;
  onError(error: unknown): void;
}

/** The problem of a worker that is not registered in the database: it can claim nothing. */
export const UNREGISTERED = 'its lease was lost, and it is not registered again yet';

export interface LeaseKeeperOptions<W, Answer> {
  /** `queue`, in messages and in the names of probes and faults. */
  readonly name: string;
  readonly leaseMs: number;
  /**
   * Sends one statement for all of these workers. If it goes on after {@link LeaseKeeperOptions.giveUp}, its answer is ignored.
   */
  readonly send: (workers: ReadonlyMap<number, W>) => Promise<Answer>;
  /** Called when the heartbeat got no answer in time: treats its connection as dead. */
  readonly giveUp: () => void;
  /** Called with the answer to a heartbeat, after lost workers were notified. */
  readonly onAnswer?: (answer: Answer) => void;
  /** Called when a heartbeat failed, before the workers are notified. It is tried again until the lease is over. */
  readonly onFailure?: () => void;
}

/**
 * Keeps the leases of all workers of this process on one database, by one heartbeat for all of them. If the answer does not name
 * a worker, that worker was declared dead. Without an answer, all workers are lost once the lease is over.
 */
export class LeaseKeeper<W extends LeaseHolder, Answer extends { readonly alive: readonly number[] }> {
  readonly #options: LeaseKeeperOptions<W, Answer>;
  readonly #workers = new Set<W>();
  #renewal: Renewal | undefined;
  #answeredAt = moment();
  /** The last millisecond of the wall clock in which the leases were found valid. */
  #certainAt: number | undefined;
  /** The first failed heartbeat after the last answered one. */
  #failure: { readonly at: Date; readonly message: string } | undefined;

  constructor(options: LeaseKeeperOptions<W, Answer>) {
    this.#options = options;
  }

  get workers(): ReadonlySet<W> {
    return this.#workers;
  }

  /** Milliseconds since the last heartbeat was answered. */
  get answeredMs(): number {
    return ownedFor(this.#answeredAt);
  }

  /**
   * Whether the leases have certainly not ended yet, even if no timer could run. It is called before each unit, so it answers
   * from memory within one millisecond of the *wall* clock. The monotonic clock would not do: a suspended machine may wake in the
   * same millisecond of it. Reading both clocks each time took a twentieth of the time of a worker with small jobs.
   */
  get hasLease(): boolean {
    if (this.#renewal === undefined) return false;
    const wall = Date.now();
    if (wall === this.#certainAt) return true;
    const isCertain = this.#renewal.remainingMs() > 0;
    this.#certainAt = isCertain ? wall : undefined;
    return isCertain;
  }

  /** Why the leases may soon end, or have ended; undefined while heartbeats are answered. */
  get problem(): string | undefined {
    if (this.#failure !== undefined) {
      return `no heartbeat has been answered since ${this.#failure.at.toISOString()}: ${this.#failure.message}`;
    }
    return this.hasLease ? undefined : 'its lease ended, because this process was suspended or blocked';
  }

  /** Keeps the lease of a worker that was just registered. */
  add(worker: W): void {
    this.#workers.add(worker);
    if (this.#renewal === undefined) this.#start();
  }

  /** @returns whether no worker is left */
  remove(worker: W): boolean {
    this.#workers.delete(worker);
    return this.#workers.size === 0;
  }

  /** Ends the heartbeats, until a worker is added. */
  stop(): Promise<void> {
    const renewal = this.#renewal;
    this.#renewal = undefined;
    return Promise.resolve(renewal?.stop());
  }

  /** Reports an error to all workers. */
  report(error: unknown): void {
    for (const worker of this.#workers) worker.onError(error);
  }

  #start(): void {
    const { name, leaseMs, onFailure } = this.#options;
    const renewal = startRenewal({
      what: `this process's ${name} workers`,
      leaseMs,
      beat: (signal) => this.beat(signal),
      onError: (error) => {
        this.#failure ??= { at: new Date(), message: error instanceof Error ? error.message : String(error) };
        onFailure?.();
        this.report(error);
      },
      onLost: (reason) => {
        if (this.#renewal !== renewal) return;
        this.#renewal = undefined;
        this.#certainAt = undefined;
        for (const worker of Array.from(this.#workers)) worker.lost(reason, false);
        // The workers register anew, each at its own pace, and their leases are kept again from then on.
        if (this.#workers.size > 0 && this.#renewal === undefined) this.#start();
      },
      unref: true,
    });
    this.#renewal = renewal;
  }

  /** Sends a heartbeat now. @param signal  ends the wait for its answer */
  async beat(signal?: AbortSignal): Promise<'kept'> {
    const { name, onAnswer } = this.#options;
    const sent = new Map<number, W>();
    for (const worker of this.#workers) if (worker.workerId !== undefined) sent.set(worker.workerId, worker);
    if (sent.size === 0) return 'kept';
    if (faults.armed) await faults.reach(`${name}.before_beat`);
    const answer = await this.#send(sent, signal);
    this.#answeredAt = moment();
    this.#failure = undefined;
    if (probe.listening) probe.hit(`${name}.beat`, { workers: sent.size });
    const alive = new Set(answer.alive);
    for (const [id, worker] of sent) {
      if (alive.has(id) || worker.workerId !== id) continue;
      const words = `worker ${id} was declared dead: its heartbeat came after the end of its lease; stop working`;
      worker.lost(new LeaseLost(words), true);
    }
    onAnswer?.(answer);
    return 'kept';
  }

  /**
   * Ends the wait when the signal aborts: a dead connection gives no answer for minutes, and the next heartbeat needs another
   * one.
   */
  async #send(workers: ReadonlyMap<number, W>, signal: AbortSignal | undefined): Promise<Answer> {
    const { send, giveUp } = this.#options;
    const answer = send(workers);
    if (signal === undefined) return answer;
    const done = new AbortController();
    const aborted = sleep(Infinity, AbortSignal.any([signal, done.signal])).then(() => undefined);
    try {
      const first = await Promise.race([answer, aborted]);
      if (first !== undefined) return first;
      answer.catch(() => {});
      giveUp();
      const words = 'the heartbeat was not answered in time, so its connection was closed';
      throw new ConnectionFailed(words, { cause: signal.reason });
    } finally {
      done.abort();
    }
  }
}
