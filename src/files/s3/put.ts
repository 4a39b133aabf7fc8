import { Readable } from 'node:stream';
import { crc32 } from 'node:zlib';
import { Conflict, NotFound } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import type { PutCall } from '../content.ts';
import { numberOf, type S3Api, textOf } from './api.ts';
import { withRetries } from './retry.ts';
import { abortUpload, abortUploads } from './uploads.ts';

/** S3 requires parts of at least 5 MiB, and at most 10,000 of them: 78 GiB. */
const PART_BYTES = 8 << 20;
/** Up to this many parts, 16 MiB, an object is one request. A larger request would be too much to send again after a failure. */
const WHOLE_PARTS = 2;
/** Parts under way at the same time. Together with the part that is being filled, they are the memory of an upload. */
const LANES = 2;

/** Bytes of an object that are sent in one request. They stay in the chunks of the source: joining them would be a copy. */
interface Part {
  readonly chunks: readonly Buffer[];
  readonly size: number;
}

/** Writes one object. A request without a certain outcome is sent again: no other writer uses this name. */
export async function putObject(api: S3Api, key: string, chunks: AsyncIterable<Buffer>, call: PutCall): Promise<void> {
  const source = new Parts(chunks);
  const first: Part[] = [];
  while (first.length <= WHOLE_PARTS) {
    const part = await source.next();
    if (part === undefined) return putWhole(api, key, first, call);
    first.push(part);
  }
  await new Multipart(api, key, call).run(first, source);
}

async function putWhole(api: S3Api, key: string, parts: readonly Part[], call: PutCall): Promise<void> {
  const size = parts.reduce((sum, part) => sum + part.size, 0);
  const chunks = parts.flatMap((part) => part.chunks);
  const payload = call.sha256();
  const ChecksumSHA256 = Buffer.from(payload, 'hex').toString('base64');
  const input = { Bucket: api.bucket, Key: key, ContentLength: size, IfNoneMatch: '*', ChecksumSHA256 };
  if (faults.armed) await faults.reach('files.mid_upload');
  await withRetries(call.signal, async (attempt) => {
    const request = api.send('PutObject', { ...input, Body: toBody(chunks) }, { signal: call.signal, payload });
    await call.within(size, request).catch(async (error: unknown) => {
      if (attempt === 1 || !(await isThere(api, key, size, call, error))) throw error;
    });
  });
}

/** A new body for each request, since a stream cannot be read twice. */
function toBody(chunks: readonly Buffer[]): Buffer | Readable {
  if (chunks.length > 1) return Readable.from(chunks, { objectMode: false });
  return chunks[0] ?? Buffer.alloc(0);
}

/**
 * The store refuses a request because the object exists, or because its upload is gone: an earlier request, whose answer was
 * lost, has done the work.
 */
async function isThere(api: S3Api, key: string, size: number, call: PutCall, error: unknown): Promise<boolean> {
  if (!(error instanceof Conflict || error instanceof NotFound)) return false;
  const head = await call.within(0, api.send('HeadObject', { Bucket: api.bucket, Key: key }, { signal: call.signal }));
  return numberOf(head, 'ContentLength') === size;
}

interface SentPart {
  readonly PartNumber: number;
  readonly ETag: string | undefined;
  readonly ChecksumCRC32: string;
}

/** An object that is sent in parts. The id of the upload is in the database before the first part is sent. */
class Multipart {
  readonly #api: S3Api;
  readonly #where: { readonly Bucket: string; readonly Key: string };
  readonly #call: PutCall;
  readonly #sent: SentPart[] = [];
  #upload = '';
  /** More than one: an answer was lost, and the store may have another upload of this key. */
  #beginnings = 1;
  #number = 0;
  #size = 0;

  constructor(api: S3Api, key: string, call: PutCall) {
    this.#api = api;
    this.#where = { Bucket: api.bucket, Key: key };
    this.#call = call;
  }

  async run(first: readonly Part[], rest: Parts): Promise<void> {
    const { signal, onUpload, within } = this.#call;
    await withRetries(signal, async (attempt) => {
      this.#beginnings = attempt;
      const input = { ...this.#where, ChecksumAlgorithm: 'CRC32' };
      const created = await within(0, this.#api.send('CreateMultipartUpload', input, { signal }));
      this.#upload = textOf(created, 'UploadId') ?? '';
    });
    try {
      await onUpload(this.#upload);
      await this.#sendAll(first, rest);
      await this.#complete();
      if (this.#beginnings > 1) await this.#abortOthers();
    } catch (error) {
      await this.#abort();
      throw error;
    }
  }

  async #sendAll(first: readonly Part[], rest: Parts): Promise<void> {
    const underWay = new Set<Promise<void>>();
    let failure: { readonly error: unknown } | undefined;
    const start = async (part: Part): Promise<void> => {
      if (underWay.size >= LANES) await Promise.race(underWay);
      if (failure !== undefined) throw failure.error;
      if (faults.armed) await faults.reach('files.mid_upload');
      this.#number += 1;
      const sending: Promise<void> = this.#send(this.#number, part)
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => underWay.delete(sending));
      underWay.add(sending);
    };
    for (const part of first) await start(part);
    for (let part = await rest.next(); part !== undefined; part = await rest.next()) await start(part);
    await Promise.all(underWay);
    if (failure !== undefined) throw failure.error;
  }

  async #send(PartNumber: number, { chunks, size }: Part): Promise<void> {
    const { signal, within } = this.#call;
    const checksum = Buffer.alloc(4);
    checksum.writeUInt32BE(chunks.reduce((crc, chunk) => crc32(chunk, crc), 0));
    const ChecksumCRC32 = checksum.toString('base64');
    const part = { ...this.#where, UploadId: this.#upload, PartNumber, ContentLength: size, ChecksumCRC32 };
    await withRetries(signal, async () => {
      const input = { ...part, Body: toBody(chunks) };
      // The CRC checks the part; a signature over it would cost another SHA-256.
      const sending = this.#api.send('UploadPart', input, { signal, payload: 'UNSIGNED-PAYLOAD' });
      const output = await within(size * LANES, sending);
      this.#sent.push({ PartNumber, ETag: textOf(output, 'ETag'), ChecksumCRC32 });
      this.#size += size;
    });
  }

  async #complete(): Promise<void> {
    const { signal, within } = this.#call;
    const Parts = this.#sent.toSorted((a, b) => a.PartNumber - b.PartNumber);
    const input = { ...this.#where, UploadId: this.#upload, MultipartUpload: { Parts }, IfNoneMatch: '*' };
    await withRetries(signal, async (attempt) => {
      const completing = this.#api.send('CompleteMultipartUpload', input, { signal });
      // The store may copy all of it before it answers.
      await within(this.#size / 16, completing).catch(async (error: unknown) => {
        if (attempt === 1 || !(await isThere(this.#api, this.#where.Key, this.#size, this.#call, error))) throw error;
      });
    });
  }

  /** The row has the upload's id: if this abort fails, the collector aborts the upload. */
  async #abort(): Promise<void> {
    const signal = AbortSignal.timeout(ABORT_MS);
    await abortUpload(this.#api, this.#where.Key, this.#upload, signal).catch(() => undefined);
  }

  /** The object is complete. Other uploads of its key are those whose answer was lost; they hold no bytes. */
  async #abortOthers(): Promise<void> {
    const { Key } = this.#where;
    const signal = AbortSignal.timeout(ABORT_MS);
    await abortUploads(this.#api, Key, (key) => key === Key, signal).catch(() => undefined);
  }
}

const ABORT_MS = 2000;

/** Groups chunks of any size into parts of one size, without copying them. */
class Parts {
  readonly #chunks: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);

  constructor(chunks: AsyncIterable<Buffer>) {
    this.#chunks = chunks[Symbol.asyncIterator]();
  }

  /** @returns undefined at the end */
  async next(): Promise<Part | undefined> {
    const chunks: Buffer[] = [];
    let size = 0;
    while (size < PART_BYTES) {
      if (this.#left.length === 0) {
        const { value, done } = await this.#chunks.next();
        if (done === true) break;
        this.#left = value;
      }
      const taken = this.#left.subarray(0, PART_BYTES - size);
      this.#left = this.#left.subarray(taken.length);
      chunks.push(taken);
      size += taken.length;
    }
    return size === 0 ? undefined : { chunks, size };
  }
}
