import { randomUUID } from 'node:crypto';
import { type Dirent, promises as fs } from 'node:fs';
import { join, resolve } from 'node:path';
import { Readable } from 'node:stream';
import { Conflict, CorruptObject, InvalidInput, StoreRefused, StoreUnavailable } from '../base/errors.ts';
import { faults } from '../base/fault.ts';
import { show } from '../base/refusal.ts';
import {
  type Content,
  type ContentCall,
  isObjectName,
  type Listed,
  type PutCall,
  type Range,
  type StoreProbe,
} from './content.ts';

/**
 * A content store in a folder of this machine, or one that all machines mount. Each object is a file that is written once,
 * on disk before `put` answers, and never changed. Made when it is first used.
 * @throws InvalidInput  no path
 */
export function disk(dir: string): Content {
  if (typeof dir !== 'string' || dir === '' || dir.includes('\0')) {
    throw new InvalidInput(`disk() takes the path of a folder, but was given ${show(dir)}`, { field: 'dir' });
  }
  return new DiskContent(resolve(dir));
}

const READ_BYTES = 512 * 1024;
const MARKER = 'pawl-store.json';
/** By the first two letters of their names, so that no folder gets millions of files. */
const FAN = 256;

class DiskContent implements Content {
  readonly kind = 'disk';
  readonly where: string;
  readonly #objects: string;
  readonly #quarantined: string;
  #isMade: Promise<void> | undefined;

  constructor(dir: string) {
    this.where = dir;
    this.#objects = join(dir, 'objects');
    this.#quarantined = join(dir, 'quarantine');
  }

  async put(name: string, chunks: AsyncIterable<Buffer>, { signal, onProgress }: PutCall): Promise<void> {
    await this.#make();
    const file = await told(fs.open(this.#path(name), 'wx'));
    try {
      // One write is under way while the next chunk is read and hashed.
      let writing: Promise<unknown> = Promise.resolve();
      for await (const chunk of chunks) {
        await writing;
        onProgress(chunk.length);
        writing = told(writeAll(file, chunk));
        // Awaited above or below; until then it must not count as unheard.
        writing.catch(() => {});
      }
      await writing;
      signal.throwIfAborted();
      await told(file.sync());
    } finally {
      await file.close();
    }
    await syncFolder(this.#folder(name));
  }

  async get(name: string, range: Range | undefined, { signal }: ContentCall): Promise<Readable> {
    signal.throwIfAborted();
    return openFile(this.#path(name), range);
  }

  async size(name: string): Promise<number | undefined> {
    const stat = await told(fs.stat(this.#path(name))).catch(undefinedIfMissing);
    return stat?.size;
  }

  /** Another name of the same file: objects are never changed. */
  async copy(from: string, to: string): Promise<boolean> {
    await this.#make();
    try {
      await fs.link(this.#path(from), this.#path(to));
    } catch (error) {
      if (NO_LINKS.has(codeOf(error))) return false;
      throw asStoreError(error);
    }
    await syncFolder(this.#folder(to));
    return true;
  }

  async delete(name: string): Promise<void> {
    await told(fs.unlink(this.#path(name))).catch(undefinedIfMissing);
  }

  async *list({ signal }: ContentCall): AsyncIterable<readonly Listed[]> {
    await this.#make();
    for (const folder of (await told(fs.readdir(this.#objects))).sort()) {
      signal.throwIfAborted();
      const entries: Dirent[] = await told(fs.readdir(join(this.#objects, folder), { withFileTypes: true })).catch(
        () => [],
      );
      const files = entries.filter((entry) => entry.isFile()).map((entry) => entry.name);
      yield await Promise.all(
        files.sort().map(async (file) => {
          const stat = await fs.stat(join(this.#objects, folder, file)).catch(() => undefined);
          return { name: file, size: stat?.size ?? 0 };
        }),
      );
    }
  }

  async quarantine(name: string): Promise<void> {
    await told(fs.mkdir(this.#quarantined, { recursive: true }));
    const folder = isObjectName(name) ? name.slice(0, 2) : await this.#find(name);
    if (folder === undefined) return;
    await told(fs.rename(join(this.#objects, folder, name), join(this.#quarantined, name))).catch(undefinedIfMissing);
  }

  readMarker(): Promise<string | undefined> {
    return told(fs.readFile(join(this.where, MARKER), 'utf8')).catch(undefinedIfMissing);
  }

  async writeMarker(text: string, ifAbsent: boolean): Promise<void> {
    await this.#make();
    const draft = join(this.where, `${MARKER}.${randomUUID()}`);
    const file = await told(fs.open(draft, 'wx'));
    try {
      await told(file.writeFile(text));
      await told(file.sync());
    } finally {
      await file.close();
    }
    const marker = join(this.where, MARKER);
    if (ifAbsent) {
      await told(fs.link(draft, marker)).catch(unlessThere);
      await told(fs.unlink(draft));
    } else {
      await told(fs.rename(draft, marker));
    }
    await syncFolder(this.where);
  }

  /** What the operating system promises need not be tried out. */
  async probe(): Promise<StoreProbe> {
    await this.#make();
    return { ifNoneMatch: true, ifMatch: true, checksums: true, abort: true };
  }

  stop(): void {}

  #folder(name: string): string {
    return join(this.#objects, name.slice(0, 2));
  }

  /** Only names of objects become paths, so none leads out of the folder. */
  #path(name: string): string {
    if (!isObjectName(name)) throw new InvalidInput(`${show(name)} is no name of an object`, { field: 'object' });
    return join(this.#folder(name), name);
  }

  async #find(name: string): Promise<string | undefined> {
    for (const folder of await told(fs.readdir(this.#objects))) {
      if ((await fs.readdir(join(this.#objects, folder)).catch((): string[] => [])).includes(name)) return folder;
    }
    return undefined;
  }

  #make(): Promise<void> {
    this.#isMade ??= this.#makeFolders().catch((error: unknown) => {
      this.#isMade = undefined;
      throw error;
    });
    return this.#isMade;
  }

  async #makeFolders(): Promise<void> {
    await told(fs.mkdir(this.#objects, { recursive: true }));
    const there = new Set(await told(fs.readdir(this.#objects)));
    for (let number = 0; number < FAN; number++) {
      const folder = number.toString(16).padStart(2, '0');
      if (!there.has(folder)) await told(fs.mkdir(join(this.#objects, folder), { recursive: true }));
    }
    await syncFolder(this.#objects);
    await syncFolder(this.where);
  }
}

async function writeAll(file: fs.FileHandle, chunk: Buffer): Promise<void> {
  if (faults.armed) await faults.reach('files.mid_upload');
  for (let from = 0; from < chunk.length; ) from += (await file.write(chunk, from)).bytesWritten;
}

/** A part of a file as a stream, which closes it. @throws CorruptObject  missing */
export async function openFile(path: string, range: Range | undefined): Promise<Readable> {
  const file = await told(fs.open(path, 'r'));
  return new FileStream(file, range?.start ?? 0, range?.end ?? Infinity);
}

/** Reads ahead, by one piece, while the last one is being checked. */
class FileStream extends Readable {
  readonly #file: fs.FileHandle;
  readonly #end: number;
  #at: number;

  constructor(file: fs.FileHandle, start: number, end: number) {
    // Pieces as they are: a stream of bytes would put those that wait together, which is a copy.
    super({ objectMode: true, highWaterMark: 2 });
    this.#file = file;
    this.#at = start;
    this.#end = end;
  }

  override _read(): void {
    const wanted = Math.min(READ_BYTES, this.#end - this.#at);
    if (wanted <= 0) return void this.push(null);
    told(this.#file.read(Buffer.allocUnsafeSlow(wanted), 0, wanted, this.#at)).then(
      ({ bytesRead, buffer }) => {
        this.#at += bytesRead;
        this.push(bytesRead === 0 ? null : buffer.subarray(0, bytesRead));
      },
      (error: unknown) => this.destroy(error instanceof Error ? error : new StoreUnavailable(String(error))),
    );
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // It waits for a read that is under way; nothing was written, so nothing can be lost.
    this.#file.close().catch(() => {});
    callback(error);
  }
}

/** A new file's name is as durable as its folder. */
async function syncFolder(path: string): Promise<void> {
  const folder = await told(fs.open(path, 'r'));
  try {
    await told(folder.sync());
  } finally {
    await folder.close();
  }
}

const NO_LINKS = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'EXDEV']);
const FULL = new Set(['ENOSPC', 'EDQUOT', 'EFBIG', 'EIO', 'EMFILE', 'ENFILE', 'EAGAIN', 'ESTALE', 'ETIMEDOUT']);

async function told<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw asStoreError(error);
  }
}

function asStoreError(error: unknown): unknown {
  const code = codeOf(error);
  if (!(error instanceof Error) || code === '') return error;
  const cause = { cause: error };
  if (code === 'ENOENT')
    return new CorruptObject(`there is no such file: ${error.message}`, { ...cause, damage: 'missing' });
  if (code === 'EEXIST') return new Conflict(`there is such a file already: ${error.message}`, cause);
  if (FULL.has(code)) return new StoreUnavailable(`the disk store cannot now: ${error.message}`, cause);
  return new StoreRefused(`the disk store refused: ${error.message}`, cause);
}

function codeOf(error: unknown): string {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  return typeof code === 'string' ? code : '';
}

function undefinedIfMissing(error: unknown): undefined {
  if (!(error instanceof CorruptObject)) throw error;
}

function unlessThere(error: unknown): void {
  if (!(error instanceof Conflict)) throw error;
}
