import { randomUUID } from 'node:crypto';
import { addAbortSignal, Readable } from 'node:stream';
import { Conflict, CorruptObject, StoreRefused, StoreUnavailable } from '../../base/errors.ts';
import type { Content, ContentCall, DeleteCall, ListPage, Part, PutCall, StoreProbe } from '../content.ts';
import { listOf, numberOf, type S3Api, textOf } from './api.ts';
import { putObject } from './put.ts';
import { withRetries } from './retry.ts';
import { abortUpload, abortUploads } from './uploads.ts';

/** The most bytes that S3 copies in one request. */
const MOST_COPIED = 5 * 1024 ** 3;
const MARKERS = { marker: 'pawl-store.json', copy: 'pawl-store.copy.json' } as const;

/** A content store in a bucket. Objects are under `objects/`, everything else next to it. */
export class S3Content implements Content {
  readonly kind = 's3';
  readonly where: string;
  readonly #api: S3Api;

  constructor(api: S3Api, where: string) {
    this.#api = api;
    this.where = where;
  }

  put(name: string, chunks: AsyncIterable<Buffer>, call: PutCall): Promise<void> {
    return putObject(this.#api, this.#key(name), chunks, call);
  }

  async get(name: string, { start, end, isWhole }: Part, { signal }: ContentCall): Promise<Readable> {
    const range = isWhole ? {} : { Range: `bytes=${start}-${end - 1}` };
    const input = { ...this.#at(this.#key(name)), ...range };
    const output = await withRetries(signal, () => this.#api.send('GetObject', input, { signal }));
    const body = output['Body'];
    if (!(body instanceof Readable)) throw new StoreRefused(`${this.where} answered without a body`);
    if (!isWhole && output['ContentRange'] === undefined) {
      body.destroy();
      throw new StoreRefused(`${this.where} does not know ranges`);
    }
    return body;
  }

  size(name: string, { signal }: ContentCall): Promise<number | undefined> {
    return this.#size(this.#key(name), signal);
  }

  async copy(from: string, to: string, size: number, { signal }: ContentCall): Promise<boolean> {
    if (size > MOST_COPIED) return false;
    await this.#copy(this.#key(from), this.#key(to), signal);
    return true;
  }

  async delete(name: string, { upload, isUnfinished, signal }: DeleteCall): Promise<void> {
    const key = this.#key(name);
    if (upload !== undefined) await abortUpload(this.#api, key, upload, signal);
    // A process may have died after it began an upload and before the id was in the database: only the list has such an
    // upload.
    if (isUnfinished) await abortUploads(this.#api, key, (each) => each === key, signal);
    await withRetries(signal, () => this.#api.send('DeleteObject', this.#at(key), { signal })).catch(
      undefinedIfMissing,
    );
  }

  /** `from` is the last name of the page before: unlike a token of the service, it never expires. */
  async list(from: string | undefined, { signal }: ContentCall): Promise<ListPage> {
    const Prefix = this.#key('');
    const input = { Bucket: this.#api.bucket, Prefix, ...(from !== undefined && { StartAfter: this.#key(from) }) };
    const page = await withRetries(signal, () => this.#api.send('ListObjectsV2', input, { signal }));
    const all = listOf(page, 'Contents').map((each) => ({
      name: (textOf(each, 'Key') ?? '').slice(Prefix.length),
      size: numberOf(each, 'Size') ?? 0,
    }));
    const isMore = page['IsTruncated'] === true;
    if (isMore && from !== undefined && (all.at(-1)?.name ?? '') <= from) {
      throw new StoreRefused(`${this.where} does not support StartAfter: its list starts from the beginning again`);
    }
    // Web consoles make an empty object for the folder itself.
    return { entries: all.filter(({ name }) => name !== ''), next: isMore ? all.at(-1)?.name : undefined };
  }

  async quarantine(name: string, { signal }: ContentCall): Promise<boolean> {
    const key = this.#key(name);
    const wanted = `${this.#api.prefix}quarantine/${name}`;
    // An object of the same name that was moved earlier stays.
    const isTaken = (await this.#size(wanted, signal)) !== undefined;
    const to = isTaken ? `${wanted}.${randomUUID()}` : wanted;
    const there = await this.#copy(key, to, signal).then(() => true, undefinedIfMissing);
    if (there === true) await withRetries(signal, () => this.#api.send('DeleteObject', this.#at(key), { signal }));
    return there === true;
  }

  async readMarker(which: 'marker' | 'copy', { signal }: ContentCall): Promise<string | undefined> {
    const at = this.#at(this.#marker(which));
    const body = await withRetries(signal, async () => {
      const output = await this.#api.send('GetObject', at, { signal });
      return bodyOf(output['Body'], signal);
    }).catch(undefinedIfMissing);
    return body?.toString();
  }

  async writeMarker(text: string, ifAbsent: boolean, { signal }: ContentCall): Promise<void> {
    if (!ifAbsent) {
      await Promise.all([this.#putMarker('marker', text, {}, signal), this.#putMarker('copy', text, {}, signal)]);
      return;
    }
    try {
      await this.#putMarker('marker', text, { IfNoneMatch: '*' }, signal);
    } catch (error) {
      if (error instanceof Conflict) return;
      throw error;
    }
    await this.#putMarker('copy', text, {}, signal);
  }

  async probe({ signal }: ContentCall): Promise<StoreProbe> {
    const at = this.#at(`${this.#api.prefix}probe/${randomUUID()}`);
    const Body = Buffer.from(`pawl ${randomUUID()}`);
    const put = (how: object): Promise<unknown> => this.#api.send('PutObject', { ...at, Body, ...how }, { signal });
    try {
      await withRetries(signal, () => put({}));
      const kept = await this.#api.send('GetObject', at, { signal });
      if (!(await bodyOf(kept['Body'], signal)).equals(Body)) {
        throw new StoreRefused(`${this.where} stores other bytes than it receives; it cannot be used`);
      }
      return {
        ifNoneMatch: await isRefused(put({ IfNoneMatch: '*' })),
        ifMatch: await isRefused(put({ IfMatch: '"0123456789abcdef0123456789abcdef"' })),
        checksums: await isRefused(put({ ChecksumSHA256: Buffer.alloc(32).toString('base64') })),
        abort: await this.#knowsAbort(at, signal),
      };
    } finally {
      await this.#api.send('DeleteObject', at, { signal }).catch(() => undefined);
    }
  }

  /** This may abort the upload of a probe that is under way: no harm, because the probe expects its upload to be aborted. */
  async endProbes({ signal }: ContentCall): Promise<void> {
    await abortUploads(this.#api, `${this.#api.prefix}probe/`, () => true, signal);
  }

  stop(): void {
    this.#api.stop();
  }

  #marker(which: 'marker' | 'copy'): string {
    return `${this.#api.prefix}${MARKERS[which]}`;
  }

  async #putMarker(which: 'marker' | 'copy', text: string, condition: object, signal: AbortSignal): Promise<void> {
    const input = { ...this.#at(this.#marker(which)), Body: text, ContentType: 'application/json', ...condition };
    await withRetries(signal, () => this.#api.send('PutObject', input, { signal }));
  }

  #key(name: string): string {
    return `${this.#api.prefix}objects/${name}`;
  }

  #at(key: string): { Bucket: string; Key: string } {
    return { Bucket: this.#api.bucket, Key: key };
  }

  async #size(key: string, signal: AbortSignal): Promise<number | undefined> {
    const head = await withRetries(signal, () => this.#api.send('HeadObject', this.#at(key), { signal })).catch(
      undefinedIfMissing,
    );
    return head && numberOf(head, 'ContentLength');
  }

  async #copy(from: string, to: string, signal: AbortSignal): Promise<void> {
    const CopySource = `${this.#api.bucket}/${from.split('/').map(encodeURIComponent).join('/')}`;
    await withRetries(signal, () => this.#api.send('CopyObject', { ...this.#at(to), CopySource }, { signal }));
  }

  /** Whether the store refuses a part after an abort. */
  async #knowsAbort(at: { Bucket: string; Key: string }, signal: AbortSignal): Promise<boolean> {
    const created = await this.#api.send('CreateMultipartUpload', at, { signal });
    const UploadId = textOf(created, 'UploadId') ?? '';
    await abortUpload(this.#api, at.Key, UploadId, signal);
    return isRefused(
      this.#api.send('UploadPart', { ...at, UploadId, PartNumber: 1, Body: Buffer.from('x') }, { signal }),
    );
  }
}

/** Whether the store refuses the request. A passing failure is no refusal. */
async function isRefused(request: Promise<unknown>): Promise<boolean> {
  try {
    await request;
    return false;
  } catch (error) {
    // Damage in transfer counts as a passing failure; here the damage is made on purpose.
    if (error instanceof StoreUnavailable && !/checksum|digest/i.test(error.message)) throw error;
    return true;
  }
}

/** Reads all of a small body. @throws StoreUnavailable  the transfer broke off */
async function bodyOf(body: unknown, signal: AbortSignal): Promise<Buffer> {
  if (!(body instanceof Readable)) return Buffer.alloc(0);
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of addAbortSignal(signal, body)) chunks.push(chunk);
  } catch (error) {
    throw new StoreUnavailable(`the transfer broke off: ${String(error)}`, { cause: error });
  }
  return Buffer.concat(chunks);
}

function undefinedIfMissing(error: unknown): undefined {
  if (!(error instanceof CorruptObject)) throw error;
}
