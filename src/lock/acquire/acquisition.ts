import { randomUUID } from 'node:crypto';
import { after, type Moment, moment, ownedFor, waitedFor, within } from '../../base/time/clock.ts';
import type { LockClient } from '../client.ts';
import type { AcquireAnswer, GrantKey, RequestKey } from '../store.ts';
import type { AcquireOutcome, LockRequest } from './lock-request.ts';
import { delayBeforePoll, delayBeforeRetry } from './poll-interval.ts';
import { deadlock, lockTimeout, unreachable } from './unserved.ts';

type GrantAnswer = Extract<AcquireAnswer, { kind: 'granted' }>;

// How long a call may outlast its time to clean up, when the store does not answer.
const GRACE_MS = 500;
// An answer of this age still explains why a wait was not served, if the last requests got no answer.
const RECENT_MS = 5000;
const TRIES_WITHOUT_WAIT = 3;
/** How long a request waits for the previous request of this process. */
const IN_LINE_MS = 1000;

/**
 * Takes a lock, or waits for its turn; one statement when the lock is free. After a lost answer it asks again, and it cleans
 * up an abandoned attempt: in the end the caller holds the lock, or no trace of the request is left.
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
  #leaveLine: (() => void) | undefined;
  #ticket: bigint | undefined;
  /** True after a lost answer: the call may have been carried out. */
  #isRetry = false;
  /** The lease of the place in the queue; undefined after a lost answer, or when the place was lost. */
  #placeLease: { readonly since: Moment; readonly ms: number } | undefined;
  /** True once it has had a place, also when a later answer came without one. */
  #hasHadPlace = false;
  /** The store has granted the lock, but the answer came late: the next call asks for the whole lease, and for no place. */
  #isConfirming = false;
  /** True while a notified token can only belong to the known place. */
  #canTrustHandoff = true;
  #failures = 0;
  #refusals = 0;
  /** The error of the last attempt. */
  #lastError: unknown;
  /** When the store last answered that the lock is held. */
  #heldAt: Moment | undefined;

  constructor(client: LockClient, request: LockRequest) {
    this.#client = client;
    this.#request = request;
    const { space, names, capacity, leaseMs } = request;
    this.#key = { space, names, nonce: randomUUID(), capacity, leaseMs };
  }

  async run(): Promise<AcquireOutcome> {
    const { isFair, waitMs } = this.#request;
    if (waitMs === 0) return this.#attemptUntilDone();
    // Holders that share the lock need no order.
    if (isFair) return this.#key.capacity === 1 ? this.#attemptInLine() : this.#attemptUntilDone();
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

  /** Serves requests for one lock of one process in the order of the calls, even if none was sent before the next one. */
  async #attemptInLine(): Promise<AcquireOutcome> {
    const { space, names } = this.#request;
    const { before, leave } = this.#client.sendingLine.join(mutexKey(space, names));
    this.#leaveLine = leave;
    try {
      // The store may be slow to answer the previous request: then the order is worth less than the time.
      if (before !== undefined) await within(Math.min(IN_LINE_MS, this.#leftMs()), before);
      return await this.#attemptUntilDone();
    } finally {
      leave();
    }
  }

  async #attemptUntilDone(): Promise<AcquireOutcome> {
    const { space, names, nonce } = this.#key;
    // The store does not notify requests without a place; a release in their own process wakes them.
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
      // After a lost answer, the rows in the store are unknown.
      if (this.#isRetry) void this.#withdraw();
      throw error;
    } finally {
      wakeUp.stop();
    }
  }

  #recordPlace(answer: AcquireAnswer, since: Moment): void {
    const isWaiting = answer.kind === 'waiting';
    // This is a second place: the grant of the first one ran out, and its notice may still arrive, or has arrived.
    if (isWaiting && answer.isNew && this.#hasHadPlace) this.#canTrustHandoff = false;
    this.#hasHadPlace ||= isWaiting;
    this.#ticket = isWaiting ? answer.ticket : undefined;
    this.#placeLease = isWaiting ? { since, ms: answer.placeMs } : undefined;
  }

  /**
   * Takes a direct hand-off: the release of the holder before granted the lock, for as long as the lease of the place. That
   * time is certain by our own clock, counted from before the last renewal of the place. If little of it is left, the lock is
   * requested in the usual way, which renews it. A lock without a lease is requested, too, since a hand-off always has a
   * lease.
   */
  #takeHandoff(token: bigint | undefined): AcquireOutcome | undefined {
    const place = this.#placeLease;
    if (token === undefined || place === undefined || !this.#canTrustHandoff) return undefined;
    if (this.#request.leaseMs === Infinity) return undefined;
    if (place.ms - ownedFor(place.since) < place.ms / 4) return undefined;
    const waitedMs = waitedFor(this.#startedAt);
    return { kind: 'granted', grant: this.#grantKey(token), since: place.since, firstMs: place.ms, waitedMs };
  }

  /** Renews a place far behind together with others. This needs notices, because a waiter must learn of a direct hand-off. */
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

  /** Undefined when the outcome is unknown and the attempt has to be repeated. */
  async #attempt(since: Moment): Promise<AcquireAnswer | undefined> {
    const { waitMs, waiterMs, isFair, holds, periodMs, leaseMs } = this.#request;
    const isPlaced = isFair && waitMs > 0 && !this.#isConfirming;
    // An answer that comes after the lease is useless.
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
      this.#isConfirming = false;
      this.#recordPlace(answer, since);
      return answer;
    } catch (error) {
      this.#isRetry = true;
      this.#canTrustHandoff = false;
      this.#failures++;
      // A cancelled request ends with the reason of the cancellation, whatever error the call had. This comes first, because the
      // store may not answer.
      if (this.#isCancelled) return this.#cancel();
      if (!this.#client.store.isTransient(error)) throw error;
      if (waitMs === 0 && this.#failures >= TRIES_WITHOUT_WAIT) throw error;
      this.#lastError = error;
      if (waitMs > 0) this.#reportFailure(error);
      if (waitMs > 0 && this.#leftMs() <= 0) return this.#timeOut();
      return undefined;
    } finally {
      patience?.end();
      this.#leaveLine?.();
    }
  }

  #reportFailure(error: unknown): void {
    this.#client.failures.warn(error, { names: this.#key.names });
    this.#request.onError(error);
  }

  #interpret(answer: AcquireAnswer, since: Moment): AcquireOutcome | undefined {
    switch (answer.kind) {
      case 'granted':
        return this.#granted(answer, since);
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

  #granted({ token, firstMs }: GrantAnswer, since: Moment): AcquireOutcome | undefined {
    const { leaseMs } = this.#key;
    // A heartbeat has to be answered within a third of what it was granted for.
    const isShort = firstMs !== undefined && firstMs < leaseMs;
    if (ownedFor(since) > (isShort ? firstMs / 4 : leaseMs / 2)) {
      this.#isRetry = true;
      this.#isConfirming = true;
      return undefined;
    }
    const waitedMs = waitedFor(this.#startedAt);
    return { kind: 'granted', grant: this.#grantKey(token), since, firstMs: isShort ? firstMs : leaseMs, waitedMs };
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

  /** Withdraws the request. @throws the signal's reason when it is aborted, or Stopped */
  async #cancel(): Promise<never> {
    const { signal, stopped } = this.#request;
    await this.#withdraw();
    throw signal?.aborted ? signal.reason : stopped();
  }

  #leftMs(): number {
    // A request that does not wait is only repeated after a lost answer.
    const { waitMs } = this.#request;
    return waitMs === 0 ? Infinity : waitMs - waitedFor(this.#startedAt);
  }

  /**
   * Withdraws the request. If the store does not answer, this resolves first and the withdrawal continues. @returns the
   * holder, if the store answers in time
   */
  async #withdraw(): Promise<{ holder: string | undefined } | undefined> {
    this.#isRetry = false;
    const left = this.#client.withdraw(this.#key, this.#request.waiterMs).then((holder) => ({ holder }));
    return new Promise((resolve) => {
      // This timer keeps the process alive, so that a wait is settled before its process ends.
      const cancel = after(GRACE_MS, () => resolve(undefined));
      void left.then(resolve).finally(cancel);
    });
  }

  /** @throws LockTimeout; ConnectionFailed or Throttled when the store could not be asked */
  async #timeOut(): Promise<never> {
    const { names } = this.#key;
    const { waitMs } = this.#request;
    const left = await this.#withdraw();
    // The end of the wait may cut off the last requests, or their answers may be slow. An answer after that end does not count:
    // this machine may be slow, too.
    const heldAt = this.#heldAt;
    const lastMs = heldAt === undefined ? -Infinity : waitedFor(this.#startedAt) - waitedFor(heldAt);
    const wasHeld = waitMs - lastMs < Math.max(RECENT_MS, waitMs / 2);
    const couldAsk = this.#lastError === undefined || wasHeld;
    if (couldAsk || left?.holder !== undefined) throw lockTimeout(names, waitMs, left ?? 'unknown');
    throw unreachable(names, waitMs, this.#lastError);
  }
}

/**
 * Waits a little for a statement that is under way when the signal is aborted. If the connection were closed, the statement
 * might be carried out anyway, and after the withdrawal.
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

/** Wakes requests without a place in this process after it has released these names. */
export function notifyReleased(client: LockClient, { space, names }: GrantKey): void {
  client.wakeUps.wake(mutexKey(space, names));
}
