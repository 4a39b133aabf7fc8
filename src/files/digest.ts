import { createHash, type Hash } from 'node:crypto';
import { crc32 } from 'node:zlib';

/** The size of a block, which has a checksum of its own: a range is read and checked in whole blocks. */
export const BLOCK_BYTES: number = 1 << 20;

/** Size, hash and checksums of the bytes of a version. */
export interface Fingerprint {
  readonly size: number;
  /** In hex. */
  readonly sha256: string;
  /** CRC-32 of each block, four bytes each. */
  readonly checks: Buffer;
}

/**
 * Takes in bytes and computes their fingerprint. The SHA-256 identifies the content of a version. The CRCs cost half as much.
 * With them, a reader can check each block before it passes the block on, even if it does not read the rest.
 */
export class Digest {
  readonly #hash: Hash = createHash('sha256');
  readonly #checks: number[] = [];
  #crc = 0;
  #inBlock = 0;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  update(chunk: Buffer): void {
    this.#hash.update(chunk);
    this.#size += chunk.length;
    for (let from = 0; from < chunk.length; ) {
      const part = chunk.subarray(from, from + BLOCK_BYTES - this.#inBlock);
      this.#crc = crc32(part, this.#crc);
      this.#inBlock += part.length;
      from += part.length;
      if (this.#inBlock === BLOCK_BYTES) this.#endBlock();
    }
  }

  /** The hash of the bytes so far. */
  sha256(): string {
    return this.#hash.copy().digest('hex');
  }

  end(): Fingerprint {
    if (this.#inBlock > 0) this.#endBlock();
    const checks = Buffer.alloc(this.#checks.length * 4);
    for (const [index, crc] of this.#checks.entries()) checks.writeUInt32BE(crc, index * 4);
    return { size: this.#size, sha256: this.#hash.digest('hex'), checks };
  }

  #endBlock(): void {
    this.#checks.push(this.#crc);
    this.#crc = 0;
    this.#inBlock = 0;
  }
}

/** The stored checksum of one block; undefined past the end. */
export function checkOf(checks: Buffer, block: number): number | undefined {
  return block * 4 + 4 <= checks.length ? checks.readUInt32BE(block * 4) : undefined;
}
