import { randomUUID } from 'node:crypto';
import type { LockTimeout } from '../../base/errors.ts';
import { after, type Moment, moment, ownedFor, waitedFor } from '../../base/time/clock.ts';
import type { LockClient } from '../client.ts';
import type { Answer, Claim, Held, Kept } from '../store.ts';
import { restBeforeLook, restBeforeRetry } from './poll-interval.ts';
import { deadlock, lockTimeout } from './unserved.ts';

/** What is asked for. */
export interface Wanted {
  readonly space: string;
  readonly names: readonly string[];
  readonly capacity: number;
  readonly leaseMs: number;
  readonly waitMs: number;
  readonly waiterMs: number;
  readonly isFair: boolean;
  readonly holds: readonly Kept[];
  readonly periodMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  /** Why it is to be given up, once it is; then the waiter is called. */
  readonly stopped: () => Error | undefined;
}

/** What came of it. */
export type Obtained =
  | {
      readonly kind: 'granted';
      readonly held: Held;
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
const TRIES_WITHOUT_WAIT = 3;

/**
 * Takes a lock, or waits for its turn: one statement when it is free. A lost answer is asked for again, and an abandoned
 * attempt cleaned up, so that whatever happens there is either a lock in hand or nothing.
 * @throws LockTimeout, Deadlock, Stopped, the reason of the signal, or the store's error
 */
export async function obtain(client: LockClient, wanted: Wanted): Promise<Obtained> {
  wanted.signal?.throwIfAborted();
  return new Acquisition(client, wanted).run();
}

class Acquisition {
  readonly #client: LockClient;
  readonly #wanted: Wanted;
  readonly #claim: Claim;
  readonly #startedAt: Moment = moment();
  #ticket: bigint | undefined;
  /** A call may have come through without our knowing. */
  #isAgain = false;
  /** The place in the queue, for how long and from when on; unknown after a lost answer, or when a place was lost. */
  #place: { readonly since: Moment; readonly ms: number } | undefined;
  /** No token can have been told but for the place that is known. */
  #isSure = true;
  #failures = 0;
  #refusals = 0;

  constructor(client: LockClient, wanted: Wanted) {
    this.#client = client;
    this.#wanted = wanted;
    const { space, names, capacity, leaseMs } = wanted;
    this.#claim = { space, names, nonce: randomUUID(), capacity, leaseMs };
  }

  async run(): Promise<Obtained> {
    const { isFair, waitMs } = this.#wanted;
    if (isFair || waitMs === 0) return this.#attempts();
    const { space, names, signal } = this.#wanted;
    let end = (): void => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const cancel = after(waitMs, end);
    signal?.addEventListener('abort', end, { once: true });
    const leave = await this.#client.gate.enter(gateKey(space, names), ended);
    try {
      return await this.#attempts();
    } finally {
      leave();
      cancel();
      signal?.removeEventListener('abort', end);
    }
  }

  async #attempts(): Promise<Obtained> {
    const { space, names, nonce } = this.#claim;
    // Those without a place are not told by the store, but when their own process releases it.
    const turn = this.#client.turns.expect(this.#wanted.isFair ? nonce : gateKey(space, names));
    try {
      for (;;) {
        if (this.#isOver) await this.#refuse();
        const since = moment();
        const answer = await this.#attempt(since);
        const obtained = answer === undefined ? undefined : this.#settle(answer, since);
        if (obtained !== undefined) {
          if (this.#isOver) await this.#refuse();
          return obtained;
        }
        const takeBack = this.#leaveToKeeper(answer);
        const restMs = takeBack === undefined ? this.#rest(answer) : Infinity;
        await turn.wait(Math.min(restMs, this.#leftMs()), this.#wanted.signal);
        takeBack?.();
        const handed = this.#handedOver(turn.token);
        if (handed !== undefined) {
          if (this.#isOver) await this.#refuse();
          return handed;
        }
        if (this.#leftMs() <= 0) throw this.#timedOut(await this.#leave(), undefined);
      }
    } catch (error) {
      // After an answer was lost nobody knows what stands there.
      if (this.#isAgain) void this.#leave();
      throw error;
    } finally {
      turn.stop();
    }
  }

  #note(answer: Answer, since: Moment): void {
    const isWaiting = answer.kind === 'waiting';
    // A second place: what was granted to the first one ran out, and may be told late.
    if (isWaiting && answer.isNew && this.#place !== undefined) this.#isSure = false;
    this.#ticket = isWaiting ? answer.ticket : undefined;
    this.#place = isWaiting ? { since, ms: answer.placeMs } : undefined;
  }

  /**
   * Granted in the statement of whoever had it before, for as long as the place was kept: that is certain by our own clock,
   * from before the place was renewed. When not much of it is left, the lock is asked for, which renews it; and so is one
   * without a lease, as what was handed over has one.
   */
  #handedOver(token: bigint | undefined): Obtained | undefined {
    const place = this.#place;
    if (token === undefined || place === undefined || !this.#isSure) return undefined;
    if (this.#wanted.leaseMs === Infinity) return undefined;
    if (place.ms - ownedFor(place.since) < place.ms / 4) return undefined;
    const waitedMs = waitedFor(this.#startedAt);
    return { kind: 'granted', held: this.#heldAs(token), since: place.since, firstMs: place.ms, waitedMs };
  }

  /** A place far behind is kept together with others, as long as whoever is handed the lock is told. */
  #leaveToKeeper(answer: Answer | undefined): (() => void) | undefined {
    const place = this.#place;
    if (answer?.kind !== 'waiting' || answer.ahead < 2 || place === undefined) return undefined;
    const { store, turns, places, isTold } = this.#client;
    if (!isTold || store.keepPlaces === undefined || this.#wanted.names.length > 1) return undefined;
    const { nonce } = this.#claim;
    const onKept = (since: Moment, ms: number): void => {
      this.#place = { since, ms };
    };
    return places.keep(
      { nonce, waiterMs: this.#wanted.waiterMs, onKept, onDoubt: () => turns.call(nonce) },
      place.since,
    );
  }

  /** Undefined when nobody knows what became of it, and it is to be tried again. */
  async #attempt(since: Moment): Promise<Answer | undefined> {
    const { waitMs, waiterMs, isFair, holds, periodMs, leaseMs } = this.#wanted;
    const isPlaced = isFair && waitMs > 0;
    // An answer that comes after the lease would be worth nothing.
    const timeoutMs = Math.min(Math.max(leaseMs / 3, 1000), 10_000, this.#leftMs() + GRACE_MS);
    const patience = patienceOf(this.#wanted.signal);
    try {
      const answer = await this.#client.store.acquire(
        {
          ...this.#claim,
          waiterMs: isPlaced ? waiterMs : undefined,
          ticket: this.#ticket,
          isAgain: this.#isAgain,
          holds: isPlaced ? holds : [],
          periodMs,
        },
        { timeoutMs, signal: patience?.over },
      );
      this.#failures = 0;
      this.#isAgain = false;
      this.#note(answer, since);
      return answer;
    } catch (error) {
      this.#isAgain = true;
      this.#isSure = false;
      this.#failures++;
      // Whatever the call failed with: its caller knows why it ended. Told first, as the store may not answer.
      if (this.#isOver) return this.#refuse();
      if (!this.#client.store.isTransient(error)) throw error;
      if (waitMs === 0 && this.#failures >= TRIES_WITHOUT_WAIT) throw error;
      if (waitMs > 0 && this.#leftMs() <= 0) throw this.#timedOut(await this.#leave(), error);
      return undefined;
    } finally {
      patience?.end();
    }
  }

  #settle(answer: Answer, since: Moment): Obtained | undefined {
    switch (answer.kind) {
      case 'granted':
        return this.#granted(answer.token, since);
      case 'cycle':
        throw deadlock(this.#claim.names, answer.cycle);
      case 'done':
        return answer;
      case 'held':
        return this.#wanted.waitMs === 0 ? answer : undefined;
      case 'waiting':
        return undefined;
    }
  }

  #granted(token: bigint, since: Moment): Obtained | undefined {
    const { leaseMs } = this.#claim;
    if (ownedFor(since) > leaseMs / 2) {
      // The answer took half of the lease: asking again renews it.
      this.#isAgain = true;
      return undefined;
    }
    const waitedMs = waitedFor(this.#startedAt);
    return { kind: 'granted', held: this.#heldAs(token), since, firstMs: leaseMs, waitedMs };
  }

  #heldAs(token: bigint): Held {
    const { space, names, capacity, nonce } = this.#claim;
    return { space, names, token, capacity, nonce };
  }

  #rest(answer: Answer | undefined): number {
    if (answer === undefined) return Math.min(10 * 2 ** this.#failures, 1000) * (0.5 + 0.5 * Math.random());
    if (answer.kind === 'granted') return 0;
    if (answer.kind === 'waiting') {
      return restBeforeLook(answer, this.#wanted.waiterMs, this.#client.isTold, Math.random());
    }
    this.#refusals++;
    return restBeforeRetry(this.#refusals, Math.random());
  }

  get #isOver(): boolean {
    return this.#wanted.signal?.aborted === true || this.#wanted.stopped() !== undefined;
  }

  /** Leaves nothing behind. @throws the signal's reason when it is aborted, or Stopped */
  async #refuse(): Promise<never> {
    const { signal, stopped } = this.#wanted;
    await this.#leave();
    throw signal?.aborted ? signal.reason : stopped();
  }

  #leftMs(): number {
    // Without waiting there are only repetitions of what got no answer.
    const { waitMs } = this.#wanted;
    return waitMs === 0 ? Infinity : waitMs - waitedFor(this.#startedAt);
  }

  /** Leaves nothing behind. When the store does not answer, the caller is answered first. @returns who is in the way */
  async #leave(): Promise<string | undefined> {
    this.#isAgain = false;
    const left = this.#client.leave(this.#claim, this.#wanted.waiterMs);
    return new Promise((resolve) => {
      const cancel = after(GRACE_MS, () => resolve(undefined), { unref: true });
      void left.then(resolve).finally(cancel);
    });
  }

  #timedOut(holder: string | undefined, cause: unknown): LockTimeout {
    return lockTimeout(this.#claim.names, this.#wanted.waitMs, holder, cause);
  }
}

/**
 * A statement under way when the signal is aborted is waited for a little: cut off, it might be carried out after all, and
 * after what cleans up behind it.
 */
function patienceOf(signal: AbortSignal | undefined): { over: AbortSignal; end: () => void } | undefined {
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

function gateKey(space: string, names: readonly string[]): string {
  return JSON.stringify([space, ...names]);
}

/** Tells requests without a place that one of their process has released these names. */
export function tellReleased(client: LockClient, { space, names }: Held): void {
  client.turns.call(gateKey(space, names));
}
