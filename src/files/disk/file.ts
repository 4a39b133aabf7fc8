import { promises as fs } from 'node:fs';
import { Readable } from 'node:stream';
import { StoreUnavailable } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { Part } from '../content.ts';
import { told } from './failure.ts';

/** Handing a read to another thread costs a quarter of a millisecond where processors are virtual: hence few, and large. */
const READ_BYTES = 2 << 20;
/** Reads under way while a piece is looked at: two, since copying out of the system's memory is work, too. */
const LANES = 2;
/** The disk begins with what is there, and does not wait for the end: 15 % less for 8 MiB (2 cores, 2026-11). */
const FLUSH_BYTES = 2 << 20;

/** Writes chunks one behind the other. One is being written while the next is read and hashed, and the disk works on those before. */
export async function writeChunks(
  file: fs.FileHandle,
  chunks: AsyncIterable<Buffer>,
  onProgress: (bytes: number) => void,
): Promise<void> {
  let writing: Promise<unknown> = Promise.resolve();
  let flushing: Promise<void> | undefined;
  let unflushed = 0;
  for await (const chunk of chunks) {
    await writing;
    onProgress(chunk.length);
    if (unflushed >= FLUSH_BYTES && flushing === undefined) {
      unflushed = 0;
      // One that fails stays: the system tells of an error once, and not the next flush again.
      flushing = told(file.datasync()).then(() => {
        flushing = undefined;
      });
      flushing.catch(() => {});
    }
    unflushed += chunk.length;
    writing = told(writeAll(file, chunk));
    // Awaited above or below; until then it must not count as unheard.
    writing.catch(() => {});
  }
  await writing;
  await flushing;
}

async function writeAll(file: fs.FileHandle, chunk: Buffer): Promise<void> {
  if (faults.armed) await faults.reach('files.mid_upload');
  for (let from = 0; from < chunk.length; ) from += (await file.write(chunk, from)).bytesWritten;
}

/** A part of a file as a stream, which closes it. @throws CorruptObject  missing */
export async function openFile(path: string, part: Part): Promise<Readable> {
  return new FileStream(await told(fs.open(path, 'r')), part);
}

/** Looks at a piece before it is passed on. @throws what is wrong with it */
export type Look = (file: fs.FileHandle) => void;

/** Reads ahead while the last piece is being checked. Closes the file in the end. */
export class FileStream extends Readable {
  readonly #file: fs.FileHandle;
  readonly #part: Part;
  readonly #look: Look | undefined;
  readonly #ahead: Promise<Buffer>[] = [];
  #at: number;

  constructor(file: fs.FileHandle, part: Part, look?: Look) {
    // Pieces as they are: a stream of bytes would put those that wait together, which is a copy.
    super({ objectMode: true, highWaterMark: 1 });
    this.#file = file;
    this.#part = part;
    this.#at = part.start;
    this.#look = look;
  }

  override _read(): void {
    while (this.#ahead.length < LANES && this.#wanted > 0) {
      const piece = told(this.#piece(this.#at, this.#wanted));
      // It is heard when its turn comes, if it does.
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

  /** How many bytes to read next: of a whole file one past its end, so that it shows what should not be there. */
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
    // It waits for reads that are under way; nothing was written, so nothing can be lost.
    this.#file.close().catch(() => {});
    callback(error);
  }
}
