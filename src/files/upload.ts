import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { sleep } from '../base/clock.ts';
import { formatDuration } from '../base/duration.ts';
import {
  ConnectionFailed,
  CorruptObject,
  InvalidInput,
  type PawlError,
  SerializationFailed,
  StoreUnavailable,
  UploadExpired,
  VersionConflict,
} from '../base/errors.ts';
import { faults } from '../base/fault.ts';
import type { PostgresEngine } from '../engine/postgres/index.ts';
import { readAhead } from './ahead.ts';
import type { PutCall } from './content.ts';
import type { Depot } from './depot.ts';
import { Digest, type Fingerprint } from './digest.ts';
import type { LockLike, ParsedChange, ParsedOptions, ParsedWrite } from './options.ts';
import { parseChange } from './options.ts';
import { type FileSource, readSource } from './source.ts';
import type { FileStore, UploadFate } from './store.ts';
import type { FileVersion, Readable } from './version.ts';
import { Watch } from './watch.ts';

/** What writing is done with. */
export interface Writing {
  readonly engine: PostgresEngine;
  readonly store: FileStore;
  readonly depot: Depot;
  readonly options: ParsedOptions;
}

/** A version that was just written. */
export interface Written extends FileVersion {
  /** The version it replaced; undefined when there was none. */
  readonly previous: number | undefined;
}

/** Of {@link Upload.publish}. */
export interface PublishOptions {
  /** As in writing; default: what the upload was begun with. */
  readonly ifVersion?: number;
}

/** A caller who has this long to wait for an answer that was lost learns what became of it. */
const OUTCOME_MS = 30_000;
const TRIES = 4;

/**
 * Moves the bytes of a source into the content store, under a new name that the database knows of before the first byte. No
 * connection and no lock is held meanwhile.
 * @throws what the source throws; InvalidInput, TimedOut, StoreUnavailable, StoreRefused. Nothing is left then but a row
 *   that the collector looks after.
 */
export async function beginUpload(w: Writing, id: string, source: FileSource, given: ParsedWrite): Promise<Upload> {
  const digest = new Digest();
  const object = await transfer(w, id, given, async (name, watch, intent) => {
    const { budget } = w.depot;
    const expected = { size: given.size, maxBytes: w.options.maxBytes, idleMs: budget.idleMs };
    const chunks = hashed(readSource(source, expected, watch), digest);
    const call = putCall(w, name, watch, () => digest.sha256());
    try {
      const bytes = readAhead(chunks, intent);
      await intent;
      watch.signal.throwIfAborted();
      await w.depot.content.put(name, bytes, call);
    } finally {
      // Also where the store has not read it to the end. A source that hangs is not waited for.
      void chunks.return().catch(() => {});
    }
    if (faults.armed) await faults.reach('files.after_upload');
  });
  const print = digest.end();
  if (given.sha256 !== undefined && given.sha256 !== print.sha256) {
    await abandon(w, object);
    throw new InvalidInput(
      `option "sha256" says ${given.sha256}, but the source gave ${print.sha256}; nothing was published`,
      { field: 'sha256' },
    );
  }
  return new Upload(w, id, object, print, given);
}

/** A second object of the bytes of a version: where the store can, they do not come through here. */
export async function beginCopy(
  w: Writing,
  id: string,
  from: Readable,
  open: (version: Readable, watch: Watch) => Promise<AsyncIterable<Buffer>>,
  given: ParsedChange,
): Promise<Upload> {
  const told = { ...given, contentType: from.contentType, meta: from.meta, size: from.size, sha256: from.sha256 };
  const object = await transfer(w, id, told, async (name, watch, intent) => {
    const { content } = w.depot;
    await intent;
    watch.expect('nobody', Infinity);
    if (await content.copy(from.object, name, from.size, { signal: watch.signal })) return;
    await content.put(
      name,
      await open(from, watch),
      putCall(w, name, watch, () => from.sha256),
    );
  });
  return new Upload(w, id, object, from, told);
}

function putCall({ store, depot }: Writing, object: string, watch: Watch, sha256: () => string): PutCall {
  return {
    signal: watch.signal,
    onUpload: (upload) => store.noteUpload(object, upload),
    onProgress: (bytes) => watch.expect('store', depot.budget.idleMs + bytes / SLOWEST),
    sha256,
  };
}

/** Bytes a millisecond. A store that takes them more slowly than that is as good as dead. */
const SLOWEST = 64;

/**
 * The intent, the transfer, and on failure the word to the collector.
 * @param move  sends nothing to the store before the intent is committed
 * @returns the object's name
 */
async function transfer(
  w: Writing,
  id: string,
  { lock, signal }: ParsedChange,
  move: (name: string, watch: Watch, intent: Promise<void>) => Promise<void>,
): Promise<string> {
  signal?.throwIfAborted();
  await w.depot.attach();
  const object = randomUUID();
  const outer = lock === undefined ? signal : AbortSignal.any([lock.signal, ...(signal ? [signal] : [])]);
  using watch = new Watch({ what: `writing "${id}"`, totalMs: w.depot.budget.totalMs, signal: outer });
  let intent: Promise<void> | undefined;
  try {
    await w.depot.breaker.run(() => {
      intent = intend(w, id, object);
      return watch.wait(move(object, watch, intent));
    });
  } catch (error) {
    if (intent === undefined) throw error;
    // Until it is committed there is nothing to abandon, and if it cannot be, nothing was sent.
    await intent;
    await abandon(w, object);
    // What a store throws because it was told to stop is not why it was told to.
    throw watch.signal.aborted ? watch.signal.reason : asStoreError(error, id);
  }
  return object;
}

async function intend({ store, options }: Writing, id: string, object: string): Promise<void> {
  await store.intend(id, object, options.pending, hostname(), process.pid);
  if (faults.armed) await faults.reach('files.after_intent');
}

/** A store's own failure in the middle of a transfer is a typed one; what a source threw is the caller's own. */
function asStoreError(error: unknown, id: string): unknown {
  if (!(error instanceof CorruptObject)) return error;
  return new StoreUnavailable(`writing "${id}": ${error.message}`, { cause: error });
}

/** Tells the collector. If even that fails, the row's deadline does it. */
async function abandon({ store, engine }: Writing, object: string): Promise<void> {
  await store.abandon(object).catch((error: unknown) => {
    engine.options.logger.debug({ err: error, object }, 'an abandoned upload waits for its deadline');
  });
}

/** About a millisecond of hashing: so long others may be kept waiting. */
const TURN_BYTES = 512 * 1024;

async function* hashed(chunks: AsyncIterable<Buffer>, digest: Digest): AsyncGenerator<Buffer, void> {
  let inTurn = 0;
  for await (const chunk of chunks) {
    digest.update(chunk);
    inTurn += chunk.length;
    if (inTurn >= TURN_BYTES) {
      inTurn = 0;
      await nextTurn();
    }
    yield chunk;
  }
}

/** Bytes that are in the content store, and are no version of anything until they are published. */
export class Upload implements AsyncDisposable {
  readonly id: string;
  /** Its name in the content store. */
  readonly object: string;
  readonly size: number;
  readonly sha256: string;
  readonly #w: Writing;
  readonly #print: Fingerprint;
  readonly #given: ParsedWrite;
  #isLetGo = false;

  /** @internal */
  constructor(w: Writing, id: string, object: string, print: Fingerprint, given: ParsedWrite) {
    this.id = id;
    this.object = object;
    this.size = print.size;
    this.sha256 = print.sha256;
    this.#w = w;
    this.#print = print;
    this.#given = given;
  }

  /**
   * Makes it the document's next version, in your transaction: that commits and rolls back with everything else there. The
   * document is locked until then, which takes one round trip and waits for other writers of it, and for readers with
   * `lock: 'share'`. Without a transaction it has one of its own, and an answer that was lost is asked for again.
   * @throws VersionConflict  there is another version than `ifVersion`; nothing was changed
   * @throws UploadExpired  it was collected; nothing was changed
   * @throws LeaseLost  the lock it was begun under is lost; nothing was changed
   */
  async publish(tx?: unknown, options: PublishOptions = {}): Promise<Written> {
    const { ifVersion = this.#given.ifVersion } = parseChange('publish', options);
    this.#isLetGo = true;
    return tx === undefined || tx === null ? this.#publishAlone(ifVersion) : this.#publishIn(tx, ifVersion);
  }

  /**
   * Whether it was published: for whoever's COMMIT had no known outcome. Waits for a transaction that is still at it. After
   * `unpublished`, `publish` may be called again.
   */
  outcome(): Promise<UploadFate> {
    return this.#w.store.outcome(this.object, OUTCOME_MS);
  }

  /** Lets the collector have it now, unless it was published. Safe at any time, and as often as you like. */
  async abandon(): Promise<void> {
    await abandon(this.#w, this.object);
  }

  /** Abandons it, unless `publish` was called: what became of that is the transaction's business. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isLetGo) await this.abandon();
  }

  async #publishAlone(ifVersion: number | undefined): Promise<Written> {
    let lost: ConnectionFailed | undefined;
    for (let attempt = 1; ; attempt++) {
      try {
        const written = await this.#publishOnce(ifVersion);
        if (faults.armed) await faults.reach('files.after_commit');
        return written;
      } catch (error) {
        if (error instanceof ConnectionFailed) lost = error;
        // An answer was lost, this time or before. What was sent then may have come through since, and be what stands in the way.
        const known = lost && (await this.#lookAgain(lost));
        if (known !== undefined) return known;
        const mayRepeat = error instanceof ConnectionFailed || error instanceof SerializationFailed;
        if (!mayRepeat || attempt === TRIES) throw error;
        await sleep(Math.random() * 10 * 2 ** attempt);
      }
    }
  }

  /** One statement that is committed by itself; with a lock, a transaction in which that is looked at first. */
  #publishOnce(ifVersion: number | undefined): Promise<Written> {
    if (this.#given.lock === undefined) return this.#publishIn(undefined, ifVersion);
    return this.#w.engine.transaction((tx) => this.#publishIn(tx, ifVersion));
  }

  /** An answer was lost: the row knows. @returns undefined when it was not committed */
  async #lookAgain(error: ConnectionFailed): Promise<Written | undefined> {
    const fate = await this.outcome().catch(() => {
      throw error;
    });
    if (fate.kind === 'unpublished') return undefined;
    if (fate.kind === 'collected') throw this.#expired(null, error);
    const { version } = fate.version;
    return { ...fate.version, previous: version > 1 ? version - 1 : undefined };
  }

  async #publishIn(tx: unknown, ifVersion: number | undefined): Promise<Written> {
    const { store, options } = this.#w;
    const { contentType, meta, author, lock } = this.#given;
    await guard(lock, tx);
    const told = { contentType, meta, author };
    const { id, object } = this;
    const { size, sha256, checks } = this.#print;
    const call = { id, object, size, sha256, checks, ...told, ifVersion, retainMs: options.retain };
    const answer = await store.publish(tx, call);
    if (faults.armed && tx !== undefined) await faults.reach('files.before_commit');
    if ('conflict' in answer) throw conflict(id, ifVersion ?? 0, answer.conflict);
    if ('lost' in answer) throw this.#expired(answer.lost);
    const { version, previous, writtenMs } = answer;
    const base = { id, version, size, sha256, object, contentType, author, meta: meta ?? {} };
    return { ...base, writtenAt: new Date(writtenMs), previous: previous ?? undefined };
  }

  #expired(state: string | null, cause?: PawlError): UploadExpired {
    const { pending } = this.#w.options;
    const why = state === 'live' || state === 'retired' ? 'was published before' : 'has been collected';
    return new UploadExpired(
      `the upload for "${this.id}" ${why}: it has to be published once, within ${formatDuration(pending)} of its beginning`,
      { cause },
    );
  }
}

export function conflict(id: string, expected: number, actual: number): VersionConflict {
  const there = actual === 0 ? 'there is no such document' : `there is version ${actual}`;
  const wanted = expected === 0 ? 'no document' : `version ${expected}`;
  const message = `"${id}" was expected to have ${wanted}, but ${there}; read it and decide anew`;
  return new VersionConflict(message, { id, expected, actual });
}

async function guard(lock: LockLike | undefined, tx: unknown): Promise<void> {
  lock?.signal.throwIfAborted();
  await lock?.guard(tx);
}
