import { createHash } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { CorruptObject } from '../base/errors.ts';
import type { Range } from './content.ts';
import { BLOCK_BYTES, checkOf, type Fingerprint } from './digest.ts';

/** The whole blocks around a range. */
export function blocksAround(range: Range, size: number): Range {
  const start = Math.floor(range.start / BLOCK_BYTES) * BLOCK_BYTES;
  return { start, end: Math.min(Math.ceil(range.end / BLOCK_BYTES) * BLOCK_BYTES, size) };
}

/**
 * How closely bytes are checked. `hash`: each block, and the SHA-256 of the whole if all of it is read. `blocks`: each block.
 * `length`: only the length, since the bytes were checked elsewhere.
 */
export type CheckLevel = 'hash' | 'blocks' | 'length';

/**
 * Passes on the bytes of an object: each block after its check, the last one after the check of the whole. Wrong bytes are
 * never passed on.
 * @param range  the part of the object that the chunks are: whole blocks
 * @throws CorruptObject
 */
export async function* verified(
  chunks: AsyncIterable<Buffer>,
  print: Fingerprint,
  range: Range,
  check: CheckLevel,
): AsyncGenerator<Buffer, void> {
  if (check === 'length') return yield* measured(chunks, range);
  const { start, end } = range;
  const hash = check === 'hash' && start === 0 && end === print.size ? createHash('sha256') : undefined;
  let held: Buffer[] = [];
  let at = start;
  let crc = 0;
  for await (const chunk of chunks) {
    hash?.update(chunk);
    if (at + chunk.length > end) throw damaged('long', `more than its ${end - start} bytes`);
    for (let from = 0; from < chunk.length; ) {
      const room = Math.min(BLOCK_BYTES - (at % BLOCK_BYTES), end - at);
      const part = chunk.subarray(from, from + room);
      crc = crc32(part, crc);
      held.push(part);
      at += part.length;
      from += part.length;
      if (at % BLOCK_BYTES !== 0 && at !== end) continue;
      if (crc !== checkOf(print.checks, Math.ceil(at / BLOCK_BYTES) - 1))
        throw damaged('changed', `other bytes before ${at}`);
      crc = 0;
      // The last block is passed on after the end of the transfer and the check of the hash.
      if (at === end) break;
      yield* held;
      held = [];
    }
  }
  if (at < end) throw damaged('short', `only ${at - start} of ${end - start} bytes`);
  if (hash !== undefined && hash.digest('hex') !== print.sha256)
    throw damaged('changed', 'other bytes than its SHA-256 says');
  yield* held;
}

async function* measured(chunks: AsyncIterable<Buffer>, { start, end }: Range): AsyncGenerator<Buffer, void> {
  let at = start;
  for await (const chunk of chunks) {
    at += chunk.length;
    yield chunk;
  }
  if (at < end) throw damaged('short', `only ${at - start} of ${end - start} bytes`);
}

/** Cuts a range out of the blocks around it. */
export async function* cut(chunks: AsyncIterable<Buffer>, blocks: Range, range: Range): AsyncGenerator<Buffer, void> {
  let at = blocks.start;
  for await (const chunk of chunks) {
    const part = chunk.subarray(Math.max(0, range.start - at), Math.max(0, range.end - at));
    at += chunk.length;
    if (part.length > 0) yield part;
  }
}

function damaged(damage: CorruptObject['damage'], what: string): CorruptObject {
  return new CorruptObject(`the object in the store has ${what}`, { damage });
}
