import {
  ConnectionFailed,
  type PawlError,
  SerializationFailed,
  UploadExpired,
  VersionConflict,
} from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { sleep } from '../../base/time/clock.ts';
import { formatDuration } from '../../base/time/duration.ts';
import type { OpenTransaction } from '../../engine/postgres/index.ts';
import type { Fingerprint } from '../digest.ts';
import { type LockLike, type ParsedUpload, parsePublish } from '../options.ts';
import type { UploadFate } from '../store.ts';
import type { FileVersion } from '../version.ts';
import { abandon, type WriteContext } from './write-context.ts';

/** A version that was just written. */
export interface WriteResult extends FileVersion {
  /** The version it replaced; null when there was none. */
  readonly previous: number | null;
}

/** Options of {@link Upload.publish}. */
export interface PublishOptions {
  /** Your own open transaction: the version is committed or rolled back with it. Default: one of its own. */
  readonly tx?: OpenTransaction | undefined;
  /** The version that this one must replace. Default: the `ifVersion` of the upload. */
  readonly ifVersion?: number | undefined;
}

/** How long to wait for the outcome of a transaction whose answer was lost. */
const OUTCOME_MS = 30_000;
const TRIES = 4;

/** Bytes in the content store that are no version of a document until they are published. */
export class Upload implements AsyncDisposable {
  readonly id: string;
  /** The name of the object in the content store. */
  readonly object: string;
  readonly size: number;
  readonly sha256: string;
  readonly #w: WriteContext;
  readonly #print: Fingerprint;
  readonly #given: ParsedUpload;
  #isLetGo = false;

  /** @internal */
  constructor(w: WriteContext, id: string, object: string, print: Fingerprint, given: ParsedUpload) {
    this.id = id;
    this.object = object;
    this.size = print.size;
    this.sha256 = print.sha256;
    this.#w = w;
    this.#print = print;
    this.#given = given;
  }

  /**
   * Makes the bytes the document's next version in your transaction: the version commits or rolls back with it. The document
   * is locked until then; that takes one round trip, and waits for other writers of the document and for readers with
   * `lock: 'share'`. Without `tx` it uses a transaction of its own, and finds out the outcome if the answer is lost.
   * @throws VersionConflict  the document has another version than `ifVersion`; nothing was changed
   * @throws UploadExpired  the collector has deleted the bytes; nothing was changed
   * @throws LeaseLost  the lock of the upload is lost; nothing was changed
   */
  async publish(options: PublishOptions = {}): Promise<WriteResult> {
    const { tx, ifVersion = this.#given.ifVersion } = parsePublish(options);
    this.#isLetGo = true;
    return tx === undefined ? this.#publishAlone(ifVersion) : this.#publishIn(tx, ifVersion);
  }

  /**
   * Whether the upload was published: for a caller that does not know the outcome of its COMMIT. Waits for a transaction that
   * is still publishing it. After `unpublished`, `publish` may be called again.
   */
  outcome(): Promise<UploadFate> {
    return this.#w.store.outcome(this.object, OUTCOME_MS);
  }

  /** Lets the collector delete the bytes now, unless they were published. Safe at any time, and safe to call twice. */
  async abandon(): Promise<void> {
    await abandon(this.#w, this.object);
  }

  /** Abandons the bytes, unless `publish` was called: then the outcome of its transaction decides. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isLetGo) await this.abandon();
  }

  async #publishAlone(ifVersion: number | undefined): Promise<WriteResult> {
    let lost: ConnectionFailed | undefined;
    for (let attempt = 1; ; attempt++) {
      try {
        const written = await this.#publishOnce(ifVersion);
        if (faults.armed) await faults.reach('files.after_commit');
        return written;
      } catch (error) {
        if (error instanceof ConnectionFailed) lost = error;
        // The answer of this or an earlier try was lost. Its statement may have committed since, and may be the cause of this
        // error.
        const known = lost && (await this.#lookAgain(lost));
        if (known !== undefined) return known;
        const mayRepeat = error instanceof ConnectionFailed || error instanceof SerializationFailed;
        if (!mayRepeat || attempt === TRIES) throw error;
        await sleep(Math.random() * 10 * 2 ** attempt);
      }
    }
  }

  /** One statement that is committed by itself; under a lock, a transaction that checks the lock first. */
  #publishOnce(ifVersion: number | undefined): Promise<WriteResult> {
    if (this.#given.lock === undefined) return this.#publishIn(undefined, ifVersion);
    return this.#w.engine.transaction((tx) => this.#publishIn(tx, ifVersion));
  }

  /** Reads the outcome from the row, after an answer was lost. @returns undefined when nothing was committed */
  async #lookAgain(error: ConnectionFailed): Promise<WriteResult | undefined> {
    const fate = await this.outcome().catch(() => {
      throw error;
    });
    if (fate.kind === 'unpublished') return undefined;
    if (fate.kind === 'collected') throw this.#expired(null, error);
    const { version } = fate.version;
    return { ...fate.version, previous: version > 1 ? version - 1 : null };
  }

  async #publishIn(tx: unknown, ifVersion: number | undefined): Promise<WriteResult> {
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
    const base = { id, version, size, sha256, object, meta: meta ?? {} };
    const said = { contentType: contentType ?? null, author: author ?? null };
    return { ...base, ...said, writtenAt: new Date(writtenMs), previous: previous ?? null };
  }

  #expired(state: string | null, cause?: PawlError): UploadExpired {
    const { pending } = this.#w.options;
    const why = state === 'live' || state === 'retired' ? 'was published before' : 'has been collected';
    return new UploadExpired(
      `the upload for "${this.id}" ${why}: an upload can be published once, within ${formatDuration(pending)} of its start`,
      { cause },
    );
  }
}

export function conflict(id: string, expected: number, actual: number): VersionConflict {
  const there = actual === 0 ? 'there is no such document' : `there is version ${actual}`;
  const wanted = expected === 0 ? 'no document' : `version ${expected}`;
  const message = `"${id}" was expected to have ${wanted}, but ${there}; read the document and decide again`;
  return new VersionConflict(message, { id, expected, actual });
}

async function guard(lock: LockLike | undefined, tx: unknown): Promise<void> {
  lock?.signal.throwIfAborted();
  await lock?.guard(tx);
}
