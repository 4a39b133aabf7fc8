import { type promises as fs, fstatSync, type Stats } from 'node:fs';
import { CorruptObject } from '../../base/errors.ts';
import { now } from '../../base/time/clock.ts';
import type { Range } from '../content.ts';
import { FileStream } from '../disk/file.ts';
import type { Body } from '../reader.ts';

/** What changes when somebody touches a file. */
export type FileMark = Pick<Stats, 'size' | 'ino' | 'mtimeMs' | 'ctimeMs'>;

/** What this process knows of a copy: its bytes were right when the file bore this mark. */
export interface KnownCopy {
  readonly mark: FileMark;
  /** When a reader last found every block right; monotonic. */
  checkedAt: number;
  /** For dropping the one that was used longest ago; of the wall clock, as the times of files are. */
  usedAt: number;
}

/** So long a copy that nobody has touched is not checked again. A disk that rots silently is found out after it. */
const TRUST_MS = 10_000;
/** The system's times of files go on in ticks of up to 10 ms: within one, a change would not show. */
const SETTLED_MS = 100;

export function isSameFile(a: FileMark, b: FileMark): boolean {
  return a.ino === b.ino && a.size === b.size && a.mtimeMs === b.mtimeMs && a.ctimeMs === b.ctimeMs;
}

/** A copy that was opened: it stays readable whatever becomes of its name. */
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

  /** A part of it. To be called once; the stream closes the file. */
  read(range: Range): Body {
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

  /** Closes it, unless it is being read. */
  async close(): Promise<void> {
    if (!this.#isTaken) await this.#file.close();
  }

  /** Before a piece that nobody checks is passed on: nobody has touched the file. That its name was taken away is no harm. */
  #look(file: fs.FileHandle): void {
    // The system has it at hand; another thread would cost a hundred times as much.
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
