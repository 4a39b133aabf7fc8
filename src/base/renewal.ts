import { setMaxListeners } from 'node:events';
import { LeaseLost, type LossReason, Stopped } from './errors.ts';
import { after, type Moment, moment, ownedFor } from './time/clock.ts';
import { formatDuration } from './time/duration.ts';

export interface RenewalOptions {
  /** The name of the lease's object in messages: `lock "invoice:42"`. */
  readonly what: string;
  /** How long the store keeps the lease after each beat that it accepted. Finite. */
  readonly leaseMs: number;
  /** How often it is renewed. Default: a third of the lease, so that two renewals may fail before it is lost. */
  readonly everyMs?: number | undefined;
  /**
   * Renews the lease in the store. Returns `kept`; or `lost` if the store says that another owner has the lease, or the error
   * that says how it was lost; or `renewed` if {@link Renewal.renewed} was called instead since the beat began. If it throws, the
   * outcome is unknown, and the beat is tried again. The signal aborts when nothing waits for the answer any more.
   */
  readonly beat: (signal: AbortSignal) => Promise<'kept' | 'renewed' | 'lost' | LeaseLost>;
  /** A moment BEFORE the request that acquired the lease was sent. Default: now, which is right only if nothing was sent yet. */
  readonly since?: Moment | undefined;
  /** The length of the lease before its first beat, counted from `since`, if it is less than `leaseMs`. */
  readonly firstMs?: number | undefined;
  /** Called when a beat threw; it is tried again until the deadline. */
  readonly onError?: ((error: unknown) => void) | undefined;
  /** Called once when the lease was lost, before the signal is aborted. */
  readonly onLost?: ((reason: LeaseLost) => void) | undefined;
  /** True: the process may exit while the renewal waits for its next beat. Default false. */
  readonly unref?: boolean | undefined;
}

/** A lease that is kept alive until it is stopped or lost. */
export interface Renewal extends AsyncDisposable {
  /**
   * Aborted with {@link LeaseLost} as soon as the lease is known to be lost, or must be assumed lost. If the event loop lets a
   * timer run, that is no later than the local deadline. {@link Renewal.stop} never aborts it.
   */
  readonly signal: AbortSignal;
  /** Milliseconds from now until the local deadline; 0 if the lease is lost. Right even if no timer could run. */
  remainingMs(): number;
  /** Milliseconds since the sending of the last request that the store confirmed. */
  ageMs(): number;
  /**
   * Called when another request than a beat of this renewal has kept the lease: the lease then counts from `sentAt`, the moment
   * of sending.
   */
  renewed(sentAt: Moment): void;
  /** Called when the loss is known from another source than a beat. Does nothing once the lease is lost or stopped. */
  lose(reason: LeaseLost): void;
  /**
   * Ends the beats, and waits until none is under way, so that no beat comes after a release that is sent next. It waits no
   * longer than the deadline, or `mostMs`. Safe to call again; never rejects; leaves no timer.
   */
  stop(mostMs?: number): Promise<void>;
}

/**
 * Keeps a lease alive by a beat at every third of it: two beats may fail before the lease is lost.
 *
 * The store counts the lease from the time when it accepted a beat, which is after the sending. So a deadline that counts from
 * *before* the sending is never later than the store's. A hundredth of the lease is kept back for clocks that run at different
 * rates. Once the deadline has passed, the lease is lost and nothing is sent any more, because another owner may have it: no
 * answer came, the event loop was blocked, or the machine was suspended.
 */
export function startRenewal(options: RenewalOptions): Renewal {
  return new LeaseRenewal(options);
}

const SAFETY = 0.99;
const BEATS_PER_LEASE = 3;
const NOTHING = (): void => {};

class LeaseRenewal implements Renewal {
  readonly #options: RenewalOptions;
  /** Made at the first call of a caller: most leases are short, and no caller needs it. */
  #lost: AbortController | undefined;
  #reason: LeaseLost | undefined;
  /** When the last accepted beat was sent. */
  #sentAt: Moment;
  /** How long the lease is certainly kept from then. */
  #termMs: number;
  /** Why the lease is in danger, if a beat since then failed or got no answer. */
  #trouble: string | undefined;
  #isStopped = false;
  #cancelBeat = NOTHING;
  /** Set from the first try of a beat on: most leases are given up before. */
  #cancelDeadline = NOTHING;
  #abortBeat: AbortController | undefined;
  #underWay: Promise<void> | undefined;

  constructor(options: RenewalOptions) {
    this.#options = options;
    this.#sentAt = options.since ?? moment();
    this.#termMs = Math.min(options.firstMs ?? Infinity, options.leaseMs);
    this.#schedule();
  }

  get signal(): AbortSignal {
    if (this.#lost === undefined) {
      this.#lost = new AbortController();
      setMaxListeners(0, this.#lost.signal);
      if (this.#reason !== undefined) this.#lost.abort(this.#reason);
    }
    return this.#lost.signal;
  }

  remainingMs(): number {
    if (this.#reason !== undefined) return 0;
    return Math.max(0, this.#termMs * SAFETY - ownedFor(this.#sentAt));
  }

  ageMs(): number {
    return ownedFor(this.#sentAt);
  }

  renewed(sentAt: Moment): void {
    if (this.#isStopped || ownedFor(sentAt) > ownedFor(this.#sentAt)) return;
    // The lease may have been reported as over meanwhile.
    if (this.remainingMs() <= 0) return this.#expire(0);
    this.#confirm(sentAt);
    this.#schedule();
  }

  lose(reason: LeaseLost): void {
    if (this.#isStopped) return;
    this.#end(reason);
    this.#reason = reason;
    this.#options.onLost?.(reason);
    this.#lost?.abort(reason);
  }

  async stop(mostMs = Infinity): Promise<void> {
    const underWay = this.#underWay;
    const leftMs = Math.min(this.remainingMs(), mostMs);
    this.#end(this.#abortBeat && new Stopped(`the renewal of ${this.#options.what} was stopped`));
    if (underWay === undefined) return;
    const { promise: deadline, cancel } = expiry(leftMs);
    await Promise.race([underWay, deadline]);
    cancel();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** After an accepted beat: schedules the next one. The moment of giving up comes after that. */
  #schedule(): void {
    this.#cancelBeat();
    this.#cancelDeadline();
    this.#cancelDeadline = NOTHING;
    const { leaseMs, everyMs = leaseMs / BEATS_PER_LEASE } = this.#options;
    const isWhole = this.#termMs >= leaseMs;
    this.#beatIn((isWhole ? everyMs : this.#termMs / BEATS_PER_LEASE) - ownedFor(this.#sentAt));
  }

  #beatIn(ms: number): void {
    this.#cancelBeat = this.#timer(ms, (lateMs) => {
      if (this.remainingMs() <= 0) return this.#expire(lateMs);
      if (this.#cancelDeadline === NOTHING) {
        this.#cancelDeadline = this.#timer(this.remainingMs(), (late) => this.#expire(late));
      }
      this.#underWay = this.#beat();
    });
  }

  async #beat(): Promise<void> {
    const sentAt = moment();
    const abort = new AbortController();
    this.#abortBeat = abort;
    this.#trouble ??= 'the store has not answered';
    // A dead connection is given up early enough for a second try on another one.
    const giveUp = new Stopped(`no answer to a beat of ${this.#options.what}`);
    const cancel = after(this.#termMs / BEATS_PER_LEASE, () => abort.abort(giveUp));
    try {
      this.#answered(await this.#options.beat(abort.signal), sentAt);
    } catch (error) {
      this.#failed(error);
    } finally {
      cancel();
      if (this.#abortBeat === abort) this.#abortBeat = undefined;
    }
  }

  #answered(answer: 'kept' | 'renewed' | 'lost' | LeaseLost, sentAt: Moment): void {
    if (this.#isStopped || answer === 'renewed') return;
    if (answer instanceof LeaseLost) return this.lose(answer);
    if (answer === 'lost')
      return this.#lose(
        'the store says that this process no longer owns it: it ended, or another owner took over',
        'expired',
      );
    // Another request may have renewed it while this one was under way.
    if (ownedFor(sentAt) < ownedFor(this.#sentAt)) this.#confirm(sentAt);
    this.#trouble = undefined;
    if (this.remainingMs() <= 0) return this.#lose('the answer to its renewal came after the deadline', 'unreachable');
    this.#schedule();
  }

  #confirm(sentAt: Moment): void {
    this.#sentAt = sentAt;
    this.#termMs = this.#options.leaseMs;
    this.#trouble = undefined;
  }

  #failed(error: unknown): void {
    if (this.#isStopped) return;
    this.#trouble = `the last renewal failed with: ${error instanceof Error ? error.message : String(error)}`;
    // A twentieth leaves time for a dozen tries; one try a second is often enough for any lease.
    this.#beatIn(Math.min(this.#termMs / 20, 1000));
    try {
      this.#options.onError?.(error);
    } catch (second) {
      process.emitWarning(`onError of the renewal of ${this.#options.what} failed: ${String(second)}`);
    }
  }

  #expire(lateMs: number): void {
    const { leaseMs } = this.#options;
    const blocked = `the event loop was blocked, or the machine suspended, for about ${formatDuration(lateMs)}`;
    const isBlocked = lateMs > leaseMs / 20;
    if (this.#trouble === undefined) {
      const passed = `its ${formatDuration(leaseMs)} ended before it could be renewed`;
      return this.#lose(isBlocked ? blocked : passed, 'blocked');
    }
    const why = `no renewal was confirmed within its ${formatDuration(leaseMs)}; ${this.#trouble}`;
    this.#lose(isBlocked ? `${why}; ${blocked}` : why, isBlocked ? 'blocked' : 'unreachable');
  }

  #lose(why: string, reason: LossReason): void {
    this.lose(new LeaseLost(`the lease of ${this.#options.what} was lost: ${why}; stop working on it`, { reason }));
  }

  #end(reason: Error | undefined): void {
    this.#isStopped = true;
    this.#cancelBeat();
    this.#cancelDeadline();
    this.#abortBeat?.abort(reason);
  }

  /** Calls `run` with the delay of the timer, by the clock that says more. */
  #timer(ms: number, run: (lateMs: number) => void): () => void {
    const start = moment();
    const dueMs = Math.max(0, ms);
    return after(dueMs, () => run(ownedFor(start) - dueMs), { unref: this.#options.unref ?? false });
  }
}

function expiry(ms: number): { promise: Promise<void>; cancel: () => void } {
  let cancel = (): void => {};
  const promise = new Promise<void>((resolve) => {
    cancel = after(ms, resolve);
  });
  return { promise, cancel };
}
