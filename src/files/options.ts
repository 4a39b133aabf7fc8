import {
  type Check,
  checkOptions,
  contradiction,
  custom,
  duration,
  integer,
  object,
  optional,
  record,
  signal,
  text,
} from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';
import { isObject } from '../base/options/shape.ts';
import { type Duration, formatDuration } from '../base/time/duration.ts';
import { type OpenTransaction, openTransaction } from '../engine/postgres/index.ts';
import type { Content, TransferLimits } from './content.ts';

/** Options of {@link createFiles}. */
export interface FilesOptions {
  /** The store of the bytes: `disk(dir)` or `s3({ bucket })`. */
  readonly content: Content;
  /** Keeps documents of one program apart from those of others. Each namespace needs a store, or a prefix, of its own. Default: none. */
  readonly namespace?: string | undefined;
  /**
   * How long a version that was replaced or removed can still be read and restored. Choose at least the age of the oldest backup
   * that you may have to restore: then the store still has the bytes of the documents in that backup. Default `'7d'`.
   */
  readonly retain?: Duration | undefined;
  /** How long an upload may take until it is published; longer than `limits.total`. Default `'2h'`. */
  readonly pending?: Duration | undefined;
  /**
   * How long the collector remembers a deleted object and deletes it again, because a late request may write it a second time.
   * Default `'7d'`.
   */
  readonly tombstone?: Duration | undefined;
  /** How long the history lists versions whose bytes are gone. Default `'90d'`. */
  readonly history?: Duration | undefined;
  /** The most bytes a version may have; up to 64 GiB. Default 64 GiB. */
  readonly maxBytes?: number | undefined;
  readonly limits?: LimitOptions | undefined;
}

/** How long to wait for the content store or for a source. */
export interface LimitOptions {
  /** Until the connection is open. Default `'5s'`, at most `'24h'`, like the next two. */
  readonly connect?: Duration | undefined;
  /** From a request to the first byte of its answer. Default `'15s'`. */
  readonly firstByte?: Duration | undefined;
  /** Between two pieces of data from the store or from the source. Default `'30s'`. */
  readonly idle?: Duration | undefined;
  /** From the beginning of a transfer to its end: also the limit for a reader. Default `'1h'`. */
  readonly total?: Duration | undefined;
}

/** Checked options of {@link createFiles}. */
export interface ParsedOptions {
  readonly content: Content;
  readonly namespace: string;
  readonly retain: number;
  readonly pending: number;
  readonly tombstone: number;
  readonly history: number;
  readonly maxBytes: number;
  readonly budget: TransferLimits;
}

/** The part of a lock of `pawl/lock` that a publication under the lock needs. */
export interface LockLike {
  readonly signal: AbortSignal;
  guard(tx: unknown): Promise<unknown>;
}

/** Options of a write. */
export interface WriteOptions {
  /** The version that this one must replace; 0: the document must not exist. Default: any version is replaced. */
  readonly ifVersion?: number | undefined;
  /** Up to 255 characters. */
  readonly contentType?: string | undefined;
  /** Up to 100 short texts. */
  readonly meta?: Readonly<Record<string, string>> | undefined;
  /** The author, for the history. */
  readonly author?: string | undefined;
  /** The number of bytes of the source, if it is known: a source with another number is refused. */
  readonly size?: number | undefined;
  /** The SHA-256 of the bytes in hex, if it is known: bytes with another hash are refused. */
  readonly sha256?: string | undefined;
  /**
   * A lock of `pawl/lock` that the writer holds. If the lock is lost, the upload ends, and the publication fails.
   */
  readonly lock?: LockLike | undefined;
  /** Your own open transaction: the version is committed and rolled back with everything else there. Default: one of its own. */
  readonly tx?: OpenTransaction | undefined;
  /** Ends the upload with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Of bytes that are no version yet: the transaction comes with `publish()`. */
export type UploadOptions = Omit<WriteOptions, 'tx'>;

/** Options of a change that moves no bytes of the caller. */
export type ChangeOptions = Pick<WriteOptions, 'ifVersion' | 'author' | 'lock' | 'tx' | 'signal'>;

/** Checked {@link ChangeOptions}. */
export interface ParsedChange {
  readonly ifVersion: number | undefined;
  readonly author: string | undefined;
  readonly lock: LockLike | undefined;
  readonly tx: OpenTransaction | undefined;
  readonly signal: AbortSignal | undefined;
}

/** Checked {@link UploadOptions}. */
export type ParsedUpload = Omit<ParsedWrite, 'tx'>;

/** Checked {@link WriteOptions}. */
export interface ParsedWrite extends ParsedChange {
  readonly contentType: string | undefined;
  readonly meta: Readonly<Record<string, string>> | undefined;
  readonly size: number | undefined;
  readonly sha256: string | undefined;
}

const MOST_BYTES = 64 * 1024 ** 3;
/** Ids and namespaces are in an index, which limits their length. */
const LONGEST_ID = 512;

/** @throws InvalidInput */
export function parseFilesOptions(options: FilesOptions): ParsedOptions {
  const what = 'createFiles';
  const checked = checkOptions(what, options, {
    content: custom('a content store such as disk(dir) or s3({ bucket })', readContent),
    namespace: text({ max: 255, default: '' }),
    retain: duration({ default: '7d' }),
    pending: duration({ min: 100, default: '2h' }),
    tombstone: duration({ default: '7d' }),
    history: duration({ infinite: true, default: '90d' }),
    maxBytes: integer({ min: 0, max: MOST_BYTES, default: MOST_BYTES }),
    limits: object({
      connect: duration({ min: 1, max: '24h', default: '5s' }),
      firstByte: duration({ min: 1, max: '24h', default: '15s' }),
      idle: duration({ min: 1, max: '24h', default: '30s' }),
      total: duration({ min: 1, default: '1h' }),
    }),
  });
  const { limits, ...rest } = checked;
  if (checked.pending <= limits.total) {
    throw contradiction(
      { what, field: 'pending' },
      `is ${formatDuration(checked.pending)}, but an upload may take limits.total (${formatDuration(limits.total)}); it must be longer`,
    );
  }
  const { connect, firstByte, idle, total } = limits;
  return { ...rest, budget: { connectMs: connect, firstByteMs: firstByte, idleMs: idle, totalMs: total } };
}

function readContent(value: unknown, place: { field: string }): Content {
  if (isContent(value)) return value;
  throw refusal(place, value, 'a content store such as disk(dir) or s3({ bucket })');
}

function isContent(value: unknown): value is Content {
  return isObject(value) && typeof value['put'] === 'function' && typeof value['readMarker'] === 'function';
}

const ID_WORDS = `a string of 1 to ${LONGEST_ID} bytes`;
const idKind: Check<string> = custom(ID_WORDS, (value, place) => {
  const isFit = typeof value === 'string' && value !== '' && Buffer.byteLength(value) <= LONGEST_ID;
  if (!isFit) throw refusal(place, value, ID_WORDS);
  return text().given(value, place);
});

/** @throws InvalidInput */
export function parseId(what: string, id: unknown, field = 'id'): string {
  return idKind.given(id, { field, what });
}

/** @throws InvalidInput */
export function parseVersion(what: string, version: unknown): number {
  return integer({ min: 1 }).given(version, { field: 'version', what });
}

const VERSION: Check<number | undefined> = optional(integer({ min: 0 }));
const lockKind: Check<LockLike> = custom('a lock of pawl/lock', (value, place) => {
  if (isLock(value)) return value;
  throw refusal(place, value, 'a lock of pawl/lock, with signal and guard(tx)');
});

function isLock(value: unknown): value is LockLike {
  return value instanceof Object && 'guard' in value && 'signal' in value && typeof value.guard === 'function';
}

const META: Check<Readonly<Record<string, string>> | undefined> = optional(
  custom('an object of up to 100 texts, 8 KiB in all', (value, place) => {
    const meta = record(text({ max: 4096 })).given(value, place);
    const isSmall = Object.keys(meta).length <= 100 && Buffer.byteLength(JSON.stringify(meta)) <= 8192;
    if (!isSmall) throw refusal(place, value, 'an object of up to 100 texts, 8 KiB in all');
    return meta;
  }),
);

const PUBLISH = { ifVersion: VERSION, tx: openTransaction };
const ALONE = {
  ifVersion: VERSION,
  author: optional(text({ min: 1, max: 255 })),
  lock: optional(lockKind),
  signal,
};
const CHANGE = { ...ALONE, tx: openTransaction };

/** @throws InvalidInput */
export function parseChange(what: string, options: unknown): ParsedChange {
  return checkOptions(what, options, CHANGE);
}

/** @throws InvalidInput */
export function parseRemove(options: unknown): Pick<ParsedChange, 'ifVersion' | 'tx'> {
  return checkOptions('remove', options, PUBLISH);
}

/** @throws InvalidInput */
export function parsePublish(options: unknown): Pick<ParsedChange, 'ifVersion' | 'tx'> {
  return checkOptions('publish', options, PUBLISH);
}

const BYTES = {
  contentType: optional(text({ min: 1, max: 255 })),
  meta: META,
  size: optional(integer({ min: 0, max: MOST_BYTES })),
  sha256: optional(text({ pattern: [/^[0-9a-f]{64}$/, 'a SHA-256 in 64 lower-case hex digits'] })),
};

/** @throws InvalidInput */
export function parseWrite(what: string, options: unknown): ParsedWrite {
  return checkOptions(what, options, { ...CHANGE, ...BYTES });
}

/** @throws InvalidInput */
export function parseUpload(options: unknown): ParsedUpload {
  return checkOptions('upload', options, { ...ALONE, ...BYTES });
}
