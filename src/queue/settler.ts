import { delay } from '../base/backoff.ts';
import { sleep } from '../base/clock.ts';
import { faults } from '../base/fault.ts';
import type { Offer } from '../base/offers.ts';
import { probe } from '../base/probe.ts';
import type { Outcome } from './attempt.ts';
import type { Failed, Settlement } from './store.ts';
import type { Claim, Unit } from './unit.ts';

export interface SettlerOptions {
  readonly queue: number;
  readonly settle: (settlement: Settlement, offer: Offer | undefined) => Promise<number[]>;
  /** The offer that is to go along: asked once for each statement, and not again when that has to be repeated. */
  readonly offer: () => Offer | undefined;
  /** Claims that were no longer the worker's: nothing was written for them. */
  readonly onStale: (claims: readonly number[]) => void;
  readonly onError: (error: unknown, failures: number) => void;
  /** Something was written after which there may be work: a job that comes back, or the next one of a key. */
  readonly onMore: () => void;
}

/** What is to be written for one shard. */
interface Pending {
  readonly claims: Set<Claim>;
  readonly failed: Failed[];
  readonly results: { id: number; claim: number; result: string }[];
  readonly keys: [string, number][];
}

const BACKOFF = { kind: 'exponential', min: 50, max: 2000, factor: 2, jitter: 0.5 } as const;

/**
 * Writes outcomes, many at a time, one statement after another: what comes in while one is under way goes with the next.
 * A single job is written at once; under load the batches grow by themselves. A claim of which every job is complete
 * costs the database one deleted and one inserted row, however many jobs it has.
 *
 * Every statement is conditional on the claim, so that one whose answer was lost can be sent again.
 */
export class Settler {
  readonly #options: SettlerOptions;
  #pending = new Map<number, Pending>();
  #flushing: Promise<void> | undefined;
  /** What is being written. */
  #underWay: Pending[] = [];
  #worker = 0;
  #isDropped = false;

  constructor(options: SettlerOptions) {
    this.#options = options;
  }

  /** From now on for this worker id; what is pending for the one before is forgotten. */
  startFor(worker: number): void {
    this.#worker = worker;
    this.#pending = new Map();
    this.#isDropped = false;
  }

  /** Forgets what is pending: the lease is lost, and with it the right to write. */
  drop(): void {
    this.#pending = new Map();
    this.#isDropped = true;
  }

  /** Takes what became of a unit; `givesUp` when nothing more of its key is to come. */
  add(unit: Unit, outcome: Outcome, givesUp: boolean): void {
    if (this.#isDropped) return;
    const shard = unit.job.claim.shard;
    const pending = this.#of(shard);
    for (const job of outcome.complete) {
      job.claim.done.push(job.number);
      job.claim.left -= 1;
      pending.claims.add(job.claim);
      if (outcome.result !== undefined) {
        pending.results.push({ id: job.number, claim: job.claim.id, result: outcome.result });
      }
    }
    this.#fail(pending, outcome.failed, unit);
    if (givesUp && unit.key !== null && unit.epoch !== null) pending.keys.push([unit.key, unit.epoch]);
    this.#start();
  }

  /** Hands jobs back that never started. */
  release(unit: Unit, reason: string, givesUp: boolean, wait?: number): void {
    const failed = unit.jobs.map(
      (job): Failed => ({ claim: job.claim.id, id: job.number, to: 'release', reason, wait }),
    );
    this.add(unit, { failed, complete: [], result: undefined, isLost: false, isRetried: true }, givesUp);
  }

  /** Claims of which something is still to be written, as far as is known here. */
  unwritten(): number[] {
    const ids: number[] = [];
    for (const { claims, failed } of [...this.#pending.values(), ...this.#underWay]) {
      for (const claim of claims) ids.push(claim.id);
      for (const { claim } of failed) ids.push(claim);
    }
    return ids;
  }

  /** Resolves when everything taken so far is written, or dropped. */
  async flushed(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
  }

  #of(shard: number): Pending {
    let pending = this.#pending.get(shard);
    if (pending === undefined) {
      pending = { claims: new Set(), failed: [], results: [], keys: [] };
      this.#pending.set(shard, pending);
    }
    return pending;
  }

  #fail(pending: Pending, failed: readonly Failed[], unit: Unit): void {
    for (const item of failed) {
      pending.failed.push(item);
      const job = unit.jobs.find(({ number }) => number === item.id);
      if (job !== undefined) job.claim.left -= 1;
    }
  }

  #start(): void {
    this.#flushing ??= this.#flush().finally(() => {
      this.#flushing = undefined;
      if (this.#pending.size > 0) this.#start();
    });
  }

  async #flush(): Promise<void> {
    // Handlers that finished in this same turn of the event loop go along.
    await new Promise<void>((resolve) => setImmediate(resolve));
    const pending = this.#pending;
    this.#pending = new Map();
    this.#underWay = [...pending.values()];
    for (const [shard, part] of pending) await this.#write(this.#settlement(shard, part));
    this.#underWay = [];
  }

  #settlement(shard: number, { claims, failed, results, keys }: Pending): Settlement {
    const whole: number[] = [];
    const part: { claim: number; ids: number[] }[] = [];
    const withFailures = new Set(failed.map(({ claim }) => claim));
    for (const claim of claims) {
      const { id, done } = claim;
      claim.done = [];
      if (claim.left === 0 && !withFailures.has(id)) whole.push(id);
      else part.push({ claim: id, ids: done });
    }
    return { queue: this.#options.queue, shard, worker: this.#worker, whole, part, failed, results, keys };
  }

  async #write(settlement: Settlement): Promise<void> {
    for (let failures = 0; ; ) {
      if (this.#isDropped || settlement.worker !== this.#worker) return;
      try {
        if (faults.armed) await faults.reach('queue.before_settle');
        const offer = failures === 0 ? this.#options.offer() : undefined;
        const stale = await this.#options.settle(settlement, offer);
        if (faults.armed) await faults.reach('queue.after_settle');
        if (probe.listening) probe.hit('queue.settled', { ...settlement, stale });
        // After a lost answer the rows may be gone because it was us who settled them.
        if (stale.length > 0 && failures === 0) this.#options.onStale(stale);
        if (settlement.failed.length > 0 || settlement.keys.length > 0) this.#options.onMore();
        return;
      } catch (error) {
        failures += 1;
        this.#options.onError(error, failures);
        await sleep(delay(BACKOFF, failures, Math.random()));
      }
    }
  }
}
