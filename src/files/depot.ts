import { randomUUID } from 'node:crypto';
import { Conflict, StoreRefused } from '../base/errors.ts';
import type { Logger } from '../base/logger.ts';
import { isObject } from '../base/shape.ts';
import { Breaker } from './breaker.ts';
import type { Budget, Content, ContentCall, StoreProbe } from './content.ts';
import type { FileStore } from './store.ts';
import { Watch } from './watch.ts';

/** What the marker in a content store says: whose it is, and how far its collector has come. */
export interface Marker {
  readonly store: string;
  readonly namespace: string;
  readonly pass: number;
  /** Of which database the collector is; empty: none has collected yet. */
  readonly database: string;
}

/** The content store as the rest of this folder speaks to it: within its budget, and left alone while it fails. */
export class Depot {
  readonly content: Content;
  readonly budget: Budget;
  readonly breaker: Breaker;
  readonly #store: FileStore;
  readonly #namespace: string;
  readonly #logger: Logger;
  #attached: Promise<StoreProbe> | undefined;

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
      using watch = new Watch({ what, totalMs: firstByteMs + idleMs, signal });
      watch.expect('store', Infinity);
      return await watch.wait(run({ signal: watch.signal }));
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

  /** @throws Conflict  it is another namespace's @throws StoreRefused  it is no marker of ours */
  async readMarker(): Promise<Marker | undefined> {
    const text = await this.call('reading the marker of the store', (call) => this.content.readMarker(call));
    if (text === undefined) return undefined;
    const marker = parseMarker(text, this.content);
    if (marker.namespace !== this.#namespace) {
      throw new Conflict(
        `the store ${this.content.where} belongs to the namespace "${marker.namespace}", and this is ` +
          `"${this.#namespace}"; give each namespace a folder or prefix of its own`,
      );
    }
    return marker;
  }

  async writeMarker(marker: Marker, ifAbsent = false): Promise<void> {
    const text = `${JSON.stringify({ format: 1, ...marker })}\n`;
    await this.call('writing the marker of the store', (call) => this.content.writeMarker(text, ifAbsent, call));
  }

  async #attach(): Promise<StoreProbe> {
    const marker = (await this.readMarker()) ?? (await this.#mark());
    const row = await this.#store.attach(marker.store, this.content.kind);
    if (row.store !== marker.store) {
      throw new Conflict(
        `the files of namespace "${this.#namespace}" are in another ${row.kind} store than ${this.content.where}: its ` +
          `marker says ${marker.store}, and the database ${row.store}`,
      );
    }
    return row.probe ?? this.#probe();
  }

  /** Of two who mark a new store at once, the first one counts. */
  async #mark(): Promise<Marker> {
    await this.writeMarker({ store: randomUUID(), namespace: this.#namespace, pass: 0, database: '' }, true);
    const marker = await this.readMarker();
    if (marker !== undefined) return marker;
    throw new StoreRefused(`the store ${this.content.where} does not keep what is written to it: its marker is gone`);
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

function parseMarker(text: string, { where }: Content): Marker {
  try {
    const json: unknown = JSON.parse(text);
    if (isObject(json) && json['format'] === 1) {
      const { store, namespace, pass, database } = json;
      return { store: String(store), namespace: String(namespace), pass: Number(pass), database: String(database) };
    }
  } catch {
    // Not even JSON: the same advice.
  }
  throw new StoreRefused(`the store ${where} has a marker that this version cannot read: ${text.slice(0, 80)}`);
}
