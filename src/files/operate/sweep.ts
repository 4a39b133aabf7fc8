import { CollectorHalted, StoreRefused } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { now } from '../../base/time/clock.ts';
import type { GuardedContent } from '../guarded-content.ts';
import type { Marker } from '../marker.ts';
import type { ParsedOptions } from '../options.ts';
import type { CollectorClaim, FileStore } from '../store.ts';

/** What a sweep did, or in a dry run would have to do. */
export interface SweepReport {
  /** Replaced and removed versions whose time is over: no new reader gets them, and those who read them have `limits.total`. */
  readonly condemned: number;
  /** Objects deleted in the store, for the first time. */
  readonly deleted: number;
  /** Objects looked after once more, for requests that came through late. */
  readonly deletedAgain: number;
  /** Objects the store would not delete now; another sweep will try. */
  readonly failed: number;
}

/** What there is to collect, now and later. */
export interface CollectorState {
  readonly pending: number;
  readonly retired: number;
  readonly deleting: number;
  readonly deleted: number;
  /** Of all these, what a sweep would take on now. */
  readonly due: number;
  /** Why the collector has stopped itself; undefined while it has not. */
  readonly haltedBecause: string | undefined;
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

interface Batch {
  readonly claimed: readonly CollectorClaim[];
  /** As many as were wanted: there may be more. */
  readonly isFull: boolean;
}

/** Claimed at once: a statement of some milliseconds. */
const BATCH = 500;
/** Deletions of a batch under way at once; of batches there are two. */
const LANES = 16;
/** Whoever claims and dies is followed by another one after this, or after twice what one deletion may take. A batch takes seconds. */
const LEASE_MS = 5 * 60_000;
const COUNTED_MS = 60 * 60_000;

/** Deletes in the store what the database says nobody needs. Any number may run at a time. */
export class Collector {
  readonly #store: FileStore;
  readonly #guarded: GuardedContent;
  readonly #options: ParsedOptions;
  #countedAt = -Infinity;

  constructor(store: FileStore, guarded: GuardedContent, options: ParsedOptions) {
    this.#store = store;
    this.#guarded = guarded;
    this.#options = options;
  }

  /** @throws CollectorHalted */
  async sweep({ limit, signal }: Sweeping): Promise<SweepReport> {
    await this.#guarded.attach();
    const pass: Pass = {
      left: limit,
      hasFailed: false,
      report: { condemned: 0, deleted: 0, deletedAgain: 0, failed: 0 },
    };
    if (await this.#isIdle()) return pass.report;
    const first = await this.#next(pass, signal);
    const hands = [this.#work(pass, signal, first)];
    // There is more: while the database claims and settles one batch, the store deletes another.
    if (first?.isFull === true) hands.push(this.#next(pass, signal).then((next) => this.#work(pass, signal, next)));
    const broken = (await Promise.allSettled(hands)).find((hand) => hand.status === 'rejected');
    if (broken !== undefined) throw broken.reason;
    return pass.report;
  }

  /** @returns undefined when nothing is due, or nothing more is wanted */
  async #next(pass: Pass, signal: AbortSignal | undefined): Promise<Batch | undefined> {
    if (pass.left === 0 || pass.hasFailed) return undefined;
    signal?.throwIfAborted();
    // Its number is in the store before anything is deleted there, and looked at anew with each batch.
    await this.begin();
    const wanted = Math.min(BATCH, pass.left);
    pass.left -= wanted;
    const { totalMs } = this.#guarded.budget;
    const claimed = await this.#store.claim(totalMs, Math.min(LEASE_MS, 2 * totalMs), wanted);
    pass.left += wanted - claimed.length;
    return claimed.length === 0 ? undefined : { claimed, isFull: claimed.length === wanted };
  }

  async #work(pass: Pass, signal: AbortSignal | undefined, first: Batch | undefined): Promise<void> {
    for (let batch = first; batch !== undefined; batch = await this.#next(pass, signal)) {
      if (faults.armed) await faults.reach('files.after_claim');
      const done = await this.#collect(batch.claimed, signal);
      pass.report = sum(pass.report, done);
      pass.hasFailed ||= done.failed > 0;
      if (!batch.isFull && done.condemned === 0) return;
    }
  }

  /**
   * Begins a pass: the database counts it, and then the store's marker says it. A marker that is ahead of the database knows of
   * a future that the database has lost.
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
        `the collector has stopped itself: ${pass.halted}; look which of the two is right, then call rearm()`,
      );
    }
    await this.#guarded.writeMarker(pass);
    this.#countedAt = now();
  }

  /**
   * Nothing is due, and database and marker agree about the past: such a pass writes nothing. One in an hour is counted all the
   * same, and the first of each process, so that a database that went back further is found out before anything is moved.
   */
  async #isIdle(): Promise<boolean> {
    if (now() - this.#countedAt > COUNTED_MS || (await this.#store.isDue())) return false;
    const marker = await this.#marker();
    const row = await this.#store.attach(marker.store, this.#guarded.content.kind);
    return row.haltedBecause === null && marker.pass <= row.pass && marker.database === row.database;
  }

  async #marker(): Promise<Marker> {
    const marker = await this.#guarded.readMarker();
    if (marker !== undefined) return marker;
    throw new StoreRefused(`the marker of the store ${this.#guarded.content.where} is gone`);
  }

  /** Nobody has collected in this store yet. */
  async #database(store: string): Promise<string> {
    return (await this.#store.attach(store, this.#guarded.content.kind)).database;
  }

  /** An operator has looked, and this database is the one that collects. A marker that is damaged is written anew. */
  async rearm(): Promise<void> {
    const { pass } = await this.#guarded.identify();
    await this.#guarded.writeMarker(await this.#store.rearm(pass));
  }

  async #collect(claimed: readonly CollectorClaim[], signal: AbortSignal | undefined): Promise<SweepReport> {
    // A row that was deleted twice is all that is left, and its time is over, too.
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

  /** @returns those that are gone; the others are left to another sweep */
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
        // It stays claimed until its lease is over; the report counts it.
      }
    });
    return gone;
  }
}

function sum(one: SweepReport, other: SweepReport): SweepReport {
  return {
    condemned: one.condemned + other.condemned,
    deleted: one.deleted + other.deleted,
    deletedAgain: one.deletedAgain + other.deletedAgain,
    failed: one.failed + other.failed,
  };
}

/** Works on all of them, so many at a time, in any order. What `work` throws ends it, once those under way are done. */
export async function inParallel<T>(all: readonly T[], lanes: number, work: (one: T) => Promise<void>): Promise<void> {
  const rest = [...all];
  const lane = async (): Promise<void> => {
    for (let one = rest.pop(); one !== undefined; one = rest.pop()) await work(one);
  };
  const ended = await Promise.allSettled(Array.from({ length: Math.min(lanes, all.length) }, lane));
  for (const each of ended) if (each.status === 'rejected') throw each.reason;
}
