import { ConnectionFailed, LeaseLost } from '../base/errors.ts';
import { type Moment, moment, ownedFor, sleep, waitedFor, within } from '../base/time/clock.ts';
import type { ConditionCheckItem } from '../engine/dynamodb/index.ts';
import type { OpenTransaction } from '../engine/postgres/index.ts';
import { notifyReleased } from './acquire/acquisition.ts';
import type { LockClient } from './client.ts';
import { type KeepOptions, type LockRenewal, lossOf } from './keeper.ts';
import { describe } from './name.ts';
import type { CountedRun, GrantKey, PastHolder } from './store.ts';

/** A lock, or a set of them, that is held until it is released or lost. */
export interface Lock extends AsyncDisposable {
  /** The name; for a set, the first one in order. */
  readonly name: string;
  /** All names, in order. */
  readonly names: readonly string[];
  readonly mode: 'exclusive' | 'shared' | 'permit';
  /**
   * The fencing token. Of two grants of a name the later one always has the greater token. Pass it with each write outside of
   * the database, and let the receiver refuse a token that is smaller than one it has seen. All names of a set share one
   * token.
   */
  readonly token: bigint;
  /**
   * Aborted with {@link LeaseLost} if the lock is lost or must be assumed lost; its `reason` and message say why. This happens no
   * later than the end of the lease, counted from before the last renewal was sent. A release does not abort it.
   */
  readonly signal: AbortSignal;
  /** True until it is released or lost. */
  readonly isHeld: boolean;
  /** How many milliseconds it is certainly held without another renewal; 0 if it is not held, Infinity without a lease. */
  remainingMs(): number;
  /** Throws the reason of `signal` when the lock is lost. @throws LeaseLost */
  assertHeld(): void;
  /**
   * Call it in a transaction of your own, of any library: it fails unless this token is still the current one. Until that
   * transaction ends, no other client is granted the lock. One statement; make it the last before the commit. It never delays the
   * renewals of the lock. It works only in the database of the locks.
   * @param tx  the object that `engine.transaction`, pg, postgres.js, kysely, drizzle, knex, prisma… pass to their callbacks
   * @throws LeaseLost  the transaction can then only be rolled back
   * @throws InvalidInput  if tx is no open transaction
   */
  guard(tx: OpenTransaction): Promise<void>;
  /**
   * On DynamoDB: returns one part for each name, for a `TransactWriteItems` of your own, which then fails with
   * `TransactionCanceledException` unless this token is still the current one.
   * @throws LeaseLost  when it is known to be lost
   * @throws NotSupported  on Postgres: give it the transaction
   */
  guard(): readonly ConditionCheckItem[];
  /**
   * Releases the lock: the next waiter gets it at once. Safe to call twice.
   * @throws LeaseLost  the lock was lost before; nothing is changed then
   * @throws ConnectionFailed  the store did not answer within 2 s; the release is repeated until the lease is over
   */
  release(): Promise<void>;
}

/** The events of locks, for logs and metrics. */
export interface LockEvents {
  granted: { readonly lock: Lock; readonly waitedMs: number };
  released: { readonly lock: Lock; readonly heldMs: number };
  lost: { readonly lock: Lock; readonly error: LeaseLost };
  /** The lock could not be released, and stays held until its lease is over. */
  releaseFailed: { readonly lock: Lock; readonly error: unknown };
  /**
   * The store did not answer a request for a lock, because the database is unreachable or busy. The waiter keeps trying while it
   * has time.
   */
  error: { readonly names: readonly string[]; readonly error: unknown };
}

/** Reports an event. */
export type ReportEvent = <K extends keyof LockEvents>(event: K, payload: LockEvents[K]) => void;

const ANSWER_MS = 2000;

/** A {@link Lock} in the store of one client. */
export class HeldLock implements Lock {
  readonly grant: GrantKey;
  readonly mode: Lock['mode'];
  readonly #client: LockClient;
  readonly #renewal: LockRenewal;
  readonly #report: ReportEvent;
  readonly #since: Moment;
  /** Guards under way: a release that is sent at the same time could miss that a guard locks the row. */
  readonly #guarding = new Set<Promise<void>>();
  #lost: LeaseLost | undefined;
  #released: Promise<void> | undefined;

  constructor(client: LockClient, kept: Omit<KeepOptions, 'onLost'>, mode: Lock['mode'], report: ReportEvent) {
    this.#client = client;
    this.grant = kept.grant;
    this.mode = mode;
    this.#since = kept.since;
    this.#report = report;
    this.#renewal = client.keeper.keep({ ...kept, onLost: (reason) => this.#onLost(reason) });
  }

  get name(): string {
    return this.grant.names[0] ?? '';
  }

  get names(): readonly string[] {
    return this.grant.names;
  }

  get token(): bigint {
    return this.grant.token;
  }

  get signal(): AbortSignal {
    return this.#renewal.signal;
  }

  get isHeld(): boolean {
    return this.#released === undefined && this.#renewal.remainingMs() > 0;
  }

  remainingMs(): number {
    return this.#released === undefined ? this.#renewal.remainingMs() : 0;
  }

  assertHeld(): void {
    this.#refuseIfLost();
    if (this.#released !== undefined) throw new LeaseLost(`${describe(this.names)} has been released`);
  }

  guard(tx: OpenTransaction): Promise<void>;
  guard(): readonly ConditionCheckItem[];
  guard(...given: [tx: OpenTransaction] | []): Promise<void> | readonly ConditionCheckItem[] {
    return given.length === 0 ? this.#checks() : this.#guardIn(given[0]);
  }

  release(): Promise<void> {
    return this.finish(undefined);
  }

  /** Releases it, and counts the run for `oncePer`. */
  finish(finish: CountedRun | undefined): Promise<void> {
    this.#released ??= this.#releaseOrThrow(finish);
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // The failure was reported as an event: an error here would hide the one that ended the block.
    await this.release().catch(() => {});
  }

  #checks(): readonly ConditionCheckItem[] {
    this.assertHeld();
    return this.#client.store.checks(this.grant);
  }

  async #guardIn(tx: unknown): Promise<void> {
    this.assertHeld();
    const guarding = this.#client.store.guard(tx, this.grant);
    this.#guarding.add(guarding);
    try {
      await guarding;
    } finally {
      this.#guarding.delete(guarding);
    }
  }

  async #releaseOrThrow(finish: CountedRun | undefined): Promise<void> {
    try {
      this.#refuseIfLost();
    } catch (error) {
      if (this.names.length > 1) await this.#releaseRemaining();
      throw error;
    }
    const leaseMs = this.#renewal.remainingMs();
    this.#client.keeper.forget(this.grant);
    // A renewal that arrives after this finds nothing to renew.
    await this.#renewal.stop(ANSWER_MS);
    if (this.#guarding.size > 0) await within(ANSWER_MS, Promise.allSettled(this.#guarding));
    const start = moment();
    if (await this.#tryRelease(finish)) return;
    const telling = this.#keepReleasing(finish, start, leaseMs);
    telling.catch((error: unknown) => this.#reportFailure(error));
    // This wait keeps the process alive, so that its caller goes on. The release itself does not.
    if (await within(ANSWER_MS - waitedFor(start), telling)) return;
    const what = `${describe(this.names)} could not be released within ${ANSWER_MS} ms`;
    throw new ConnectionFailed(`${what}; the release is repeated until its lease is over`);
  }

  /** @returns false when the outcome is unknown */
  async #tryRelease(finish: CountedRun | undefined): Promise<boolean> {
    try {
      if (!(await this.#sendRelease(finish))) throw await this.#whyLost();
      return true;
    } catch (error) {
      if (!(error instanceof LeaseLost) && this.#client.store.isTransient(error)) return false;
      this.#reportFailure(error);
      throw error;
    }
  }

  /** Repeats the release until the store has answered, or the lease is over and there is nothing to release. */
  async #keepReleasing(finish: CountedRun | undefined, start: Moment, leaseMs: number): Promise<void> {
    for (let tries = 0; ; tries++) {
      await sleep(Math.min(20 * 2 ** tries, 1000), undefined, { unref: true });
      try {
        if (!(await this.#sendRelease(finish))) await this.#confirmReleased(finish);
        return;
      } catch (error) {
        if (!this.#client.store.isTransient(error) || waitedFor(start) > Math.min(leaseMs, 60_000)) throw error;
      }
    }
  }

  /** Emits the event, also where no caller gets the error, as at the end of an `await using` block. */
  #reportFailure(error: unknown): void {
    if (!(error instanceof LeaseLost)) this.#report('releaseFailed', { lock: this, error });
  }

  /** Releases the names of a set that were not lost; without this they would end with their lease. */
  async #releaseRemaining(): Promise<void> {
    const telling = this.#client.store.release(this.grant, undefined, { timeoutMs: ANSWER_MS });
    await telling.then(({ wakeUps }) => this.#client.wake(wakeUps)).catch(() => {});
  }

  /** After a lost answer, a lock that is no longer held counts as released, unless it is known how it ended, or that matters. */
  async #confirmReleased(finish: CountedRun | undefined): Promise<void> {
    const past = await this.#client.store.howEnded(this.grant, { timeoutMs: ANSWER_MS });
    if (past === undefined ? finish !== undefined : past.outcome !== 'released') throw this.#lossOf(past);
    this.#report('released', { lock: this, heldMs: ownedFor(this.#since) });
  }

  /** @returns false when it was not held any more */
  async #sendRelease(finish: CountedRun | undefined): Promise<boolean> {
    const { isReleased, wakeUps } = await this.#client.store.release(this.grant, finish, { timeoutMs: ANSWER_MS });
    this.#client.wake(wakeUps);
    notifyReleased(this.#client, this.grant);
    if (isReleased) this.#report('released', { lock: this, heldMs: ownedFor(this.#since) });
    return isReleased;
  }

  async #whyLost(): Promise<LeaseLost> {
    return this.#lossOf(await this.#client.store.howEnded(this.grant, { timeoutMs: ANSWER_MS }).catch(() => undefined));
  }

  #lossOf(past: PastHolder | undefined): LeaseLost {
    const error = lossOf(this.grant, past?.outcome, past?.reason ?? undefined);
    this.#report('lost', { lock: this, error });
    return error;
  }

  #refuseIfLost(): void {
    if (this.#lost !== undefined) throw this.#lost;
    // The timer that reports the loss has not fired yet.
    if (this.#released === undefined && this.#renewal.remainingMs() <= 0) {
      const error = new LeaseLost(
        `the lease of ${describe(this.names)} was lost: it ended before it could be renewed; stop working on it`,
        { reason: 'blocked' },
      );
      this.#renewal.lose(error);
      throw error;
    }
  }

  #onLost(error: LeaseLost): void {
    this.#lost = error;
    this.#client.keeper.forget(this.grant);
    this.#report('lost', { lock: this, error });
  }
}
