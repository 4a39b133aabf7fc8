import { hostname } from 'node:os';
import { describeThrown } from '../../base/error-text.ts';
import { LeaseLost, LockNotAvailable, NoRetry } from '../../base/errors.ts';
import type { Logger } from '../../base/logger.ts';
import { bool, checkOptions, duration, integer, optional, text } from '../../base/options/options.ts';
import { toJson } from '../../base/storable.ts';
import { BACKOFF, type Backoff, delay } from '../../base/time/backoff.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { namePart, pausedPartOf, setAsideMs } from '../paused-part.ts';
import { type Extension, PostgresQueuePull, type PulledKey, type PulledOutcome } from '../postgres/pull.ts';
import { countUnits, readClaim } from '../work/claim-reader.ts';
import { Keeper } from '../work/keeper.ts';
import { PredecessorFailed } from '../work/run/attempt.ts';
import type { Unit, UnitOwner } from '../work/run/unit.ts';
import { Verdict } from '../work/run/verdict.ts';
import { readHandle, writeHandle } from './handle.ts';

export interface ClaimOptions {
  /** The most units to claim: 1 (default) to 1,000. */
  readonly limit?: number | undefined;
  /** How long the units are yours unless you extend the lease: from 1 s to 24 h. Default `'30s'`. */
  readonly lease?: Duration | undefined;
  /** The host that the list of workers shows for this claim. Default: the name of this machine. */
  readonly client?: string | undefined;
}

/** The outcome of a unit that failed: retry, error, or the outcome that its verdict names. */
export type FailedTo = 'retry' | 'error' | 'release' | 'cancelled';

/** The outcome of a unit that was given back: ready again, or cancelled if somebody had cancelled the job. */
export type ReleasedTo = 'release' | 'cancelled';

export interface FailOptions {
  /** The wait before the next attempt. Default: the backoff of the queue. */
  readonly retryIn?: Duration | undefined;
  /** True: the jobs end in error, even if attempts are left, as with a `NoRetry`. Default false. */
  readonly final?: boolean | undefined;
}

/** The lease of a unit after an extension. */
export interface ExtendedLease {
  readonly expiresAt: Date;
  /** True: a job of the unit was cancelled. Stop, and release or fail the unit; the job then ends as cancelled. */
  readonly isCancelled: boolean;
  readonly reason: string | null;
}

/** A pulled unit, with the data that settles it. */
export interface PulledUnit {
  readonly unit: Unit;
  readonly handle: string;
  readonly expiresAt: Date;
}

const claimShape = {
  limit: integer({ min: 1, max: 1000, default: 1 }),
  lease: duration({ min: '1s', max: '24h', default: '30s' }),
  client: optional(text({ min: 1, max: 100 })),
};
const failShape = { retryIn: optional(duration({ min: 0, max: '365d' })), final: bool({ default: false }) };
const extendShape = { lease: optional(duration({ min: '1s', max: '24h' })) };

/** Claims units by calls, and settles them by their handles, in any process. */
export class Puller {
  readonly #engine: PostgresEngine;
  readonly #store: PostgresQueuePull;
  readonly #log: Logger;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
    this.#store = new PostgresQueuePull(engine);
    this.#log = engine.options.logger;
  }

  /**
   * Claims units that are ready now, up to the limit; does not wait. @param owner  of the units
   * @throws NotFound, InvalidInput
   */
  async claim(queue: string, options: ClaimOptions, owner: UnitOwner): Promise<readonly PulledUnit[]> {
    const { units, id, hasLost } = await this.#claim(queue, options, owner);
    if (!hasLost) return units;
    // If this queue has no worker, no other process gives back the claims of dead clients, or frees jobs that wait for others.
    await this.#unlessClaimed(units, this.#store.doChores(id, Keeper.living(this.#engine, id)));
    return units.length > 0 ? units : (await this.#claim(queue, options, owner)).units;
  }

  /** If a chore after the claim fails, the caller gets the claimed units anyway: without an owner they would be charged. */
  async #unlessClaimed(units: readonly PulledUnit[], work: Promise<unknown>): Promise<boolean> {
    try {
      await work;
      return true;
    } catch (error) {
      if (units.length === 0) throw error;
      this.#log.warn({ err: error }, 'queue: claim() returns the units that it had claimed before an error');
      return false;
    }
  }

  async #claim(
    queue: string,
    options: ClaimOptions,
    owner: UnitOwner,
  ): Promise<{ readonly units: readonly PulledUnit[]; readonly id: number; readonly hasLost: boolean }> {
    const { limit, lease: leaseMs, client: host = hostname() } = checkOptions('claim', options, claimShape);
    const first = Math.floor(Math.random() * MOST_SHARDS);
    const units: PulledUnit[] = [];
    let [id, shards, hasLost] = [0, 1, false];
    let earlier: number | null = null;
    for (let at = 0; at < shards && units.length < limit; at += 1) {
      const request = {
        turn: first + at,
        limit: limit - units.length,
        leaseMs,
        host,
        pid: process.pid,
        worker: earlier,
      };
      const pulling = this.#store.pull(queue, request);
      if (!(await this.#unlessClaimed(units, pulling))) break;
      const pulled = await pulling;
      ({ id, shards } = pulled);
      hasLost ||= pulled.hasLost;
      const { shard, worker, answer, kinds = {}, expiresAt = 0 } = pulled;
      if (worker === undefined || answer === undefined || countUnits(answer) === 0) continue;
      earlier = worker;
      let isPartlyPaused = false;
      const kindName = new Map(Object.entries(kinds).map(([kind, name]) => [Number(kind), name]));
      const read = readClaim(answer, { shard, definition: NO_KINDS, registered: { kindName }, owner });
      for (const unit of read.units) {
        const one = toPulled(unit, worker, expiresAt);
        const part = answer.pausedParts && pausedPartOf(answer.pausedParts, unit);
        if (part !== undefined) {
          const aside = { reason: `paused: ${namePart(part)}`, wait: setAsideMs(part), part: part.nth };
          isPartlyPaused = await this.settleUnseen(this.release(one.handle, false, aside));
        } else if (unit.brokenBy === null) units.push(one);
        else await this.settleUnseen(this.fail(one.handle, new PredecessorFailed(unit.brokenBy), {}));
      }
      // Behind the units that were set aside there may be others.
      if (isPartlyPaused) at -= 1;
    }
    return { units, id, hasLost };
  }

  /** @throws LeaseLost, InvalidInput, LockNotAvailable */
  async complete(handle: string, result: unknown, isGuarded: boolean, maxBytes?: number): Promise<void> {
    const json = result === undefined ? undefined : toJson(result, 'the result', undefined, maxBytes);
    await this.#settle(handle, { to: 'complete', isGuarded }, json);
  }

  /** @returns the outcome @throws LeaseLost, InvalidInput, LockNotAvailable */
  async fail(
    handle: string,
    error: unknown,
    options: FailOptions,
    { isGuarded = false, backoff }: { readonly isGuarded?: boolean; readonly backoff?: Backoff } = {},
  ): Promise<FailedTo> {
    const { retryIn, final } = checkOptions('fail', options, failShape);
    const { attempt, ...key } = readHandle(handle);
    const verdict = error instanceof Verdict ? error : undefined;
    const isFinal = final || error instanceof NoRetry;
    const to = await this.#settle(handle, {
      to: verdict?.to ?? (isFinal ? 'error' : 'retry'),
      wait: retryIn ?? verdict?.waitMs ?? (isFinal ? 0 : await this.#backOff(key, attempt, backoff)),
      reason: verdict?.reason ?? (isFinal ? 'no retry' : 'failed'),
      error: verdict?.message ?? describeThrown(error),
      isGuarded,
    });
    return to === 'complete' ? 'retry' : to;
  }

  /** A caller that has only the handle knows neither the declaration nor the options of the job. */
  async #backOff(key: PulledKey, attempt: number, known: Backoff | undefined): Promise<number> {
    return delay(known ?? (await this.#store.ownBackoff(key)) ?? BACKOFF, attempt, Math.random());
  }

  /** @returns the outcome @throws LeaseLost, InvalidInput, LockNotAvailable */
  async release(
    handle: string,
    isGuarded: boolean,
    how: { readonly reason?: string; readonly wait?: number; readonly part?: number } = {},
  ): Promise<ReleasedTo> {
    const to = await this.#settle(handle, { to: 'release', reason: 'released by its client', ...how, isGuarded });
    return to === 'cancelled' ? to : 'release';
  }

  /**
   * Settles a unit that no caller gets. If another process owns the unit by now, as after a pause of this process, the claim
   * ignores that. After any other failure, the unit is given back at the end of its lease. @returns false in that case
   */
  async settleUnseen(settling: Promise<unknown>): Promise<boolean> {
    try {
      await settling;
      return true;
    } catch (error) {
      const isHeld = !(error instanceof LeaseLost);
      if (isHeld) {
        this.#log.warn(
          { err: error },
          'queue: a claimed unit did not reach its caller and could not be given back; it comes back when its lease ends',
        );
      }
      return !isHeld;
    }
  }

  /** @throws LeaseLost, InvalidInput */
  async extend(handle: string, lease: Duration | undefined): Promise<ExtendedLease> {
    const { lease: leaseMs } = checkOptions('extend', { lease }, extendShape);
    const { attempt: _attempt, ...unit } = readHandle(handle);
    return toLease(await this.#store.extend(unit, leaseMs));
  }

  async #settle(handle: string, outcome: PulledOutcome, result?: string): Promise<PulledOutcome['to']> {
    const { attempt: _attempt, ...unit } = readHandle(handle);
    const to = await this.#store.settle(unit, outcome, result);
    if (to !== undefined) return to;
    throw new LockNotAvailable(
      `job ${unit.job} cannot be settled now: a transaction that guards it is open; end that first, then settle the job`,
    );
  }
}

/** A number of shards is at most this. */
const MOST_SHARDS = 256;

/** A claim needs no declaration: the database makes the units. */
const NO_KINDS = { kinds: new Map() };

function toPulled(unit: Unit, worker: number, expiresAt: number): PulledUnit {
  const { claim, number } = unit.job;
  const key = { shard: claim.shard, worker, claim: claim.id, job: number, process: claim.processId };
  return { unit, handle: writeHandle({ ...key, attempt: unit.attempt }), expiresAt: new Date(expiresAt) };
}

function toLease({ expiresAt, isCancelled, reason }: Extension): ExtendedLease {
  return { expiresAt: new Date(expiresAt), isCancelled, reason };
}
