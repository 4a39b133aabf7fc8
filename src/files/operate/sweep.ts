import { CollectorHalted, StoreRefused } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { now } from '../../base/time/clock.ts';
import type { GuardedContent } from '../guarded-content.ts';
import type { Marker } from '../marker.ts';
import type { ParsedOptions } from '../options.ts';
import type { CollectorClaim, FileStore } from '../store.ts';

/** The result of a sweep. */
export interface SweepReport {
  /**
   * Replaced and removed versions whose time is over. No new reader gets them; current readers have `limits.total` to finish.
   */
  readonly condemned: number;
  /** Objects deleted in the store, for the first time. */
  readonly deleted: number;
  /** Objects deleted a second time, because a late request may have written them again. */
  readonly deletedAgain: number;
  /** Objects that the store failed to delete; another sweep tries again. */
  readonly failed: number;
}

/** How much there is to collect, now and later. */
export interface CollectorState {
  readonly pending: number;
  readonly retired: number;
  readonly deleting: number;
  readonly deleted: number;
  /** How many of all these a sweep would claim now. */
  readonly due: number;
  /** Why the collector has stopped itself; undefined while it has not. */
  readonly haltedBecause: string | null;
}

interface Sweeping {
  readonly limit: number;
  readonly signal: AbortSignal | undefined;
}

/** One sweep. */
interface Pass {
  /** How many it may still claim. */
  left: number;
  hasFailed: boolean;
  report: SweepReport;
}

interface ClaimedBatch {
  readonly claimed: readonly CollectorClaim[];
  /** True: the batch is full, so there may be more. */
  readonly isFull: boolean;
}

/** Objects per claim: a statement of some milliseconds. */
const BATCH = 500;
/** Deletions of one batch that are under way at the same time; two batches are. */
const LANES = 16;
/**
 * After the death of a collector another one takes over its claims after this time, or after twice the limit of one deletion.
 * A batch takes seconds.
 */
const LEASE_MS = 5 * 60_000;
const COUNTED_MS = 60 * 60_000;

/**
 * Deletes objects in the store that the database no longer needs. Any number of collectors may run at the same time.
 */
export class Collector {
  readonly #store: FileStore;
  readonly #guarded: GuardedContent;
  readonly #options: ParsedOptions;
  #countedAt = -Infinity;
  #endedProbesAt = -Infinity;

  constructor(store: FileStore, guarded: GuardedContent, options: ParsedOptions) {
    this.#store = store;
    this.#guarded = guarded;
    this.#options = options;
  }

  /** @throws CollectorHalted */
  async sweep({ limit, signal }: Sweeping): Promise<SweepReport> {
    const { abort } = await this.#guarded.attach();
    if (abort) await this.#endProbes();
    const pass: Pass = {
      left: limit,
      hasFailed: false,
      report: { condemned: 0, deleted: 0, deletedAgain: 0, failed: 0 },
    };
    if (await this.#isIdle()) return pass.report;
    const first = await this.#next(pass, signal);
    const hands = [this.#work(pass, signal, first)];
    // There is more work: while the database claims and settles one batch, the store deletes another.
    if (first?.isFull === true) hands.push(this.#next(pass, signal).then((next) => this.#work(pass, signal, next)));
    const broken = (await Promise.allSettled(hands)).find((hand) => hand.status === 'rejected');
    if (broken !== undefined) throw broken.reason;
    return pass.report;
  }

  /**
   * Removes the remains of killed tests of the store. A store is tested once. If two processes test it at the same time and one of
   * them is killed, no later test removes its remains. It takes one request, at the first sweep of each process and once an hour.
   */
  async #endProbes(): Promise<void> {
    if (now() - this.#endedProbesAt <= COUNTED_MS) return;
    await this.#guarded.endProbes();
    this.#endedProbesAt = now();
  }

  /** @returns undefined when nothing is due, or nothing more is wanted */
  async #next(pass: Pass, signal: AbortSignal | undefined): Promise<ClaimedBatch | undefined> {
    if (pass.left === 0 || pass.hasFailed) return undefined;
    signal?.throwIfAborted();
    // The number of the pass is written to the store before the first deletion there, and is checked again for each batch.
    await this.begin();
    const wanted = Math.min(BATCH, pass.left);
    pass.left -= wanted;
    const { totalMs } = this.#guarded.budget;
    const claimed = await this.#store.claim(totalMs, Math.min(LEASE_MS, 2 * totalMs), wanted);
    pass.left += wanted - claimed.length;
    return claimed.length === 0 ? undefined : { claimed, isFull: claimed.length === wanted };
  }

  async #work(pass: Pass, signal: AbortSignal | undefined, first: ClaimedBatch | undefined): Promise<void> {
    for (let batch = first; batch !== undefined; batch = await this.#next(pass, signal)) {
      if (faults.armed) await faults.reach('files.after_claim');
      const done = await this.#collect(batch.claimed, signal);
      pass.report = sum(pass.report, done);
      pass.hasFailed ||= done.failed > 0;
      if (!batch.isFull && done.condemned === 0) return;
    }
  }

  /**
   * Begins a pass: the database counts it first, then it is written to the store's marker. A marker that is ahead of the
   * database shows that the database has gone back in time.
   * @throws CollectorHalted
   */
  async begin(): Promise<void> {
    const marker = await this.#marker();
    const pass = await this.#store.beginPass(
      marker.pass,
      marker.database === '' ? await this.#database(marker.store) : marker.database,
    );
    if ('halted' in pass) {
      throw new CollectorHalted(
        `the collector has stopped itself: ${pass.halted}; find out whether the database or the store is right, then call rearm()`,
      );
    }
    await this.#guarded.writeMarker(pass);
    this.#countedAt = now();
  }

  /**
   * Whether nothing is due, and database and marker agree on the pass: such a pass writes nothing. The first pass of each process
   * and one pass an hour are counted anyway, so that a database that went back further is noticed before any object is moved.
   */
  async #isIdle(): Promise<boolean> {
    if (now() - this.#countedAt > COUNTED_MS || (await this.#store.isDue())) return false;
    const marker = await this.#marker();
    const row = await this.#store.attach(marker.store, this.#guarded.content.kind);
    return row.haltedBecause === null && marker.pass <= row.pass && isDatabase(marker.database, row.database);
  }

  async #marker(): Promise<Marker> {
    const marker = await this.#guarded.readMarker();
    if (marker !== undefined) return marker;
    throw new StoreRefused(`the marker of the store ${this.#guarded.content.where} is gone`);
  }

  /** No database has collected in this store yet. */
  async #database(store: string): Promise<string> {
    return (await this.#store.attach(store, this.#guarded.content.kind)).database;
  }

  /** An operator has decided that this database is the one that collects. A damaged marker is written again. */
  async rearm(): Promise<void> {
    const { pass } = await this.#guarded.identify();
    await this.#guarded.writeMarker(await this.#store.rearm(pass));
  }

  async #collect(claimed: readonly CollectorClaim[], signal: AbortSignal | undefined): Promise<SweepReport> {
    // Of an object that was deleted twice, only the row is left, and the time of the row is over, too.
    const rowsOnly = claimed.filter((each) => each.was === 'deleted' && each.deletions >= 2);
    const doomed = claimed.filter((each) => each.was !== 'retired' && !rowsOnly.includes(each));
    const gone = await this.#delete(doomed, signal);
    if (faults.armed) await faults.reach('files.after_delete');
    const settled = [...rowsOnly, ...gone];
    const { tombstone, history } = this.#options;
    if (settled.length > 0) await this.#store.settle(settled, tombstone, history);
    return {
      condemned: claimed.length - doomed.length - rowsOnly.length,
      deleted: gone.filter((each) => each.was !== 'deleted').length,
      deletedAgain: gone.filter((each) => each.was === 'deleted').length,
      failed: doomed.length - gone.length,
    };
  }

  /** @returns the claims whose objects are gone; the others are left to another sweep */
  async #delete(doomed: readonly CollectorClaim[], signal: AbortSignal | undefined): Promise<CollectorClaim[]> {
    const { content } = this.#guarded;
    const gone: CollectorClaim[] = [];
    await inParallel(doomed, LANES, async (each) => {
      if (signal?.aborted === true) return;
      const { object, upload, unfinished: isUnfinished } = each;
      const what = { upload: upload ?? undefined, isUnfinished };
      try {
        await this.#guarded.call(`deleting ${object}`, (call) => content.delete(object, { ...what, ...call }), signal);
        gone.push(each);
      } catch {
        // The object stays claimed until the lease is over; the report counts the failure.
      }
    });
    return gone;
  }
}

/** As `pawl.file_is_database`: a role may not know its cluster. */
function isDatabase(one: string, other: string): boolean {
  const isUnsure = one.startsWith('?:') || other.startsWith('?:');
  return isUnsure ? one.split(':')[1] === other.split(':')[1] : one === other;
}

function sum(one: SweepReport, other: SweepReport): SweepReport {
  return {
    condemned: one.condemned + other.condemned,
    deleted: one.deleted + other.deleted,
    deletedAgain: one.deletedAgain + other.deletedAgain,
    failed: one.failed + other.failed,
  };
}

/**
 * Calls `work` for all of them, at most `lanes` at a time, in any order. If a call fails, its lane ends and the other lanes
 * continue. When all lanes have ended, the function throws the error of the first lane that failed.
 */
export async function inParallel<T>(all: readonly T[], lanes: number, work: (one: T) => Promise<void>): Promise<void> {
  const rest = [...all];
  const lane = async (): Promise<void> => {
    for (let one = rest.pop(); one !== undefined; one = rest.pop()) await work(one);
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(lanes, all.length) }, lane));
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}
