import { randomUUID } from 'node:crypto';
import { type Dirent, promises as fs } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { Conflict, CorruptObject, InvalidInput } from '../base/errors.ts';
import { show } from '../base/refusal.ts';
import {
  type Content,
  type ContentCall,
  isObjectName,
  type Listed,
  type Part,
  type PutCall,
  type StoreProbe,
} from './content.ts';
import { codeOf, diskFailure, told } from './disk-failure.ts';
import { openFile, writeChunks } from './disk-file.ts';

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
    const path = this.#path(name);
    const file = await told(fs.open(path, 'wx'));
    try {
      await writeChunks(file, chunks, onProgress);
      signal.throwIfAborted();
      await Promise.all([told(file.sync()), syncFolder(this.#folder(name))]);
    } catch (error) {
      // Room on a disk that is full is wanted at once. What cannot be removed now, the collector will.
      await fs.unlink(path).catch(() => {});
      throw error;
    } finally {
      await file.close();
    }
  }

  async get(name: string, part: Part, { signal }: ContentCall): Promise<Readable> {
    signal.throwIfAborted();
    return openFile(this.#path(name), part);
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
      throw diskFailure(error);
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

const NO_LINKS = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'EXDEV']);

/** A new file's name is as durable as its folder. */
async function syncFolder(path: string): Promise<void> {
  const folder = await told(fs.open(path, 'r'));
  try {
    await told(folder.sync());
  } finally {
    await folder.close();
  }
}

function undefinedIfMissing(error: unknown): undefined {
  if (!(error instanceof CorruptObject)) throw error;
}

function unlessThere(error: unknown): void {
  if (!(error instanceof Conflict)) throw error;
}
