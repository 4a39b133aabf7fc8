import { randomUUID } from 'node:crypto';
import { type Dirent, promises as fs } from 'node:fs';
import { join, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { CorruptObject, InvalidInput, StoreRefused } from '../../base/errors.ts';
import { Lazy } from '../../base/lazy.ts';
import { show } from '../../base/options/refusal.ts';
import {
  type Content,
  type ContentCall,
  isObjectName,
  type ListEntry,
  type ListPage,
  type Part,
  type PutCall,
  type StoreProbe,
} from '../content.ts';
import { codeOf, diskFailure, told } from './failure.ts';
import { openFile, writeChunks } from './file.ts';
import { makeFolder, syncFolder } from './folder.ts';
import { placeMarkers, readMarker, writeMarkers } from './marker.ts';

/**
 * A content store in a folder of this machine, or in one that all machines mount. Each object is a file that is written once,
 * is on disk before `put` resolves, and never changes. The folder is made at the first use.
 * @throws InvalidInput  `dir` is no path
 */
export function disk(dir: string): Content {
  if (typeof dir !== 'string' || dir === '' || dir.includes('\0')) {
    throw new InvalidInput(`disk() takes the path of a folder, but was given ${show(dir)}`, { field: 'dir' });
  }
  return new DiskContent(resolve(dir));
}

/** Subfolders by the first two letters of a name, so that no folder gets millions of files. */
const FAN = 256;
/** A page of the list has whole subfolders, and ends once it has at least this many names. */
const PAGE = 1000;

class DiskContent implements Content {
  readonly kind = 'disk';
  readonly where: string;
  readonly #objects: string;
  readonly #quarantined: string;
  readonly #isMade: Lazy<void> = new Lazy(() => this.#make());

  constructor(dir: string) {
    this.where = dir;
    this.#objects = join(dir, 'objects');
    this.#quarantined = join(dir, 'quarantine');
  }

  async put(name: string, chunks: AsyncIterable<Buffer>, { signal, within }: PutCall): Promise<void> {
    await this.#isMade.get();
    const path = this.#path(name);
    const file = await told(fs.open(path, 'wx'));
    try {
      const size = await writeChunks(file, chunks, within);
      signal.throwIfAborted();
      // Most of it is on the disk already.
      await within(size / 16, Promise.all([told(file.sync()), syncFolder(this.#folder(name))]));
    } catch (error) {
      // If the disk is full, the room is needed at once. If the file cannot be removed now, the collector removes it.
      await fs.unlink(path).catch(() => {});
      throw error;
    } finally {
      await told(file.close());
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

  /** A hard link is enough, because objects never change. */
  async copy(from: string, to: string): Promise<boolean> {
    await this.#isMade.get();
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

  /** Lists one subfolder after another, in the order of their names; `from` is the last one of the page before. */
  async list(from: string | undefined, { signal }: ContentCall): Promise<ListPage> {
    await this.#isMade.get();
    const all = await told(fs.readdir(this.#objects, { withFileTypes: true }));
    const left = all.filter(({ name }) => from === undefined || name > from).sort((a, b) => (a.name < b.name ? -1 : 1));
    const entries: ListEntry[] = [];
    for (let entry = left.shift(); entry !== undefined; entry = left.shift()) {
      signal.throwIfAborted();
      entries.push(...(await this.#listFolder(entry)));
      if (entries.length >= PAGE && left.length > 0) return { entries, next: entry.name };
    }
    return { entries, next: undefined };
  }

  async #listFolder(entry: Dirent): Promise<ListEntry[]> {
    const folder = entry.name;
    const names = entry.isFile() ? undefined : await namesIn(join(this.#objects, folder));
    // A file, or a broken link, where only subfolders should be.
    if (names === undefined) return [await this.#listed(`./${folder}`)];
    return Promise.all(names.sort().map((name) => this.#listed(name.startsWith(folder) ? name : `${folder}/${name}`)));
  }

  async #listed(name: string): Promise<ListEntry> {
    const stat = await told(fs.lstat(this.#place(name))).catch(undefinedIfMissing);
    return { name, size: stat?.size ?? 0 };
  }

  async quarantine(name: string): Promise<boolean> {
    const from = this.#place(name);
    await told(makeFolder(this.#quarantined));
    // The target contains the whole path: the same name in two folders is moved from both, perhaps at the same time.
    const wanted = join(this.#quarantined, name.replaceAll('/', '%2F'));
    const isTaken = (await told(fs.lstat(wanted)).catch(undefinedIfMissing)) !== undefined;
    // Files in quarantine are not overwritten, either.
    const to = isTaken ? `${wanted}.${randomUUID()}` : wanted;
    return told(fs.rename(from, to)).then(
      () => true,
      (error: unknown) => undefinedIfMissing(error) ?? false,
    );
  }

  readMarker(which: 'marker' | 'copy'): Promise<string | undefined> {
    return readMarker(this.where, which).catch(undefinedIfMissing);
  }

  async writeMarker(text: string, ifAbsent: boolean): Promise<void> {
    await this.#isMade.get();
    await (ifAbsent ? placeMarkers : writeMarkers)(this.where, text);
  }

  /** The operating system gives all guarantees, so there is nothing to test. */
  async probe(): Promise<StoreProbe> {
    await this.#isMade.get();
    return { ifNoneMatch: true, ifMatch: true, checksums: true, abort: true };
  }

  /** A probe writes nothing. */
  async endProbes(): Promise<void> {}

  stop(): void {}

  #folder(name: string): string {
    return join(this.#objects, name.slice(0, 2));
  }

  /** Only names of objects become paths, so no path leads out of the folder. */
  #path(name: string): string {
    if (!isObjectName(name)) throw new InvalidInput(`${show(name)} is no name of an object`, { field: 'object' });
    return join(this.#folder(name), name);
  }

  /**
   * The path of a listed name: in the subfolder of its first two letters, like an object, or its own path. Never outside of
   * the folder.
   */
  #place(name: string): string {
    const [folder = '', file = '', ...more] = name.includes('/') ? name.split('/') : [name.slice(0, 2), name];
    const isOutside = folder === '' || folder === '..' || file === '' || file === '.' || file === '..';
    if (!isOutside && more.length === 0 && !name.includes('\0')) return join(this.#objects, folder, file);
    throw new InvalidInput(`${show(name)} is no name in a list`, { field: 'name' });
  }

  async #make(): Promise<void> {
    try {
      await this.#makeFolders();
    } catch (error) {
      if (!(error instanceof CorruptObject)) throw error;
      throw new StoreRefused(`the folder ${this.where} cannot be made: ${error.message}`, { cause: error });
    }
  }

  async #makeFolders(): Promise<void> {
    await told(makeFolder(this.#objects));
    const there = new Set(await told(fs.readdir(this.#objects)));
    for (let number = 0; number < FAN; number++) {
      const folder = number.toString(16).padStart(2, '0');
      if (!there.has(folder)) await told(makeFolder(join(this.#objects, folder)));
    }
    await syncFolder(this.#objects);
    await syncFolder(this.where);
  }
}

const NO_LINKS = new Set(['EPERM', 'ENOSYS', 'ENOTSUP', 'EOPNOTSUPP', 'EMLINK', 'EXDEV']);

/** @returns undefined if there is no folder */
async function namesIn(path: string): Promise<string[] | undefined> {
  return fs.readdir(path).catch((error: unknown) => {
    if (codeOf(error) === 'ENOTDIR' || codeOf(error) === 'ENOENT') return undefined;
    throw diskFailure(error);
  });
}

function undefinedIfMissing(error: unknown): undefined {
  if (!(error instanceof CorruptObject)) throw error;
}
