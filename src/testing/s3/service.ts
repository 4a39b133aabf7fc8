import type { IncomingMessage } from 'node:http';
import { escapeHtml } from '../../base/escape-html.ts';
import { readBody } from './body.ts';
import { type Conditions, S3Objects } from './objects.ts';
import { S3Refusal } from './refusal.ts';
import { checkSignature, header, type Keys } from './signature.ts';

/** A parsed request. */
export interface S3Request {
  readonly operation: string;
  readonly key: string;
  readonly query: URLSearchParams;
  readonly message: IncomingMessage;
}

/** An answer. */
export interface S3Answer {
  readonly status: number;
  readonly headers: Record<string, string>;
  readonly body: Buffer;
}

export interface S3ServiceOptions {
  readonly bucket: string;
  readonly keys: Keys;
  /** True: the store ignores If-None-Match and If-Match. */
  readonly ignoreConditions: boolean;
  /** True: the store ignores checksums. */
  readonly ignoreChecksums: boolean;
}

/** The part of S3 that clients of documents use, on objects in memory. */
export class S3Service {
  readonly objects: S3Objects = new S3Objects();
  readonly #options: S3ServiceOptions;

  constructor(options: S3ServiceOptions) {
    this.#options = options;
  }

  /** Parses a request by its method, path and parameters. */
  read(message: IncomingMessage): S3Request {
    const url = new URL(message.url ?? '/', 'http://store');
    const [, bucket = '', ...rest] = url.pathname.split('/');
    const key = rest.map(decodeURIComponent).join('/');
    const has = (name: string): boolean => url.searchParams.has(name);
    const operation = operationOf(message, key, has);
    return {
      operation: bucket === this.#options.bucket ? operation : 'NoSuchBucket',
      key,
      query: url.searchParams,
      message,
    };
  }

  /** Reads the whole body first, so that a request which breaks off in the middle has no effect. @throws S3Refusal */
  async body({ message }: S3Request): Promise<Buffer> {
    checkSignature(message, this.#options.keys);
    return readBody(message, !this.#options.ignoreChecksums);
  }

  /** @throws S3Refusal */
  perform({ operation, key, query, message }: S3Request, body: Buffer): S3Answer {
    const { objects } = this;
    const upload = query.get('uploadId') ?? '';
    const conditions = this.#options.ignoreConditions ? undefined : conditionsOf(message);
    switch (operation) {
      case 'PutObject':
        return tagged(objects.put(key, body, conditions).etag);
      case 'CopyObject': {
        const source = decodeURIComponent(header(message, 'x-amz-copy-source')).replace(/^\//, '');
        const from = objects.get(source.slice(source.indexOf('/') + 1));
        return xml(
          `<CopyObjectResult><ETag>${escapeHtml(objects.put(key, from.body, conditions).etag)}</ETag></CopyObjectResult>`,
        );
      }
      case 'GetObject':
      case 'HeadObject':
        return this.#get(key, message, operation === 'HeadObject');
      case 'DeleteObject':
        objects.delete(key);
        return empty(204);
      case 'ListObjectsV2':
        return this.#list(query);
      case 'CreateMultipartUpload':
        return xml(
          `<InitiateMultipartUploadResult><Bucket>${this.#options.bucket}</Bucket><Key>${escapeHtml(key)}</Key>` +
            `<UploadId>${objects.begin(key)}</UploadId></InitiateMultipartUploadResult>`,
        );
      case 'UploadPart':
        return tagged(objects.putPart(key, upload, Number(query.get('partNumber')), body));
      case 'CompleteMultipartUpload': {
        const { etag } = objects.complete(key, upload, readParts(body), conditions);
        return xml(
          `<CompleteMultipartUploadResult><Key>${escapeHtml(key)}</Key><ETag>${escapeHtml(etag)}</ETag></CompleteMultipartUploadResult>`,
        );
      }
      case 'AbortMultipartUpload':
        objects.abort(key, upload);
        return empty(204);
      case 'ListMultipartUploads':
        return this.#uploads(query);
      case 'NoSuchBucket':
        throw new S3Refusal(404, 'NoSuchBucket', 'the specified bucket does not exist');
      default:
        throw new S3Refusal(501, 'NotImplemented', `this store does not know ${operation}`);
    }
  }

  #get(key: string, message: IncomingMessage, isHead: boolean): S3Answer {
    const { body, etag, modifiedAt } = this.objects.get(key);
    const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(header(message, 'range')) ?? [];
    const headers = { etag, 'last-modified': modifiedAt.toUTCString(), 'accept-ranges': 'bytes' };
    if (from === undefined) {
      return {
        status: 200,
        headers: { ...headers, 'content-length': String(body.length) },
        body: isHead ? NOTHING : body,
      };
    }
    const start = Number(from);
    const end = to === '' || to === undefined ? body.length : Math.min(Number(to) + 1, body.length);
    if (start >= body.length) throw new S3Refusal(416, 'InvalidRange', 'the range cannot be satisfied');
    const range = {
      'content-range': `bytes ${start}-${end - 1}/${body.length}`,
      'content-length': String(end - start),
    };
    return { status: 206, headers: { ...headers, ...range }, body: isHead ? NOTHING : body.subarray(start, end) };
  }

  #list(query: URLSearchParams): S3Answer {
    const after = query.get('continuation-token') ?? query.get('start-after') ?? '';
    const { keys, isMore } = this.objects.list(query.get('prefix') ?? '', after, Number(query.get('max-keys') ?? 1000));
    const contents = keys.map((key) => {
      const { body, etag, modifiedAt } = this.objects.get(key);
      return (
        `<Contents><Key>${escapeHtml(key)}</Key><Size>${body.length}</Size><ETag>${escapeHtml(etag)}</ETag>` +
        `<LastModified>${modifiedAt.toISOString()}</LastModified></Contents>`
      );
    });
    const next = isMore ? `<NextContinuationToken>${escapeHtml(keys.at(-1) ?? '')}</NextContinuationToken>` : '';
    return xml(
      `<ListBucketResult><KeyCount>${keys.length}</KeyCount><IsTruncated>${isMore}</IsTruncated>${next}${contents.join('')}</ListBucketResult>`,
    );
  }

  #uploads(query: URLSearchParams): S3Answer {
    const prefix = query.get('prefix') ?? '';
    const uploads = [...this.objects.uploads]
      .filter(([, { key }]) => key.startsWith(prefix))
      .map(
        ([id, { key, begunAt }]) =>
          `<Upload><Key>${escapeHtml(key)}</Key><UploadId>${id}</UploadId><Initiated>${begunAt.toISOString()}</Initiated></Upload>`,
      );
    return xml(
      `<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>${uploads.join('')}</ListMultipartUploadsResult>`,
    );
  }
}

const NOTHING = Buffer.alloc(0);

function operationOf({ method, headers }: IncomingMessage, key: string, has: (name: string) => boolean): string {
  if (key === '') return method === 'GET' ? (has('uploads') ? 'ListMultipartUploads' : 'ListObjectsV2') : 'Unknown';
  switch (method ?? '') {
    case 'PUT':
      if (has('uploadId')) return 'UploadPart';
      return headers['x-amz-copy-source'] === undefined ? 'PutObject' : 'CopyObject';
    case 'GET':
      return 'GetObject';
    case 'HEAD':
      return 'HeadObject';
    case 'DELETE':
      return has('uploadId') ? 'AbortMultipartUpload' : 'DeleteObject';
    case 'POST':
      return has('uploads') ? 'CreateMultipartUpload' : 'CompleteMultipartUpload';
    default:
      return 'Unknown';
  }
}

function conditionsOf({ headers }: IncomingMessage): Conditions {
  return { ifMatch: headers['if-match'], ifNoneMatch: headers['if-none-match'] };
}

function readParts(body: Buffer): { number: number; etag: string; crc32: string | undefined }[] {
  return [...body.toString().matchAll(/<Part>([^]*?)<\/Part>/g)].map(([, part = '']) => ({
    number: Number(/<PartNumber>(\d+)</.exec(part)?.[1]),
    etag: (/<ETag>([^<]*)</.exec(part)?.[1] ?? '').replaceAll('&quot;', '"'),
    crc32: /<ChecksumCRC32>([^<]*)</.exec(part)?.[1],
  }));
}

function tagged(etag: string): S3Answer {
  return { status: 200, headers: { etag, 'content-length': '0' }, body: NOTHING };
}

function empty(status: number): S3Answer {
  return { status, headers: {}, body: NOTHING };
}

function xml(text: string): S3Answer {
  const body = Buffer.from(`<?xml version="1.0" encoding="UTF-8"?>${text}`);
  return { status: 200, headers: { 'content-type': 'application/xml', 'content-length': String(body.length) }, body };
}
