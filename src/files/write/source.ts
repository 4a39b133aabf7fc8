import type { Readable } from 'node:stream';
import type { ReadableStream, ReadableStreamDefaultReader } from 'node:stream/web';
import { InvalidInput } from '../../base/errors.ts';
import { refusal } from '../../base/options/refusal.ts';
import type { TransferTimeout } from '../transfer-timeout.ts';

/** A source of bytes for a version. A string is written as UTF-8. */
export type FileSource = string | Uint8Array | AsyncIterable<Uint8Array | string> | Iterable<Uint8Array>;

/** Facts about the bytes that are known in advance, and limits for them. */
export interface ExpectedBytes {
  /** The exact number of bytes; undefined: any. */
  readonly size: number | undefined;
  readonly maxBytes: number;
  readonly idleMs: number;
}

// Large enough that the cost of a system call does not count; small enough that one chunk is hashed while the last one is
// written.
const CHUNK_BYTES = 512 * 1024;

/** Smaller chunks are joined, because each chunk costs the same system calls, however small it is. */
const HANDY_BYTES = 64 * 1024;

/** @throws InvalidInput */
export function checkSource(what: string, source: unknown): FileSource {
  if (typeof source === 'string' || source instanceof Uint8Array) return source;
  if (isIterable(source) && !Array.isArray(source)) return source;
  throw refusal({ field: 'source', what }, source, 'a stream or other iterable of bytes, a Uint8Array, or a string');
}

/** A source that is being written. */
export interface KeptSource {
  readonly chunks: FileSource;
  /** Closes the source. Does not wait for that, and does not need the end of a read: the source may hang. */
  readonly close: () => void;
}

/**
 * Keeps a source whose first byte is read later, or never. A stream of Node that fails meanwhile would end the process, since
 * nothing listens for its error yet; the reader of its bytes gets the error, too.
 */
export function keepSource(source: FileSource): KeptSource {
  if (isNodeStream(source)) {
    source.on('error', () => {});
    return { chunks: source, close: () => void source.destroy() };
  }
  if (isWebStream(source)) return keepWebStream(source);
  if (!(source instanceof Object) || !(Symbol.asyncIterator in source)) return { chunks: source, close: () => {} };
  const iterator = source[Symbol.asyncIterator]();
  return { chunks: { [Symbol.asyncIterator]: () => iterator }, close: () => void ended(iterator) };
}

/** Takes the reader of a stream, because only that can cancel the stream while a read hangs. */
function keepWebStream(source: ReadableStream<Uint8Array | string>): KeptSource {
  // If another program reads it, the first read fails with the stream's own error.
  if (source.locked) return { chunks: source, close: () => {} };
  const reader = source.getReader();
  return { chunks: readToEnd(reader), close: () => void cancelled(reader) };
}

async function* readToEnd(
  reader: ReadableStreamDefaultReader<Uint8Array | string>,
): AsyncGenerator<Uint8Array | string, void> {
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    // Does nothing to a stream that was read to its end.
    void cancelled(reader);
    reader.releaseLock();
  }
}

/** What goes wrong when a source is given up is its own matter: the write has failed already, or has all bytes. */
async function cancelled(reader: ReadableStreamDefaultReader<unknown>): Promise<void> {
  await reader.cancel().catch(() => {});
}

async function ended(iterator: AsyncIterator<unknown>): Promise<void> {
  try {
    await iterator.return?.();
  } catch {
    // As above.
  }
}

/** By its shape, as below. */
function isWebStream(source: object | string): source is ReadableStream<Uint8Array | string> {
  if (!(source instanceof Object) || !('getReader' in source)) return false;
  return typeof source.getReader === 'function' && 'locked' in source;
}

/** By its shape: there are such streams from packages, too. */
function isNodeStream(source: object | string): source is Pick<Readable, 'on' | 'destroy'> {
  if (!(source instanceof Object) || !('on' in source) || !('destroy' in source)) return false;
  return typeof source.on === 'function' && typeof source.destroy === 'function';
}

/**
 * The bytes of a source in buffers of a useful size. An error of the source is thrown unchanged.
 * @throws InvalidInput  a value that is not bytes; more or fewer bytes than announced; more than allowed
 * @throws TimedOut  the source gave nothing for too long
 */
export async function* readSource(
  source: FileSource,
  expected: ExpectedBytes,
  transfer: TransferTimeout,
): AsyncGenerator<Buffer, void> {
  let held: Buffer[] = [];
  let size = 0;
  for await (const chunk of watched(source, expected, transfer)) {
    if (chunk.length < HANDY_BYTES) {
      held.push(chunk);
      size += chunk.length;
      if (size < HANDY_BYTES) continue;
    }
    if (size > 0) yield Buffer.concat(held, size);
    held = [];
    size = 0;
    if (chunk.length >= HANDY_BYTES) yield chunk;
  }
  if (size > 0) yield Buffer.concat(held, size);
}

/** The chunks of the source, with a time limit for each. */
async function* watched(
  source: FileSource,
  expected: ExpectedBytes,
  transfer: TransferTimeout,
): AsyncGenerator<Buffer, void> {
  const chunks = pieces(source);
  let size = 0;
  let isOver = false;
  try {
    for (;;) {
      transfer.expect('source', expected.idleMs);
      const { value, done } = await transfer.wait(chunks.next());
      transfer.expect('neither', Infinity);
      isOver = done === true;
      if (value === undefined) break;
      size += value.length;
      refuseTooMuch(size, expected);
      yield value;
    }
  } finally {
    // This calls `return()` on the source and does not wait for it, since the source may hang.
    if (!isOver) void chunks.return().catch(() => {});
  }
  if (expected.size !== undefined && size < expected.size) throw lie(expected.size, String(size));
}

function refuseTooMuch(size: number, expected: ExpectedBytes): void {
  if (expected.size !== undefined && size > expected.size) throw lie(expected.size, `${size} or more`);
  if (size <= expected.maxBytes) return;
  throw new InvalidInput(`the source has more than the ${expected.maxBytes} bytes that a file may have here`, {
    field: 'source',
  });
}

function lie(announced: number, came: string): InvalidInput {
  return new InvalidInput(`option "size" says ${announced} bytes, but the source gave ${came}; nothing was published`, {
    field: 'size',
  });
}

async function* pieces(source: FileSource): AsyncGenerator<Buffer, void> {
  if (typeof source === 'string') return yield* slices(Buffer.from(source));
  if (source instanceof Uint8Array) return yield* slices(toBuffer(source));
  for await (const chunk of source) {
    if (typeof chunk !== 'string' && !(chunk instanceof Uint8Array)) {
      throw refusal({ field: 'source' }, chunk, 'an iterable of Uint8Array');
    }
    yield* slices(typeof chunk === 'string' ? Buffer.from(chunk) : toBuffer(chunk));
  }
}

function* slices(bytes: Buffer): Generator<Buffer, void> {
  for (let from = 0; from < bytes.length; from += CHUNK_BYTES) yield bytes.subarray(from, from + CHUNK_BYTES);
}

function toBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function isIterable(value: unknown): value is AsyncIterable<Uint8Array> | Iterable<Uint8Array> {
  return value instanceof Object && (Symbol.asyncIterator in value || Symbol.iterator in value);
}
