import type { Readable } from 'node:stream';
import { ReadableStream } from 'node:stream/web';
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

/**
 * Keeps a source whose first byte is read later, or never. A stream of Node that fails meanwhile would end the process, since
 * nothing listens for its error yet; the reader of its bytes gets the error, too.
 * @returns closes the source. It does not wait for that, and does not need the end of a read: the source may hang
 */
export function keepSource(source: FileSource): () => void {
  if (source instanceof ReadableStream) return () => void source.cancel().catch(() => {}); // refused while it is being read
  if (!isNodeStream(source)) return () => {};
  source.on('error', () => {});
  return () => void source.destroy();
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
