import { randomUUID } from 'node:crypto';
import { Conflict, StoreRefused, StoreUnavailable } from '../base/errors.ts';
import { Lazy } from '../base/lazy.ts';
import type { Logger } from '../base/logger.ts';
import { Breaker } from './breaker.ts';
import type { Content, ContentCall, StoreProbe, TransferLimits } from './content.ts';
import { type Marker, readMarkerText, toMarkerText } from './marker.ts';
import type { CollectorPass, FileStore, StoreRow } from './store.ts';
import { TransferTimeout } from './transfer-timeout.ts';

/** The content store for the rest of this folder: with time limits, and behind a circuit breaker. */
export class GuardedContent {
  readonly content: Content;
  readonly budget: TransferLimits;
  readonly breaker: Breaker;
  readonly #store: FileStore;
  readonly #namespace: string;
  readonly #logger: Logger;
  readonly #attached: Lazy<StoreProbe> = new Lazy(() => this.#attach());
  /** The id of the store; undefined until marker and database agree on it. */
  #is: string | undefined;

  constructor(content: Content, budget: TransferLimits, store: FileStore, namespace: string, logger: Logger) {
    this.content = content;
    this.budget = budget;
    this.breaker = new Breaker(`${content.kind} ${content.where}`);
    this.#store = store;
    this.#namespace = namespace;
    this.#logger = logger;
    content.useBudget?.(budget);
  }

  /**
   * Runs a call that moves few bytes: its limit is the time for a first byte plus the time for a pause. @throws StoreUnavailable,
   * StoreRefused
   */
  async call<T>(what: string, run: (call: ContentCall) => Promise<T>, signal?: AbortSignal): Promise<T> {
    const { firstByteMs, idleMs } = this.budget;
    using transfer = new TransferTimeout({ what, totalMs: firstByteMs + idleMs, signal });
    transfer.expect('store', Infinity);
    return await this.breaker.run(() => transfer.wait(run({ signal: transfer.signal })), transfer);
  }

  /**
   * Checks, once, that this store has the files of the database, and that it gives the needed guarantees.
   * @throws Conflict  it belongs to another namespace, or the files are in another store
   */
  attach(): Promise<StoreProbe> {
    return this.#attached.get();
  }

  /** @throws Conflict  it names another namespace, or another store than before @throws StoreUnavailable  it is damaged */
  async readMarker(): Promise<Marker | undefined> {
    const marker = await this.findMarker();
    if (marker !== 'damaged') return marker;
    throw new StoreUnavailable(this.damage);
  }

  /** The message when both the marker and its copy are damaged: the reason, and what to do. */
  get damage(): string {
    return (
      `the marker of the store ${this.content.where} is damaged, and so is its copy; if it is the store of the namespace ` +
      `"${this.#namespace}", rearm() writes it anew`
    );
  }

  /** The marker, or its copy if only the copy is whole. Each is read twice, because the transfer may have damaged it. */
  async findMarker(): Promise<Marker | 'damaged' | undefined> {
    let isThere = false;
    for (const which of ['marker', 'copy', 'marker', 'copy'] as const) {
      const text = await this.call('reading the marker of the store', (call) => this.content.readMarker(which, call));
      const marker = text === undefined ? undefined : readMarkerText(text, this.content.where);
      if (marker !== undefined) return this.#own(marker);
      isThere ||= text !== undefined;
      if (text !== undefined) this.#logger.warn({ store: this.content.where, which }, 'a marker came damaged');
      if (which === 'copy' && !isThere) return undefined;
    }
    return 'damaged';
  }

  /**
   * Writes the collector's pass into the marker. The owner of the store comes from the database, never from the marker that
   * was read.
   */
  async writeMarker({ pass, database }: CollectorPass): Promise<void> {
    if (this.#is === undefined)
      throw new Error('the marker of a store cannot be written before the store is identified');
    await this.#write({ store: this.#is, namespace: this.#namespace, pass, database }, false);
  }

  /**
   * Called when an operator confirms the store, though its marker may be damaged or gone.
   * @returns the pass of the marker, or else pass 0
   * @throws Conflict  the marker is whole, and names another owner @throws StoreRefused  the database knows no object in it
   */
  async identify(): Promise<CollectorPass> {
    const marker = await this.findMarker();
    if (marker !== undefined && marker !== 'damaged') {
      await this.#match(marker);
      return marker;
    }
    const row = await this.#store.row();
    if (row === undefined || !(await this.#hasBytes())) {
      throw new StoreRefused(
        `the store ${this.content.where} has no intact marker, and no object that the namespace "${this.#namespace}" knows`,
      );
    }
    this.#is = row.store;
    return { pass: 0, database: row.database };
  }

  /** Whether the store has the bytes of a live version, if there is such a version. */
  async #hasBytes(): Promise<boolean> {
    const [version] = await this.#store.list('', undefined, 1);
    if (version === undefined) return true;
    const { object, size } = version;
    return (await this.call(`looking for ${object}`, (call) => this.content.size(object, call))) === size;
  }

  #own(marker: Marker): Marker {
    if (marker.namespace !== this.#namespace) {
      throw new Conflict(
        `the store ${this.content.where} belongs to the namespace "${marker.namespace}", and this is ` +
          `"${this.#namespace}"; give each namespace a folder or prefix of its own`,
      );
    }
    if (this.#is !== undefined && marker.store !== this.#is)
      throw this.#other(this.#is, this.content.kind, marker.store);
    return marker;
  }

  #other(expected: string, kind: string, found: string): Conflict {
    return new Conflict(
      `the files of namespace "${this.#namespace}" are in another ${kind} store than ${this.content.where}: its ` +
        `marker says ${found}, and the database ${expected}`,
    );
  }

  async #attach(): Promise<StoreProbe> {
    const row = await this.#match((await this.readMarker()) ?? (await this.#mark()));
    return row.probe ?? this.#probe();
  }

  async #match({ store }: Marker): Promise<StoreRow> {
    const row = await this.#store.attach(store, this.content.kind);
    if (row.store !== store) throw this.#other(row.store, row.kind, store);
    this.#is = store;
    return row;
  }

  /**
   * Marks a new store. If two processes do it at the same time, the first one wins. A folder that is not mounted is no new
   * store.
   */
  async #mark(): Promise<Marker> {
    const row = await this.#store.row();
    if (row === undefined) {
      await this.#write({ store: randomUUID(), namespace: this.#namespace, pass: 0, database: '' }, true);
    }
    // A process that attached meanwhile has written the marker before.
    const marker = await this.readMarker();
    if (marker !== undefined) return marker;
    if (row !== undefined) throw this.#other(row.store, row.kind, 'nothing, since there is no marker');
    throw new StoreRefused(`the store ${this.content.where} loses writes: the marker that was just written is missing`);
  }

  async #write(marker: Marker, ifAbsent: boolean): Promise<void> {
    const text = toMarkerText(marker);
    await this.call('writing the marker of the store', (call) => this.content.writeMarker(text, ifAbsent, call));
  }

  /** Removes uploads that probes left behind. Uploads of killed processes are only in the list of uploads. */
  async endProbes(): Promise<void> {
    await this.call('removing what probes left', (call) => this.content.endProbes(call));
  }

  async #probe(): Promise<StoreProbe> {
    const probe = await this.call('trying out the store', (call) => this.content.probe(call));
    for (const [what, consequence] of Object.entries(WEAKNESSES)) {
      if (Reflect.get(probe, what) === true) continue;
      this.#logger.warn(
        { store: this.content.where, what },
        `the content store does not honour ${what}: ${consequence}`,
      );
    }
    await this.#store.noteProbe(probe);
    return probe;
  }
}

/** The consequence of each missing guarantee for the user. The other promises hold anyway, because each name is used once. */
const WEAKNESSES: Readonly<Record<keyof StoreProbe, string>> = {
  ifNoneMatch: 'a request that arrives twice may write the same bytes twice',
  ifMatch: 'Pawl does not depend on it',
  checksums: 'bytes that are damaged in transfer are found when they are read, not when they are written',
  abort: 'parts of broken uploads stay; give the bucket a lifecycle rule for them',
};
