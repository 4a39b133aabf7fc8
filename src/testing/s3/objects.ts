import { createHash, randomUUID } from 'node:crypto';
import { crc32Of } from './body.ts';
import { S3Refusal } from './refusal.ts';

/** An object in the store's memory. */
export interface S3Object {
  readonly body: Buffer;
  readonly etag: string;
  readonly modifiedAt: Date;
}

/** The conditions of a write: the headers of that name. */
export interface Conditions {
  readonly ifMatch: string | undefined;
  readonly ifNoneMatch: string | undefined;
}

interface MultipartUpload {
  readonly key: string;
  readonly begunAt: Date;
  readonly parts: Map<number, { readonly body: Buffer; readonly etag: string }>;
}

const SMALLEST_PART = 5 << 20;

/** One bucket, in memory, with the semantics of S3. */
export class S3Objects {
  readonly all: Map<string, S3Object> = new Map();
  readonly uploads: Map<string, MultipartUpload> = new Map();

  get(key: string): S3Object {
    const object = this.all.get(key);
    if (object === undefined) throw new S3Refusal(404, 'NoSuchKey', 'the specified key does not exist');
    return object;
  }

  put(key: string, body: Buffer, conditions?: Conditions): S3Object {
    this.#check(key, conditions);
    const object = { body, etag: `"${md5(body)}"`, modifiedAt: new Date() };
    this.all.set(key, object);
    return object;
  }

  delete(key: string): void {
    this.all.delete(key);
  }

  /** Keys in order, after one of them. */
  list(prefix: string, after: string, most: number): { keys: string[]; isMore: boolean } {
    const keys = [...this.all.keys()].filter((key) => key.startsWith(prefix) && key > after).sort();
    return { keys: keys.slice(0, most), isMore: keys.length > most };
  }

  begin(key: string): string {
    const id = randomUUID();
    this.uploads.set(id, { key, begunAt: new Date(), parts: new Map() });
    return id;
  }

  putPart(key: string, id: string, number: number, body: Buffer): string {
    const etag = `"${md5(body)}"`;
    this.#upload(key, id).parts.set(number, { body, etag });
    return etag;
  }

  abort(key: string, id: string): void {
    this.#upload(key, id);
    this.uploads.delete(id);
  }

  complete(
    key: string,
    id: string,
    named: readonly { number: number; etag: string; crc32: string | undefined }[],
    conditions?: Conditions,
  ): S3Object {
    const { parts } = this.#upload(key, id);
    this.#check(key, conditions);
    if (named.length === 0) throw new S3Refusal(400, 'MalformedXML', 'no part is named');
    const bodies = named.map(({ number, etag, crc32 }, index) => {
      const part = parts.get(number);
      const isWrong = part === undefined || part.etag !== etag || (crc32 !== undefined && crc32 !== crc32Of(part.body));
      if (isWrong) throw new S3Refusal(400, 'InvalidPart', `part ${number} is not there, or another one`);
      if (number <= (named[index - 1]?.number ?? 0)) {
        throw new S3Refusal(400, 'InvalidPartOrder', 'the parts are not in order');
      }
      if (index < named.length - 1 && part.body.length < SMALLEST_PART) {
        throw new S3Refusal(400, 'EntityTooSmall', `part ${number} has less than 5 MiB`);
      }
      return part;
    });
    const body = Buffer.concat(bodies.map((part) => part.body));
    const sums = Buffer.concat(bodies.map((part) => createHash('md5').update(part.body).digest()));
    const object = { body, etag: `"${md5(sums)}-${bodies.length}"`, modifiedAt: new Date() };
    this.all.set(key, object);
    this.uploads.delete(id);
    return object;
  }

  #upload(key: string, id: string): MultipartUpload {
    const upload = this.uploads.get(id);
    if (upload?.key === key) return upload;
    throw new S3Refusal(404, 'NoSuchUpload', 'there is no such upload; it may have been aborted or completed');
  }

  #check(key: string, { ifMatch, ifNoneMatch }: Conditions = { ifMatch: undefined, ifNoneMatch: undefined }): void {
    const there = this.all.get(key);
    const isRefused =
      (ifNoneMatch !== undefined && there !== undefined && (ifNoneMatch === '*' || ifNoneMatch === there.etag)) ||
      (ifMatch !== undefined && there !== undefined && ifMatch !== there.etag);
    if (isRefused) throw new S3Refusal(412, 'PreconditionFailed', 'a condition of the request did not hold');
    if (ifMatch !== undefined && there === undefined)
      throw new S3Refusal(404, 'NoSuchKey', 'there is nothing to match');
  }
}

function md5(body: Buffer): string {
  return createHash('md5').update(body).digest('hex');
}
