import type { Readable } from 'node:stream';

/** The time limits of a transfer, all in milliseconds. */
export interface TransferLimits {
  /** Until the connection is open. */
  readonly connectMs: number;
  /** From the request to the first byte of the answer. */
  readonly firstByteMs: number;
  /** Between two pieces of data or other signs of progress. */
  readonly idleMs: number;
  /** From the beginning of the transfer to its end. */
  readonly totalMs: number;
}

/** The limit of one call to a content store. The signal is aborted when the time of the call is over, or by the caller. */
export interface ContentCall {
  readonly signal: AbortSignal;
}

export interface PutCall extends ContentCall {
  /** Called when the store has started an upload of several parts under this id; resolves when the id is in the database. */
  readonly onUpload: (upload: string) => Promise<void>;
  /** Waits for one request or write of so many bytes: the transfer is aborted unless it ends within its time limit. */
  readonly within: <T>(bytes: number, work: Promise<T>) => Promise<T>;
  /** The SHA-256 of all bytes that the chunks have given so far. */
  readonly sha256: () => string;
}

export interface DeleteCall extends ContentCall {
  /** The id of an upload of several parts, which may have left parts in the store. */
  readonly upload: string | undefined;
  /** The object never became a version: the store may have uploads whose ids are not in the database. */
  readonly isUnfinished: boolean;
}

/** A part of an object: the bytes from `start` up to, and without, `end`; the first byte is 0. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** The part of an object that is read. */
export interface Part extends Range {
  /** True: the whole object is read. If the store has bytes after `end`, it must not hide them. */
  readonly isWhole: boolean;
}

/** The guarantees that a test of the store found. */
export interface StoreProbe {
  /** An object is never overwritten: the second put of a name is refused. */
  readonly ifNoneMatch: boolean;
  /** A write can depend on the current content. */
  readonly ifMatch: boolean;
  /** A body that does not fit its checksum is refused. */
  readonly checksums: boolean;
  /** Uploads of several parts can be aborted. */
  readonly abort: boolean;
}

/** One name in the list of the store. */
export interface ListEntry {
  /** The UUID of an object; for anything else its name, with its path if it has one. */
  readonly name: string;
  readonly size: number;
}

/** A page of the list. Over all pages, objects are in the order of their names. */
export interface ListPage {
  readonly entries: readonly ListEntry[];
  /** The cursor of the next page; undefined after the last page. It never expires. */
  readonly next: string | undefined;
}

/**
 * The port to a content store. The name of an object is a UUID that is used once; no object is ever overwritten.
 * @throws StoreUnavailable  a later call may succeed
 * @throws StoreRefused  a later call will not succeed, either
 */
export interface Content {
  /** For messages and for the database: `disk`, `s3`. */
  readonly kind: string;
  /** For messages: the place of the store. */
  readonly where: string;
  /** Sets the time limits; called before any other method. */
  useBudget?(budget: TransferLimits): void;
  /**
   * Writes an object durably, from chunks in order. The promise resolves when the store has all of them.
   * @throws Conflict  there is an object of that name with other bytes
   */
  put(name: string, chunks: AsyncIterable<Buffer>, call: PutCall): Promise<void>;
  /**
   * The bytes as a stream, unchecked. The caller reads it to the end or destroys it. @throws CorruptObject  the object is
   * missing
   */
  get(name: string, part: Part, call: ContentCall): Promise<Readable>;
  /** The number of bytes of an object; undefined when there is no such object. */
  size(name: string, call: ContentCall): Promise<number | undefined>;
  /** Copies an object to a second name without moving the bytes through this process. Returns false if the store cannot. */
  copy(from: string, to: string, size: number, call: ContentCall): Promise<boolean>;
  /** Deletes an object, and the parts of a broken upload. An object that does not exist is no error. */
  delete(name: string, call: DeleteCall): Promise<void>;
  /** A page of the names in the place of objects. @param from  `next` of the page before; undefined: from the beginning */
  list(from: string | undefined, call: ContentCall): Promise<ListPage>;
  /** Moves a listed name out of the place of objects, without deleting it. Returns false if it does not exist. */
  quarantine(name: string, call: ContentCall): Promise<boolean>;
  /** The text of the marker that names the owner of this store, or of the marker's copy; undefined when there is none. */
  readMarker(which: 'marker' | 'copy', call: ContentCall): Promise<string | undefined>;
  /**
   * Writes the marker and its copy. If the write is interrupted, one of them is whole. To overwrite both needs no free space.
   * @param ifAbsent  do nothing when there is a marker
   */
  writeMarker(text: string, ifAbsent: boolean, call: ContentCall): Promise<void>;
  /** Tests which guarantees the store gives, with test objects. @throws StoreRefused  it cannot be used */
  probe(call: ContentCall): Promise<StoreProbe>;
  /** Removes the remains of tests of the store that were killed, or that failed with the store. */
  endProbes(call: ContentCall): Promise<void>;
  /** Closes the connections of this object. */
  stop(): void;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether a name in a store can be the name of one of our objects. */
export function isObjectName(name: string): boolean {
  return UUID.test(name);
}
