import type { Readable } from 'node:stream';

/** What a transfer may cost in time, all in milliseconds. */
export interface Budget {
  /** Until a connection stands. */
  readonly connectMs: number;
  /** From the request to the first byte of the answer. */
  readonly firstByteMs: number;
  /** Between two signs of life. */
  readonly idleMs: number;
  /** Over all. */
  readonly totalMs: number;
}

/** How one call to a content store is limited. The signal is aborted when its time is over, or by the caller. */
export interface ContentCall {
  readonly signal: AbortSignal;
}

export interface PutCall extends ContentCall {
  /** The store has begun an upload of several parts under this id; resolves when that is noted. */
  readonly onUpload: (upload: string) => Promise<void>;
  /** A sign of life is to be expected, after no more than so many bytes. */
  readonly onProgress: (bytes: number) => void;
  /** Of all bytes that the chunks gave so far. */
  readonly sha256: () => string;
}

export interface DeleteCall extends ContentCall {
  /** An upload of several parts that may have left some. */
  readonly upload: string | undefined;
  /** It never became a version: there may be uploads that nobody noted. */
  readonly isUnfinished: boolean;
}

/** A part of an object: from the first byte counted up to, and without, `end`. */
export interface Range {
  readonly start: number;
  readonly end: number;
}

/** What of an object is read. */
export interface Part extends Range {
  /** All that there is, and a store that has more than up to `end` must not hide it. */
  readonly isWhole: boolean;
}

/** What a store was found to honour. */
export interface StoreProbe {
  /** An object is never written over: the second put of a name is refused. */
  readonly ifNoneMatch: boolean;
  /** A change can be made to depend on what is there. */
  readonly ifMatch: boolean;
  /** A body that does not fit its checksum is refused. */
  readonly checksums: boolean;
  /** Uploads of several parts can be given up. */
  readonly abort: boolean;
}

/** One name in the store, as its list has it. */
export interface ListEntry {
  /** An object's UUID, or whatever else lies there: then with its path, if it has one. */
  readonly name: string;
  readonly size: number;
}

/** A part of the list. Objects are in the order of their names, over all pages. */
export interface ListPage {
  readonly entries: readonly ListEntry[];
  /** What to ask for next; undefined when this was the last one. Good for as long as the store is. */
  readonly next: string | undefined;
}

/**
 * The port to where the bytes are. An object's name is a UUID that is used once; nothing is ever written over.
 * @throws StoreUnavailable  a later call may succeed
 * @throws StoreRefused  it will not
 */
export interface Content {
  /** For messages and for the database: `disk`, `s3`. */
  readonly kind: string;
  /** For messages: where it is. */
  readonly where: string;
  /** Told before anything else is asked. */
  useBudget?(budget: Budget): void;
  /**
   * Writes an object, durably, from chunks in order. The promise resolves when the store has all of them.
   * @throws Conflict  there is an object of that name with other bytes
   */
  put(name: string, chunks: AsyncIterable<Buffer>, call: PutCall): Promise<void>;
  /** The bytes as they come; whoever asked reads them to the end, or destroys the stream. @throws CorruptObject  missing */
  get(name: string, part: Part, call: ContentCall): Promise<Readable>;
  /** How many bytes there are; undefined when there is no such object. */
  size(name: string, call: ContentCall): Promise<number | undefined>;
  /** Makes a second object of the same bytes, without moving them through this process. False: it cannot. */
  copy(from: string, to: string, size: number, call: ContentCall): Promise<boolean>;
  /** Deletes an object, and whatever an upload of several parts has left. One that is not there is no error. */
  delete(name: string, call: DeleteCall): Promise<void>;
  /** A page of everything where objects lie. @param from  `next` of another page; undefined: from the beginning */
  list(from: string | undefined, call: ContentCall): Promise<ListPage>;
  /** Takes a name, as it is listed, out of where objects lie, without deleting it. False: it was not there. */
  quarantine(name: string, call: ContentCall): Promise<boolean>;
  /** The text of the marker that says whose store this is, or of its copy; undefined when there is none. */
  readMarker(which: 'marker' | 'copy', call: ContentCall): Promise<string | undefined>;
  /**
   * Writes both, so that one of them is whole whatever stops it, and where there are both, without needing room for them.
   * @param ifAbsent  does nothing when there is a marker
   */
  writeMarker(text: string, ifAbsent: boolean, call: ContentCall): Promise<void>;
  /** Tries out what the store honours, with objects of its own. @throws StoreRefused  it cannot be used */
  probe(call: ContentCall): Promise<StoreProbe>;
  /** Closes what was opened here. */
  stop(): void;
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Whether a name in a store can be that of an object of ours. */
export function isObjectName(name: string): boolean {
  return UUID.test(name);
}
