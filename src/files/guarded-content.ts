import { randomUUID } from 'node:crypto';
import { Conflict, StoreRefused, StoreUnavailable } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { Breaker } from './breaker.ts';
import type { Budget, Content, ContentCall, StoreProbe } from './content.ts';
import { type Marker, readMarkerText, toMarkerText } from './marker.ts';
import type { CollectorPass, FileStore, StoreRow } from './store.ts';
import { TransferTimeout } from './transfer-timeout.ts';

/** The content store as the rest of this folder speaks to it: within its budget, and left alone while it fails. */
export class GuardedContent {
  readonly content: Content;
  readonly budget: Budget;
  readonly breaker: Breaker;
  readonly #store: FileStore;
  readonly #namespace: string;
  readonly #logger: Logger;
  #attached: Promise<StoreProbe> | undefined;
  /** Which store it is, once marker and database have agreed on it. */
  #is: string | undefined;

  constructor(content: Content, budget: Budget, store: FileStore, namespace: string, logger: Logger) {
    this.content = content;
    this.budget = budget;
    this.breaker = new Breaker(`${content.kind} ${content.where}`);
    this.#store = store;
    this.#namespace = namespace;
    this.#logger = logger;
    content.useBudget?.(budget);
  }

  /** A call that moves few bytes: it has the time of a first byte and of a pause. @throws StoreUnavailable, StoreRefused */
  call<T>(what: string, run: (call: ContentCall) => Promise<T>, signal?: AbortSignal): Promise<T> {
    return this.breaker.run(async () => {
      const { firstByteMs, idleMs } = this.budget;
      using transfer = new TransferTimeout({ what, totalMs: firstByteMs + idleMs, signal });
      transfer.expect('store', Infinity);
      return await transfer.wait(run({ signal: transfer.signal }));
    });
  }

  /**
   * Makes sure, once, that this is the store that the database's files are in, and that it honours what is needed.
   * @throws Conflict  it belongs to another namespace, or the files are in another store
   */
  attach(): Promise<StoreProbe> {
    this.#attached ??= this.#attach().catch((error: unknown) => {
      this.#attached = undefined;
      throw error;
    });
    return this.#attached;
  }

  /** @throws Conflict  it is another namespace's, or another store's than before @throws StoreUnavailable  it is damaged */
  async readMarker(): Promise<Marker | undefined> {
    const marker = await this.findMarker();
    if (marker !== 'damaged') return marker;
    throw new StoreUnavailable(this.damage);
  }

  /** Why nothing can be told by a marker of which neither copy is whole, and what to do. */
  get damage(): string {
    return (
      `the marker of the store ${this.content.where} is damaged, and so is its copy; if it is the store of the namespace ` +
      `"${this.#namespace}", rearm() writes it anew`
    );
  }

  /** The marker, its copy where that alone is whole; each is read twice, since damage may have been done on the way. */
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

  /** How far the collector has come. Whose store it is comes from the database, never from what was read. */
  async writeMarker({ pass, database }: CollectorPass): Promise<void> {
    if (this.#is === undefined) throw new Error('the marker of a store is written before it is known which one it is');
    await this.#write({ store: this.#is, namespace: this.#namespace, pass, database }, false);
  }

  /**
   * An operator says that this is the store, though its marker may be damaged or gone.
   * @returns what it says, or else the pass 0
   * @throws Conflict  the marker is whole, and another one's @throws StoreRefused  nothing in it is known to the database
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
        `the store ${this.content.where} has no marker that is whole, and nothing in it is known to the namespace "${this.#namespace}"`,
      );
    }
    this.#is = row.store;
    return { pass: 0, database: row.database };
  }

  /** Whether a version that is live is there, if there is one at all. */
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

  /** Of two who mark a new store at once, the first one counts. A folder that is not mounted is no new store. */
  async #mark(): Promise<Marker> {
    const row = await this.#store.row();
    if (row === undefined) {
      await this.#write({ store: randomUUID(), namespace: this.#namespace, pass: 0, database: '' }, true);
    }
    // Whoever has attached meanwhile has marked it before.
    const marker = await this.readMarker();
    if (marker !== undefined) return marker;
    if (row !== undefined) throw this.#other(row.store, row.kind, 'nothing, since there is none');
    throw new StoreRefused(`the store ${this.content.where} does not keep what is written to it: its marker is gone`);
  }

  async #write(marker: Marker, ifAbsent: boolean): Promise<void> {
    const text = toMarkerText(marker);
    await this.call('writing the marker of the store', (call) => this.content.writeMarker(text, ifAbsent, call));
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

/** What is lost with a store that is weak; names that are used once keep the rest of the promises. */
const WEAKNESSES: Readonly<Record<keyof StoreProbe, string>> = {
  ifNoneMatch: 'a request that comes through twice may write the same bytes twice',
  ifMatch: 'nothing of what is done here depends on it',
  checksums: 'bytes damaged on their way are found when they are read, not when they are written',
  abort: 'parts of uploads that broke off stay; give the bucket a lifecycle rule for them',
};
