import { promises as fs } from 'node:fs';
import { Readable } from 'node:stream';
import { StoreUnavailable } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { Part, PutCall } from '../content.ts';
import { told } from './failure.ts';

/** To hand a read to another thread costs a quarter of a millisecond on virtual processors, so reads are few and large. */
const READ_BYTES = 2 << 20;
/** Reads under way while a piece is checked: two, because each read also copies out of the system's memory. */
const LANES = 2;
/** A flush starts after this many bytes, and not only at the end: 15 % less time for 8 MiB (2 cores, 2026-11). */
const FLUSH_BYTES = 2 << 20;

/**
 * Writes chunks in order. While a chunk is written, the next one is read and hashed, and the disk flushes earlier ones.
 * @returns the number of bytes
 */
export async function writeChunks(
  file: fs.FileHandle,
  chunks: AsyncIterable<Buffer>,
  within: PutCall['within'],
): Promise<number> {
  let writing: Promise<unknown> = Promise.resolve();
  let flushing: Promise<void> | undefined;
  let unflushed = 0;
  let size = 0;
  for await (const chunk of chunks) {
    await writing;
    size += chunk.length;
    if (unflushed >= FLUSH_BYTES && flushing === undefined) {
      // A failed flush is kept: the system reports an error once, and not again at the next flush.
      flushing = told(within(unflushed, file.datasync())).then(() => {
        flushing = undefined;
      });
      flushing.catch(() => {});
      unflushed = 0;
    }
    unflushed += chunk.length;
    writing = told(within(chunk.length, writeAll(file, chunk)));
    // It is awaited above or below; until then its rejection must not count as unhandled.
    writing.catch(() => {});
  }
  await writing;
  await flushing;
  return size;
}

async function writeAll(file: fs.FileHandle, chunk: Buffer): Promise<void> {
  if (faults.armed) await faults.reach('files.mid_upload');
  for (let from = 0; from < chunk.length; ) from += (await file.write(chunk, from)).bytesWritten;
}

/** Opens a part of a file as a stream, which closes the file. @throws CorruptObject  there is no such file */
export async function openFile(path: string, part: Part): Promise<Readable> {
  return new FileStream(await told(fs.open(path, 'r')), part);
}

/** Checks the file before a piece is passed on; throws to refuse the piece. */
export type PieceCheck = (file: fs.FileHandle) => void;

/** Reads ahead while a piece is being checked. Closes the file at the end. */
export class FileStream extends Readable {
  readonly #file: fs.FileHandle;
  readonly #part: Part;
  readonly #look: PieceCheck | undefined;
  readonly #ahead: Promise<Buffer>[] = [];
  #at: number;

  constructor(file: fs.FileHandle, part: Part, look?: PieceCheck) {
    // Object mode keeps pieces as they are: a stream of bytes would join waiting pieces, which is a copy.
    super({ objectMode: true, highWaterMark: 1 });
    this.#file = file;
    this.#part = part;
    this.#at = part.start;
    this.#look = look;
  }

  override _read(): void {
    while (this.#ahead.length < LANES && this.#wanted > 0) {
      const piece = told(this.#piece(this.#at, this.#wanted));
      // The failure is reported when the stream reaches this piece, if it does.
      piece.catch(() => {});
      this.#ahead.push(piece);
      this.#at += this.#wanted;
    }
    const first = this.#ahead.shift();
    if (first === undefined) return void this.push(null);
    first.then(
      (piece) => this.push(piece.length === 0 ? null : piece),
      (error: unknown) => this.destroy(error instanceof Error ? error : new StoreUnavailable(String(error))),
    );
  }

  /** How many bytes to read next. After the end of a whole file this is one byte, which shows a file that is too long. */
  get #wanted(): number {
    const { end, isWhole } = this.#part;
    return Math.min(READ_BYTES, Math.max(0, (isWhole && this.#at >= end ? end + 1 : end) - this.#at));
  }

  async #piece(from: number, wanted: number): Promise<Buffer> {
    const piece = Buffer.allocUnsafeSlow(wanted);
    let size = 0;
    while (size < wanted) {
      const { bytesRead } = await this.#file.read(piece, size, wanted - size, from + size);
      if (bytesRead === 0) break;
      size += bytesRead;
    }
    this.#look?.(this.#file);
    return size === wanted ? piece : piece.subarray(0, size);
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // Closing waits for reads that are under way. Nothing was written, so an error of the close loses nothing.
    this.#file.close().catch(() => {});
    callback(error);
  }
}
