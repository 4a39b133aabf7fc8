import { createHash, randomUUID } from 'node:crypto';
import { promises as fs } from 'node:fs';
import { join } from 'node:path';
import { PawlError, StoreUnavailable } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { codeOf } from '../disk/failure.ts';
import { openFile } from '../disk/file.ts';
import { makeFolder } from '../disk/folder.ts';
import { type FileMark, HotCopy, isSameFile, type KnownCopy } from './copy.ts';

const NAME = /^[0-9a-f]{64}$/;

/**
 * Copies of objects in a folder of this host, each under the SHA-256 of its bytes, so that a reader finds the right bytes or
 * none. Any number of processes may share the folder: a copy appears whole, by a rename, and stays readable for its readers
 * when another process removes it.
 */
export class HotCache {
  readonly #dir: string;
  readonly #maxBytes: number;
  /** Copies whose hash this process has checked, with the mark of the file at that time. */
  readonly #known = new Map<string, KnownCopy>();

  constructor(dir: string, maxBytes: number) {
    this.#dir = dir;
    this.#maxBytes = maxBytes;
  }

  /** Whether the copies may take so many bytes at all. */
  fits(size: number): boolean {
    return size <= this.#maxBytes;
  }

  /**
   * Opens a copy; undefined when there is no right one. @throws StoreUnavailable  a copy cannot be opened, or a wrong one
   * cannot be removed
   */
  async open(sha256: string, size: number): Promise<HotCopy | undefined> {
    const file = await fs.open(this.#path(sha256), 'r').catch(undefinedIfAbsent);
    if (file === undefined) return undefined;
    try {
      const known = await this.#check(sha256, size, await file.stat());
      if (known !== undefined) return new HotCopy(file, known);
    } catch (error) {
      await file.close();
      throw asStoreError(error);
    }
    await file.close();
    return undefined;
  }

  /** Whether there is a right copy. @throws StoreUnavailable  as `open` */
  async has(sha256: string, size: number): Promise<boolean> {
    const mark = await fs.stat(this.#path(sha256)).catch(undefinedIfAbsent);
    if (mark === undefined) return false;
    try {
      return (await this.#check(sha256, size, mark)) !== undefined;
    } catch (error) {
      throw asStoreError(error);
    }
  }

  /** Computes the hash at the first use, and after each change of the file. Removes a wrong copy. */
  async #check(sha256: string, size: number, mark: FileMark): Promise<KnownCopy | undefined> {
    const known = this.#known.get(sha256);
    if (known !== undefined && isSameFile(known.mark, mark)) {
      known.usedAt = Date.now();
      return known;
    }
    if (mark.size === size && (await hashOf(this.#path(sha256), size)) === sha256) return this.#know(sha256, mark);
    await this.drop(sha256);
    return undefined;
  }

  #know(sha256: string, mark: FileMark): KnownCopy {
    const known = { mark, checkedAt: -Infinity, usedAt: Date.now() };
    this.#known.set(sha256, known);
    return known;
  }

  /** Adds a copy, from chunks that are checked already. @throws StoreUnavailable  the folder cannot take it */
  async add(sha256: string, size: number, chunks: AsyncIterable<Buffer>): Promise<void> {
    const draft = join(this.#dir, `draft-${randomUUID()}`);
    try {
      // Each time, because a program that cleans up temporary files may have removed the folder.
      await makeFolder(this.#dir);
      await this.#makeRoom(size);
      const file = await fs.open(draft, 'wx');
      try {
        for await (const chunk of chunks) await file.writeFile(chunk);
        await file.sync();
      } finally {
        await file.close();
      }
      if (faults.armed) await faults.reach('files.before_swap');
      await fs.rename(draft, this.#path(sha256));
      this.#know(sha256, await fs.stat(this.#path(sha256)));
    } catch (error) {
      // The first failure matters more than the failure to remove the draft.
      await fs.rm(draft, { force: true }).catch(() => {});
      throw asStoreError(error);
    }
  }

  async drop(sha256: string): Promise<void> {
    this.#known.delete(sha256);
    await fs.rm(this.#path(sha256), { force: true });
  }

  #path(sha256: string): string {
    return join(this.#dir, sha256);
  }

  /** Removes the copies that were used longest ago, and drafts of dead processes: those without a write for an hour. */
  async #makeRoom(size: number): Promise<void> {
    const copies: { name: string; size: number; usedAt: number }[] = [];
    for (const name of await fs.readdir(this.#dir)) {
      const stat = await fs.stat(join(this.#dir, name)).catch(() => undefined);
      if (stat === undefined) continue;
      if (!NAME.test(name)) {
        if (name.startsWith('draft-') && Date.now() - stat.mtimeMs > 3_600_000)
          await fs.rm(join(this.#dir, name), { force: true });
        continue;
      }
      copies.push({ name, size: stat.size, usedAt: this.#known.get(name)?.usedAt ?? stat.mtimeMs });
    }
    let total = size + copies.reduce((sum, copy) => sum + copy.size, 0);
    for (const copy of copies.sort((a, b) => a.usedAt - b.usedAt)) {
      if (total <= this.#maxBytes) return;
      await this.drop(copy.name);
      total -= copy.size;
    }
  }
}

async function hashOf(path: string, size: number): Promise<string | undefined> {
  const hash = createHash('sha256');
  try {
    for await (const chunk of await openFile(path, { start: 0, end: size, isWhole: true })) hash.update(chunk);
  } catch (error) {
    // A copy that cannot be read now may be right. One that the disk cannot read any more is not.
    const reason = error instanceof PawlError ? error.cause : error;
    if (codeOf(reason) === 'ENOENT' || codeOf(reason) === 'EIO') return undefined;
    throw asStoreError(reason);
  }
  return hash.digest('hex');
}

/** No file, and no folder, or a file in place of it. */
function undefinedIfAbsent(error: unknown): undefined {
  const code = codeOf(error);
  if (code !== 'ENOENT' && code !== 'ENOTDIR') throw asStoreError(error);
}

function asStoreError(error: unknown): unknown {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  if (typeof code !== 'string' || !/^E[A-Z_]+$/.test(code)) return error;
  return new StoreUnavailable(`the folder of the hot copies failed: ${String(error)}`, { cause: error });
}
