import { Stopped } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { type Backoff, delay } from '../../base/time/backoff.ts';
import { isTransient, type Transaction } from '../../engine/postgres/index.ts';
import { answerDeadlineMs } from '../deadlines.ts';
import type { CaptureStore, ClaimedKeys } from '../postgres/store.ts';
import { type Destination, WentBack } from './destination.ts';

/** The result of one batch. */
export interface BatchResult {
  /** The batch has read the log to its end. */
  readonly isEnd: boolean;
  /** Where the next batch of the pass continues. */
  readonly last: string;
  /** Entities written or removed. */
  readonly done: number;
  /** How long the oldest of the changes had waited. */
  readonly lagMs: number;
}

export interface FailedEntity {
  readonly key: string;
  readonly attempt: number;
  readonly error: unknown;
}

export interface ProjectorParts {
  readonly store: CaptureStore;
  readonly destination: Destination;
  readonly onFailed: (failed: FailedEntity) => void;
}

export interface BatchSettings {
  readonly batch: number;
  readonly timeoutMs: number;
  readonly backoff: Backoff;
}

const NOTHING: ClaimedKeys = { isEnd: true, last: '0', ids: [], keys: [], oldest: null };

/**
 * Brings entities from the log into the target. One transaction makes the claim, reads the entities, writes the rows, and
 * acknowledges exactly the claimed changes. If any of these fails, nothing has happened.
 */
export class Projector {
  readonly #parts: ProjectorParts;

  constructor(parts: ProjectorParts) {
    this.#parts = parts;
  }

  /** The next batch of a pass. An entity that fails is set aside, alone; the others of its batch are done. */
  async batch(after: string, settings: BatchSettings, only?: readonly string[]): Promise<BatchResult> {
    const { store } = this.#parts;
    let claim = NOTHING;
    try {
      await store.transaction(async (tx) => {
        claim = await store.claim(tx, {
          after,
          limit: only?.length ?? settings.batch,
          batch: settings.batch,
          timeoutMs: settings.timeoutMs,
          only,
        });
        if (claim.keys.length === 0 && claim.ids.length === 0) return;
        if (faults.armed) await faults.reach('capture.after_claim');
        await this.write(tx, claim.keys);
        if (faults.armed) await faults.reach('capture.after_upsert');
        await store.settle(tx, claim.ids, claim.keys);
        if (faults.armed) await faults.reach('capture.before_commit');
      }, answerDeadlineMs(settings.timeoutMs));
      if (faults.armed) await faults.reach('capture.after_commit');
    } catch (error) {
      if (claim.keys.length === 0 || isNobodysFault(error)) throw error;
      return this.#apart(after, settings, claim, error);
    }
    const lagMs = claim.oldest === null ? 0 : Date.now() - claim.oldest.getTime();
    return { isEnd: claim.isEnd, last: claim.last, done: claim.keys.length, lagMs };
  }

  /** Tries each half of a failed batch alone, until a single entity is left that fails. */
  async #apart(after: string, settings: BatchSettings, claim: ClaimedKeys, error: unknown): Promise<BatchResult> {
    const [key, ...more] = claim.keys;
    let done = 0;
    if (key !== undefined && more.length === 0) {
      await this.#setAside(after, settings, key, error);
    } else {
      const middle = Math.ceil(claim.keys.length / 2);
      for (const half of [claim.keys.slice(0, middle), claim.keys.slice(middle)]) {
        done += (await this.batch(after, settings, half)).done;
      }
    }
    // The pass goes back: this claim has not read the changes behind these keys.
    return { isEnd: false, last: after, done, lagMs: 0 };
  }

  async #setAside(
    after: string,
    { batch, timeoutMs, backoff }: BatchSettings,
    key: string,
    error: unknown,
  ): Promise<void> {
    const { store, onFailed } = this.#parts;
    const attempt = await store.transaction(async (tx) => {
      const { ids, keys } = await store.claim(tx, { after, limit: 1, batch, timeoutMs, only: [key] });
      return keys.length === 0 ? undefined : store.fail(tx, key, ids, delay(backoff, 1, Math.random()), wordsOf(error));
    }, answerDeadlineMs(timeoutMs));
    if (attempt !== undefined) onFailed({ key, attempt, error });
  }

  /** Retries one entity that is due. @returns whether there was one */
  async retry({ timeoutMs, backoff }: BatchSettings): Promise<boolean> {
    const { store, onFailed } = this.#parts;
    let claimed: { key: string; attempt: number } | undefined;
    try {
      await store.transaction(async (tx) => {
        claimed = await store.claimRetry(tx, timeoutMs);
        if (claimed === undefined) return;
        await this.write(tx, [claimed.key]);
        await store.settle(tx, [], [claimed.key]);
      }, answerDeadlineMs(timeoutMs));
      return claimed !== undefined;
    } catch (error) {
      const failed = claimed;
      if (failed === undefined || isNobodysFault(error)) throw error;
      const attempt = await store.transaction(async (tx) => {
        const mine = await store.lock(tx, [failed.key]);
        const wait = delay(backoff, failed.attempt + 1, Math.random());
        return mine.length === 0 ? undefined : store.fail(tx, failed.key, [], wait, wordsOf(error));
      }, answerDeadlineMs(timeoutMs));
      if (attempt !== undefined) onFailed({ key: failed.key, attempt, error });
      return true;
    }
  }

  /** Writes the entities as they are now. The caller has locked them. */
  async write(tx: Transaction, keys: readonly string[]): Promise<void> {
    if (keys.length > 0) await this.#parts.destination.write(tx, keys);
  }
}

/** True if no entity causes the error, so that setting one aside would not help. */
export function isNobodysFault(error: unknown): boolean {
  // Stopped: an engine of this process was stopped while its workers go on.
  return isTransient(error) || error instanceof WentBack || error instanceof Stopped;
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
