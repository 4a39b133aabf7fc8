import { InvalidInput, StoreRefused, StoreUnavailable } from '../../base/errors.ts';
import { show } from '../../base/options/refusal.ts';
import { isObjectName, type ListEntry, type ListPage } from '../content.ts';
import type { GuardedContent } from '../guarded-content.ts';
import type { FileStore } from '../store.ts';
import type { PastVersion } from '../version.ts';
import { type Collector, inParallel } from './sweep.ts';

/** The result of comparing the store with the database. */
export interface ReconcileReport {
  /** How many names of the store were read. */
  readonly seen: number;
  /** Names in the store without a row: other programs put them there, or the database lost their rows in a restore. */
  readonly strangers: readonly string[];
  /** The strangers that this call moved to quarantine. */
  readonly quarantined: readonly string[];
  /** Versions whose bytes are not in the store, or have another length there. */
  readonly damaged: readonly DamagedVersion[];
  /** Names for which a call of the store failed. They are unchanged, or their state is unknown. */
  readonly failed: readonly ReconcileFailure[];
  /**
   * Where to continue, if this call stopped before the end: its report has 10,000 names, or the store failed to return more of
   * its list. Null: everything was compared.
   */
  readonly next: string | null;
}

export interface DamagedVersion {
  readonly id: string;
  readonly version: number;
  readonly object: string;
  readonly damage: 'missing' | 'size';
}

export interface ReconcileFailure {
  /** The name in the store; `''`: listing the store failed. */
  readonly name: string;
  readonly error: string;
}

interface Options {
  readonly dryRun: boolean;
  readonly from: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/** The most names of a report: no person reads a longer one. */
const MOST_NAMED = 10_000;
/** Rows that are read at a time. */
const ROWS = 1000;
/** Calls of the store under way at once. */
const LANES = 16;

/**
 * Compares everything in the store with everything in the database. It reads a page of the store's list first, then the rows
 * between its names. A row is committed before its object is written, so a name in the page without a row is a stranger. An
 * object that seems to be missing is searched again by its name, because it may be younger than the page. A page is
 * compared to its end, so that `next` is the beginning of the uncompared rest.
 */
export async function reconcile(
  store: FileStore,
  guarded: GuardedContent,
  collector: Collector,
  { dryRun, from, signal }: Options,
): Promise<ReconcileReport> {
  await guarded.attach();
  // A database that may have gone back in time must not move objects that it does not know.
  if (!dryRun) await collector.begin();
  const comparison = new Comparison(store, guarded, dryRun, signal);
  let place: ComparePosition | undefined = from === undefined ? BEGINNING : readPlace(from);
  while (place !== undefined && comparison.named < MOST_NAMED) {
    const page = await comparison.list(place.cursor);
    if (page === undefined) break;
    place = await comparison.compare(page, place);
  }
  const next = place === undefined ? null : `${place.after} ${place.cursor ?? ''}`;
  return { ...comparison.found, next };
}

/** Where a comparison continues: after an object, and with a page of the list. */
interface ComparePosition {
  readonly after: string;
  readonly cursor: string | undefined;
}

const BEGINNING: ComparePosition = { after: '00000000-0000-0000-0000-000000000000', cursor: undefined };

/** @throws InvalidInput */
function readPlace(from: string): ComparePosition {
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

  /** @returns undefined when the store fails to return the page */
  async list(cursor: string | undefined): Promise<ListPage | undefined> {
    const { content } = this.#guarded;
    return this.#try('', () =>
      this.#guarded.call('listing the store', (call) => content.list(cursor, call), this.#signal),
    );
  }

  /** @returns where to continue; undefined: this was the last page, and all of it was compared */
  async compare({ entries, next }: ListPage, { after, cursor }: ComparePosition): Promise<ComparePosition | undefined> {
    const ours = entries.filter(({ name }) => isObjectName(name));
    const known = await this.#store.known(ours.map(({ name }) => name));
    const last = ours.at(-1)?.name ?? after;
    const end = last > after ? last : after;
    // The rows come first: a call that stops among them has not counted the names, and the next one lists the page again.
    const stop = await this.#compareRows(ours, after, next === undefined ? undefined : end);
    if (stop !== undefined) return { after: stop, cursor };
    this.#seen += entries.length;
    await inParallel(
      entries.filter(({ name }) => !known.has(name)),
      LANES,
      ({ name }) => this.#takeAway(name),
    );
    return next === undefined ? undefined : { after: end, cursor: next };
  }

  /**
   * Compares the rows between two objects with the names of a page. A store that lost its bytes has few names, and the database may
   * have any number of rows. @returns the last row that was compared, if the report is full; undefined: all were
   */
  async #compareRows(ours: readonly ListEntry[], after: string, upto: string | undefined): Promise<string | undefined> {
    const sizes = new Map(ours.map(({ name, size }) => [name, size]));
    for (let at = after; ; ) {
      this.#signal?.throwIfAborted();
      const rows = await this.#store.readable(at, upto, ROWS);
      const doubtful = rows.filter(({ object, size }) => sizes.get(object) !== size);
      await inParallel(doubtful, LANES, (row) => this.#look(row));
      const last = rows.at(-1);
      if (last === undefined || rows.length < ROWS) return undefined;
      at = last.object;
      if (this.named >= MOST_NAMED) return at;
    }
  }

  async #takeAway(name: string): Promise<void> {
    if (this.#dryRun) return void this.#strangers.push(name);
    const { content } = this.#guarded;
    const what = `taking ${name} to quarantine`;
    const isTaken = await this.#try(name, () =>
      this.#guarded.call(what, (call) => content.quarantine(name, call), this.#signal),
    );
    // A stranger that is gone by now is not reported.
    if (isTaken !== false) this.#strangers.push(name);
    if (isTaken === true) this.#quarantined.push(name);
  }

  /**
   * The page lacks the object, or has another length for it. The object may be younger than the page, or may have been collected
   * meanwhile.
   */
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

  /** A failure of the store is recorded, and the comparison continues. */
  async #try<T>(name: string, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call();
    } catch (error) {
      const isOfStore = error instanceof StoreUnavailable || error instanceof StoreRefused;
      if (!isOfStore || this.#signal?.aborted === true) throw error;
      this.#failed.push({ name, error: error.message });
      return undefined;
    }
  }
}
