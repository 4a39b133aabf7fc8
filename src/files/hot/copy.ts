import { type promises as fs, fstatSync, type Stats } from 'node:fs';
import { CorruptObject } from '../../base/errors.ts';
import { now } from '../../base/time/clock.ts';
import type { Range } from '../content.ts';
import { FileStream } from '../disk/file.ts';
import type { ContentBody } from '../reader.ts';

/** The facts about a file that change when it is written. */
export type FileMark = Pick<Stats, 'size' | 'ino' | 'mtimeMs' | 'ctimeMs'>;

/** What this process knows about a copy: its bytes were right when the file had this mark. */
export interface KnownCopy {
  readonly mark: FileMark;
  /** When a reader last found every block right; monotonic. */
  checkedAt: number;
  /** The last use, for removing the copy that was used longest ago; by the wall clock, like the times of files. */
  usedAt: number;
}

/** For this time, an unchanged copy is not checked again. Silent damage of the disk is found after it. */
const TRUST_MS = 10_000;
/** The system's file times have ticks of up to 10 ms: a second change within one tick would not show. */
const SETTLED_MS = 100;

export function isSameFile(a: FileMark, b: FileMark): boolean {
  return a.ino === b.ino && a.size === b.size && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs;
}

/** An open copy: it stays readable even if its name is removed. */
export class HotCopy {
  readonly #file: fs.FileHandle;
  readonly #known: KnownCopy;
  readonly #isTrusted: boolean;
  #isTaken = false;

  constructor(file: fs.FileHandle, known: KnownCopy) {
    this.#file = file;
    this.#known = known;
    this.#isTrusted = now() - known.checkedAt < TRUST_MS;
  }

  /** Reads a part of the copy. Call it once; the stream closes the file. */
  read(range: Range): ContentBody {
    this.#isTaken = true;
    const { mark } = this.#known;
    const part = { ...range, isWhole: false };
    if (this.#isTrusted)
      return { stream: new FileStream(this.#file, part, (file) => this.#look(file)), check: 'length' };
    const stream = new FileStream(this.#file, part);
    const isAll = range.start === 0 && range.end === mark.size;
    if (isAll && Date.now() - mark.ctimeMs > SETTLED_MS) this.#noteCheck(stream);
    return { stream, check: 'blocks' };
  }

  /** Closes the file, unless it is being read. */
  async close(): Promise<void> {
    if (!this.#isTaken) await this.#file.close();
  }

  /** Checks that the file has not changed, before an unchecked piece is passed on. A removal of its name does no harm. */
  #look(file: fs.FileHandle): void {
    // Synchronous: the system has the answer in memory; another thread would cost a hundred times as much.
    const { mtimeMs, ctimeMs, nlink } = fstatSync(file.fd);
    const { mark } = this.#known;
    if (nlink > 0 ? ctimeMs === mark.ctimeMs : mtimeMs === mark.mtimeMs) return;
    throw new CorruptObject('the hot copy was written to while it was read', { damage: 'changed' });
  }

  #noteCheck(stream: FileStream): void {
    const startedAt = now();
    stream.once('end', () => {
      this.#known.checkedAt = startedAt;
    });
  }
}
