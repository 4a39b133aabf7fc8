import { createHash, randomUUID } from 'node:crypto';
import { constants, promises as fs } from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { CorruptObject, StoreUnavailable } from '../base/errors.ts';
import { faults } from '../base/fault.ts';
import type { Range } from './content.ts';
import { openFile } from './disk.ts';

interface Copy {
  readonly size: number;
  readonly modifiedMs: number;
  readonly inode: number;
  usedAt: number;
}

const NAME = /^[0-9a-f]{64}$/;

/**
 * Copies of objects in a folder of this host, each under the SHA-256 of its bytes, so that a copy is right or is not there. Any
 * number of processes may share the folder: a copy appears whole, by a rename, and one that is read stays readable when
 * another process removes it.
 */
export class HotCache {
  readonly #dir: string;
  readonly #maxBytes: number;
  /** Copies whose hash was checked here, by the file they were then. */
  readonly #checked = new Map<string, Copy>();
  #isMade: Promise<unknown> | undefined;

  constructor(dir: string, maxBytes: number) {
    this.#dir = dir;
    this.#maxBytes = maxBytes;
  }

  /** A part of a copy; undefined when there is none that is right. Its blocks are to be checked as they are read. */
  async open(sha256: string, size: number, range: Range): Promise<Readable | undefined> {
    if (!(await this.has(sha256, size))) return undefined;
    try {
      return await openFile(this.#path(sha256), range);
    } catch (error) {
      if (error instanceof CorruptObject) return undefined;
      throw error;
    }
  }

  /** Whether there is a copy. Its hash is reckoned the first time, and whenever it is another file than it was. */
  async has(sha256: string, size: number): Promise<boolean> {
    const stat = await fs.stat(this.#path(sha256)).catch(() => undefined);
    if (stat === undefined || stat.size !== size) {
      if (stat !== undefined) await this.drop(sha256);
      return false;
    }
    const known = this.#checked.get(sha256);
    if (known?.inode === stat.ino && known.modifiedMs === stat.mtimeMs) {
      known.usedAt = Date.now();
      return true;
    }
    if ((await hashOf(this.#path(sha256))) !== sha256) {
      await this.drop(sha256);
      return false;
    }
    this.#checked.set(sha256, { size, modifiedMs: stat.mtimeMs, inode: stat.ino, usedAt: Date.now() });
    return true;
  }

  /** Takes a copy in, from bytes that are checked as they come. @throws StoreUnavailable  the folder cannot take it */
  async add(sha256: string, size: number, chunks: AsyncIterable<Buffer>): Promise<void> {
    this.#isMade ??= fs.mkdir(this.#dir, { recursive: true });
    await this.#isMade;
    await this.#makeRoom(size);
    const draft = join(this.#dir, `draft-${randomUUID()}`);
    try {
      const file = await fs.open(draft, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY);
      try {
        for await (const chunk of chunks) await file.writeFile(chunk);
        await file.sync();
      } finally {
        await file.close();
      }
      if (faults.armed) await faults.reach('files.before_swap');
      await fs.rename(draft, this.#path(sha256));
    } catch (error) {
      await fs.rm(draft, { force: true });
      throw asStoreError(error);
    }
    const stat = await fs.stat(this.#path(sha256));
    this.#checked.set(sha256, { size, modifiedMs: stat.mtimeMs, inode: stat.ino, usedAt: Date.now() });
  }

  async drop(sha256: string): Promise<void> {
    this.#checked.delete(sha256);
    await fs.rm(this.#path(sha256), { force: true });
  }

  #path(sha256: string): string {
    return join(this.#dir, sha256);
  }

  /** The copies that were used last stay. Drafts that nobody has written to for an hour are of the dead. */
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
      copies.push({ name, size: stat.size, usedAt: this.#checked.get(name)?.usedAt ?? stat.mtimeMs });
    }
    let total = size + copies.reduce((sum, copy) => sum + copy.size, 0);
    for (const copy of copies.sort((a, b) => a.usedAt - b.usedAt)) {
      if (total <= this.#maxBytes) return;
      await this.drop(copy.name);
      total -= copy.size;
    }
  }
}

async function hashOf(path: string): Promise<string | undefined> {
  const hash = createHash('sha256');
  try {
    for await (const chunk of await openFile(path, undefined)) hash.update(chunk);
  } catch {
    return undefined;
  }
  return hash.digest('hex');
}

function asStoreError(error: unknown): unknown {
  const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
  if (typeof code !== 'string' || !/^E[A-Z]+$/.test(code)) return error;
  return new StoreUnavailable(`the folder of the hot copies cannot take one: ${String(error)}`, { cause: error });
}
