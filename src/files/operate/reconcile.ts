import { InvalidInput, StoreRefused, StoreUnavailable } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { isObjectName, type ListPage } from '../content.ts';
import type { GuardedContent } from '../guarded-content.ts';
import type { FileStore } from '../store.ts';
import type { PastVersion } from '../version.ts';
import { type Collector, inParallel } from './sweep.ts';

/** What a comparison of the store with the database found. */
export interface ReconcileReport {
  /** Names seen in the store. */
  readonly seen: number;
  /** Names in the store that no row knows: put there by others, or by a future that the database has lost. */
  readonly strangers: readonly string[];
  /** Those of them that were taken to quarantine by this call. */
  readonly quarantined: readonly string[];
  /** Versions whose bytes are not in the store, or have another length there. */
  readonly damaged: readonly DamagedVersion[];
  /** What the store would not do now; it is as it was, or nothing is known of it. */
  readonly failed: readonly ReconcileFailure[];
  /**
   * Where to go on from, if this call stopped before the end: 10,000 names are in its report, or the store gave no more of its
   * list. Undefined: everything was compared.
   */
  readonly next: string | undefined;
}

export interface DamagedVersion {
  readonly id: string;
  readonly version: number;
  readonly object: string;
  readonly damage: 'missing' | 'size';
}

export interface ReconcileFailure {
  /** Of the object, or whatever else lies there; `''`: the list itself. */
  readonly name: string;
  readonly error: string;
}

interface Options {
  readonly dryRun: boolean;
  readonly from: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/** A report that names more helps nobody. */
const MOST_NAMED = 10_000;
/** Calls of the store under way at once. */
const LANES = 16;

/**
 * Compares everything in the store with everything in the database. A page of the store's list is taken first, then the rows
 * between its names: a row is committed before its object is written, so what is in the page and has no row is a stranger.
 * What seems to be missing is looked for once more by its name, since it may be younger than the page. A page is compared to
 * its end, so that `next` is where nothing was looked at yet.
 */
export async function reconcile(
  store: FileStore,
  guarded: GuardedContent,
  collector: Collector,
  { dryRun, from, signal }: Options,
): Promise<ReconcileReport> {
  await guarded.attach();
  // A database that does not know whether it is right must not move what it does not know.
  if (!dryRun) await collector.begin();
  const comparison = new Comparison(store, guarded, dryRun, signal);
  let place: Place | undefined = from === undefined ? BEGINNING : readPlace(from);
  while (place !== undefined && comparison.named < MOST_NAMED) {
    const page = await comparison.list(place.cursor);
    if (page === undefined) break;
    place = await comparison.compare(page, place.after);
  }
  return { ...comparison.found, next: place && `${place.after} ${place.cursor ?? ''}` };
}

/** Where a comparison goes on: behind an object, and with a page of the list. */
interface Place {
  readonly after: string;
  readonly cursor: string | undefined;
}

const BEGINNING: Place = { after: '00000000-0000-0000-0000-000000000000', cursor: undefined };

/** @throws InvalidInput */
function readPlace(from: string): Place {
  const [after, cursor] = [from.slice(0, 36), from.slice(37)];
  if (isObjectName(after) && from[36] === ' ') return { after, cursor: cursor === '' ? undefined : cursor };
  throw new InvalidInput(`option "from" for reconcile takes the \`next\` of a report, not ${show(from)}`, {
    field: 'from',
  });
}

/** What has been compared so far. */
class Comparison {
  readonly #store: FileStore;
  readonly #guarded: GuardedContent;
  readonly #dryRun: boolean;
  readonly #signal: AbortSignal | undefined;
  #seen = 0;
  readonly #strangers: string[] = [];
  readonly #quarantined: string[] = [];
  readonly #damaged: DamagedVersion[] = [];
  readonly #failed: ReconcileFailure[] = [];

  constructor(store: FileStore, guarded: GuardedContent, dryRun: boolean, signal: AbortSignal | undefined) {
    this.#store = store;
    this.#guarded = guarded;
    this.#dryRun = dryRun;
    this.#signal = signal;
  }

  get found(): Omit<ReconcileReport, 'next'> {
    return {
      seen: this.#seen,
      strangers: this.#strangers.toSorted(),
      quarantined: this.#quarantined.toSorted(),
      damaged: this.#damaged,
      failed: this.#failed,
    };
  }

  get named(): number {
    return this.#strangers.length + this.#damaged.length + this.#failed.length;
  }

  /** @returns undefined when the store gives no more of its list now */
  async list(cursor: string | undefined): Promise<ListPage | undefined> {
    const { content } = this.#guarded;
    return this.#try('', () =>
      this.#guarded.call('listing the store', (call) => content.list(cursor, call), this.#signal),
    );
  }

  /** @param after  the last object of the page before @returns where to go on; undefined: this was the last one */
  async compare({ entries, next }: ListPage, after: string): Promise<Place | undefined> {
    this.#signal?.throwIfAborted();
    this.#seen += entries.length;
    const ours = entries.filter(({ name }) => isObjectName(name));
    const known = await this.#store.known(ours.map(({ name }) => name));
    await inParallel(
      entries.filter(({ name }) => !known.has(name)),
      LANES,
      ({ name }) => this.#takeAway(name),
    );
    const upto = next === undefined ? undefined : (ours.at(-1)?.name ?? after);
    const sizes = new Map(ours.map(({ name, size }) => [name, size]));
    const doubtful = (await this.#store.readable(after, upto)).filter(({ object, size }) => sizes.get(object) !== size);
    await inParallel(doubtful, LANES, (row) => this.#look(row));
    return next === undefined ? undefined : { after: upto ?? after, cursor: next };
  }

  async #takeAway(name: string): Promise<void> {
    if (this.#dryRun) return void this.#strangers.push(name);
    const { content } = this.#guarded;
    const what = `taking ${name} to quarantine`;
    const isTaken = await this.#try(name, () =>
      this.#guarded.call(what, (call) => content.quarantine(name, call), this.#signal),
    );
    // One that is gone by now is nobody's business any more.
    if (isTaken !== false) this.#strangers.push(name);
    if (isTaken === true) this.#quarantined.push(name);
  }

  /** It is not in the page as it should be: it may be younger, or have been collected meanwhile. */
  async #look(row: PastVersion): Promise<void> {
    const { id, version, object, size } = row;
    const { content } = this.#guarded;
    const found = await this.#try(object, async () => ({
      size: await this.#guarded.call(`looking for ${object}`, (call) => content.size(object, call), this.#signal),
    }));
    if (found === undefined || found.size === size) return;
    const damage = found.size === undefined ? 'missing' : 'size';
    if (damage === 'missing') {
      const now = await this.#store.current(id, version);
      if (now?.state !== 'live' && now?.state !== 'retired') return;
    }
    this.#damaged.push({ id, version, object, damage });
  }

  /** What the store would not do is counted, and the rest goes on. */
  async #try<T>(name: string, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      if (!(error instanceof StoreUnavailable || error instanceof StoreRefused)) throw error;
      this.#failed.push({ name, error: error.message });
      return undefined;
    }
  }
}
