import { randomUUID } from 'node:crypto';
import { after, type Moment, moment, ownedFor, waitedFor } from '../../base/time/clock.ts';
import type { LockClient } from '../client.ts';
import type { AcquireAnswer, GrantKey, GrantRef, RequestKey } from '../store.ts';
import { delayBeforePoll, delayBeforeRetry } from './poll-interval.ts';
import { deadlock, lockTimeout, unreachable } from './unserved.ts';

/** What is asked for. */
export interface LockRequest {
  readonly space: string;
  readonly names: readonly string[];
  readonly capacity: number;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly waiterMs: number;
  readonly isFair: boolean;
  readonly holds: readonly GrantRef[];
  readonly periodMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  /** Why it is to be given up, once it is; then the waiter is called. */
  readonly stopped: () => Error | undefined;
  /** The store could not be asked, and will be again. */
  readonly onError: (error: unknown) => void;
}

/** What came of it. */
export type AcquireOutcome =
  | {
      readonly kind: 'granted';
      readonly grant: GrantKey;
      readonly since: Moment;
      /** How long it is held without a renewal, from `since`; the lease, or less when it was handed over. */
      readonly firstMs: number;
      readonly waitedMs: number;
    }
  /** Somebody has it; only when nothing was to be waited for. */
  | { readonly kind: 'held'; readonly holder: string | undefined }
  /** It was had within the period. */
  | { readonly kind: 'done'; readonly retryMs: number };

// How long a call may outlast its time, to clean up behind itself, when the store does not answer.
const GRACE_MS = 500;
// An answer as old as this still says why a wait was not served, though the last requests got none.
const RECENT_MS = 5000;
const TRIES_WITHOUT_WAIT = 3;

/**
 * Takes a lock, or waits for its turn: one statement when it is free. A lost answer is asked for again, and an abandoned
 * attempt cleaned up, so that whatever happens there is either a lock in hand or nothing.
 * @throws LockTimeout, Deadlock, Stopped, the reason of the signal, or the store's error
 */
export async function acquireLock(client: LockClient, request: LockRequest): Promise<AcquireOutcome> {
  request.signal?.throwIfAborted();
  return new Acquisition(client, request).run();
}

class Acquisition {
  readonly #client: LockClient;
  readonly #request: LockRequest;
  readonly #key: RequestKey;
  readonly #startedAt: Moment = moment();
  #ticket: bigint | undefined;
  /** A call may have come through without our knowing. */
  #isRetry = false;
  /** The place in the queue, for how long and from when on; unknown after a lost answer, or when a place was lost. */
  #placeLease: { readonly since: Moment; readonly ms: number } | undefined;
  /** No token can have been told but for the place that is known. */
  #canTrustHandoff = true;
  #failures = 0;
  #refusals = 0;
  /** Of the last attempt. */
  #lastError: unknown;
  /** When the store last said that the lock is held. */
  #heldAt: Moment | undefined;

  constructor(client: LockClient, request: LockRequest) {
    this.#client = client;
    this.#request = request;
    const { space, names, capacity, leaseMs } = request;
    this.#key = { space, names, nonce: randomUUID(), capacity, leaseMs };
  }

  async run(): Promise<AcquireOutcome> {
    const { isFair, waitMs } = this.#request;
    if (isFair || waitMs === 0) return this.#attemptUntilDone();
    const { space, names, signal } = this.#request;
    let end = (): void => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const cancel = after(waitMs, end);
    signal?.addEventListener('abort', end, { once: true });
    const leave = await this.#client.mutex.enter(mutexKey(space, names), ended);
    try {
      return await this.#attemptUntilDone();
    } finally {
      leave();
      cancel();
      signal?.removeEventListener('abort', end);
    }
  }

  async #attemptUntilDone(): Promise<AcquireOutcome> {
    const { space, names, nonce } = this.#key;
    // Those without a place are not told by the store, but when their own process releases it.
    const wakeUp = this.#client.wakeUps.expect(this.#request.isFair ? nonce : mutexKey(space, names));
    try {
      for (;;) {
        if (this.#isCancelled) await this.#cancel();
        const since = moment();
        const answer = await this.#attempt(since);
        const outcome = answer === undefined ? undefined : this.#interpret(answer, since);
        if (outcome !== undefined) {
          if (this.#isCancelled) await this.#cancel();
          return outcome;
        }
        const takeBack = this.#delegatePlace(answer);
        const restMs = takeBack === undefined ? this.#nextDelay(answer) : Infinity;
        await wakeUp.wait(Math.min(restMs, this.#leftMs()), this.#request.signal);
        takeBack?.();
        const handoff = this.#takeHandoff(wakeUp.token);
        if (handoff !== undefined) {
          if (this.#isCancelled) await this.#cancel();
          return handoff;
        }
        if (this.#leftMs() <= 0) return await this.#timeOut();
      }
    } catch (error) {
      // After an answer was lost nobody knows what stands there.
      if (this.#isRetry) void this.#withdraw();
      throw error;
    } finally {
      wakeUp.stop();
    }
  }

  #recordPlace(answer: AcquireAnswer, since: Moment): void {
    const isWaiting = answer.kind === 'waiting';
    // A second place: what was granted to the first one ran out, and may be told late.
    if (isWaiting && answer.isNew && this.#placeLease !== undefined) this.#canTrustHandoff = false;
    this.#ticket = isWaiting ? answer.ticket : undefined;
    this.#placeLease = isWaiting ? { since, ms: answer.placeMs } : undefined;
  }

  /**
   * Granted in the statement of whoever had it before, for as long as the place was kept: that is certain by our own clock,
   * from before the place was renewed. When not much of it is left, the lock is asked for, which renews it; and so is one
   * without a lease, as what was handed over has one.
   */
  #takeHandoff(token: bigint | undefined): AcquireOutcome | undefined {
    const place = this.#placeLease;
    if (token === undefined || place === undefined || !this.#canTrustHandoff) return undefined;
    if (this.#request.leaseMs === Infinity) return undefined;
    if (place.ms - ownedFor(place.since) < place.ms / 4) return undefined;
    const waitedMs = waitedFor(this.#startedAt);
    return { kind: 'granted', grant: this.#grantKey(token), since: place.since, firstMs: place.ms, waitedMs };
  }

  /** A place far behind is kept together with others, as long as whoever is handed the lock is told. */
  #delegatePlace(answer: AcquireAnswer | undefined): (() => void) | undefined {
    const place = this.#placeLease;
    if (answer?.kind !== 'waiting' || answer.ahead < 2 || place === undefined) return undefined;
    const { store, wakeUps, places, isNotified } = this.#client;
    if (!isNotified || store.renewPlaces === undefined || this.#request.names.length > 1) return undefined;
    const { nonce } = this.#key;
    const onRenewed = (since: Moment, ms: number): void => {
      this.#placeLease = { since, ms };
    };
    return places.keep(
      { nonce, waiterMs: this.#request.waiterMs, onRenewed, onDoubt: () => wakeUps.wake(nonce) },
      place.since,
    );
  }

  /** Undefined when nobody knows what became of it, and it is to be tried again. */
  async #attempt(since: Moment): Promise<AcquireAnswer | undefined> {
    const { waitMs, waiterMs, isFair, holds, periodMs, leaseMs } = this.#request;
    const isPlaced = isFair && waitMs > 0;
    // An answer that comes after the lease would be worth nothing.
    const timeoutMs = Math.min(Math.max(leaseMs / 3, 1000), 10_000, this.#leftMs() + GRACE_MS);
    const patience = timeToFinish(this.#request.signal);
    try {
      const answer = await this.#client.store.acquire(
        {
          ...this.#key,
          waiterMs: isPlaced ? waiterMs : undefined,
          ticket: this.#ticket,
          isRetry: this.#isRetry,
          holds: isPlaced ? holds : [],
          periodMs,
        },
        { timeoutMs, signal: patience?.over },
      );
      this.#failures = 0;
      this.#lastError = undefined;
      this.#heldAt = answer.kind === 'granted' ? undefined : since;
      this.#isRetry = false;
      this.#recordPlace(answer, since);
      return answer;
    } catch (error) {
      this.#isRetry = true;
      this.#canTrustHandoff = false;
      this.#failures++;
      // Whatever the call failed with: its caller knows why it ended. Told first, as the store may not answer.
      if (this.#isCancelled) return this.#cancel();
      if (!this.#client.store.isTransient(error)) throw error;
      if (waitMs === 0 && this.#failures >= TRIES_WITHOUT_WAIT) throw error;
      this.#lastError = error;
      if (waitMs > 0) this.#reportFailure(error);
      if (waitMs > 0 && this.#leftMs() <= 0) return this.#timeOut();
      return undefined;
    } finally {
      patience?.end();
    }
  }

  #reportFailure(error: unknown): void {
    this.#client.failures.warn(error, { names: this.#key.names });
    this.#request.onError(error);
  }

  #interpret(answer: AcquireAnswer, since: Moment): AcquireOutcome | undefined {
    switch (answer.kind) {
      case 'granted':
        return this.#granted(answer.token, since);
      case 'cycle':
        throw deadlock(this.#key.names, answer.cycle);
      case 'done':
        return answer;
      case 'held':
        return this.#request.waitMs === 0 ? answer : undefined;
      case 'waiting':
        return undefined;
    }
  }

  #granted(token: bigint, since: Moment): AcquireOutcome | undefined {
    const { leaseMs } = this.#key;
    if (ownedFor(since) > leaseMs / 2) {
      // The answer took half of the lease: asking again renews it.
      this.#isRetry = true;
      return undefined;
    }
    const waitedMs = waitedFor(this.#startedAt);
    return { kind: 'granted', grant: this.#grantKey(token), since, firstMs: leaseMs, waitedMs };
  }

  #grantKey(token: bigint): GrantKey {
    const { space, names, capacity, nonce } = this.#key;
    return { space, names, token, capacity, nonce };
  }

  #nextDelay(answer: AcquireAnswer | undefined): number {
    if (answer === undefined) return Math.min(10 * 2 ** this.#failures, 1000) * (0.5 + 0.5 * Math.random());
    if (answer.kind === 'granted') return 0;
    if (answer.kind === 'waiting') {
      return delayBeforePoll(answer, this.#request.waiterMs, this.#client.isNotified, Math.random());
    }
    this.#refusals++;
    return delayBeforeRetry(this.#refusals, Math.random());
  }

  get #isCancelled(): boolean {
    return this.#request.signal?.aborted === true || this.#request.stopped() !== undefined;
  }

  /** Leaves nothing behind. @throws the signal's reason when it is aborted, or Stopped */
  async #cancel(): Promise<never> {
    const { signal, stopped } = this.#request;
    await this.#withdraw();
    throw signal?.aborted ? signal.reason : stopped();
  }

  #leftMs(): number {
    // Without waiting there are only repetitions of what got no answer.
    const { waitMs } = this.#request;
    return waitMs === 0 ? Infinity : waitMs - waitedFor(this.#startedAt);
  }

  /** Leaves nothing behind. When the store does not answer, the caller is answered first. @returns who is in the way, if it answers in time */
  async #withdraw(): Promise<{ holder: string | undefined } | undefined> {
    this.#isRetry = false;
    const left = this.#client.withdraw(this.#key, this.#request.waiterMs).then((holder) => ({ holder }));
    return new Promise((resolve) => {
      // Keeps the process alive, whose last thing this wait may be: a wait is settled before its process ends.
      const cancel = after(GRACE_MS, () => resolve(undefined));
      void left.then(resolve).finally(cancel);
    });
  }

  /** @throws LockTimeout; ConnectionFailed or Throttled when the store could not be asked */
  async #timeOut(): Promise<never> {
    const { names } = this.#key;
    const { waitMs } = this.#request;
    const left = await this.#withdraw();
    // The end of the wait may cut off the last requests, or their answers come slowly. What came after that end does not count: this
    // machine may be slow, too.
    const heldAt = this.#heldAt;
    const lastMs = heldAt === undefined ? -Infinity : waitedFor(this.#startedAt) - waitedFor(heldAt);
    const wasHeld = waitMs - lastMs < Math.max(RECENT_MS, waitMs / 2);
    const couldAsk = this.#lastError === undefined || wasHeld;
    if (couldAsk || left?.holder !== undefined) throw lockTimeout(names, waitMs, left ?? 'unknown');
    throw unreachable(names, waitMs, this.#lastError);
  }
}

/**
 * A statement under way when the signal is aborted is waited for a little: cut off, it might be carried out after all, and
 * after what cleans up behind it.
 */
function timeToFinish(signal: AbortSignal | undefined): { over: AbortSignal; end: () => void } | undefined {
  if (signal === undefined) return undefined;
  const over = new AbortController();
  let cancel = (): void => {};
  const abort = (): void => {
    cancel = after(GRACE_MS, () => over.abort());
  };
  signal.addEventListener('abort', abort, { once: true });
  const end = (): void => {
    cancel();
    signal.removeEventListener('abort', abort);
  };
  return { over: over.signal, end };
}

function mutexKey(space: string, names: readonly string[]): string {
  return JSON.stringify([space, ...names]);
}

/** Tells requests without a place that one of their process has released these names. */
export function notifyReleased(client: LockClient, { space, names }: GrantKey): void {
  client.wakeUps.wake(mutexKey(space, names));
}
