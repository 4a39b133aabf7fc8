import { Readable } from 'node:stream';
import type { PastVersion, WriteResult } from '../../files/index.ts';
import type { Effects } from '../auth/effects.ts';
import type { Principal } from '../auth/permission.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import type { Services } from '../services.ts';

/** A request for the bytes of a document, checked. */
interface BytesCall {
  readonly query: { readonly namespace: string | undefined; readonly id: string };
  readonly request: Request;
  readonly who: Principal;
  readonly services: Services;
  readonly effects: Effects;
}

interface ReadCall extends BytesCall {
  readonly query: BytesCall['query'] & { readonly version: number | undefined };
}

interface WriteCall extends BytesCall {
  readonly query: BytesCall['query'] & { readonly ifVersion: number | undefined; readonly sha256: string | undefined };
}

/** Another person wrote these bytes: a browser has to save them, whatever they are, and never to run them. */
const HARMLESS = { 'content-security-policy': "default-src 'none'; sandbox", 'cache-control': 'private, no-cache' };

/**
 * The bytes of a version. Its row is read first, and the bytes by its number, so that headers and bytes are of one version. If
 * the bytes turn out to be damaged during the transfer, the connection breaks, and they are not passed on.
 */
export async function readFileBytes({ query, request, who, services, effects }: ReadCall): Promise<Response> {
  const { namespace = '', id } = query;
  const files = effects.files(namespace);
  const found = await services.files.stat(namespace, id, query.version);
  const headers = headersOf(found, mayKnowType(who));
  if (isKnown(request.headers.get('if-none-match'), headers['etag']))
    return new Response(null, { status: 304, headers });
  const range = rangeOf(request, found);
  const sizes =
    range === undefined ? lengthOf(found.size) : lengthOf(range.end - range.start, { ...range, of: found.size });
  const status = range === undefined ? 200 : 206;
  if (request.method === 'HEAD') return new Response(null, { status, headers: { ...headers, ...sizes } });
  const { stream } = await files.read(id, { version: found.version, ...(range && { range }) });
  return new Response(Readable.toWeb(stream) as ReadableStream, { status, headers: { ...headers, ...sizes } });
}

/** Passes the body on to the content store while it arrives. @throws HttpRefusal  it is too long, or broke off */
export async function writeFileBytes({ query, request, who, services, effects }: WriteCall): Promise<WriteResult> {
  const { namespace = '', id, ifVersion, sha256 } = query;
  const files = effects.files(namespace);
  const { uploadLimit } = services.settings;
  const size = announced(request);
  if (size !== undefined && size > uploadLimit) throw tooLong(uploadLimit);
  const contentType = request.headers.get('content-type')?.slice(0, 255);
  return files.write(id, limited(request, uploadLimit), {
    author: who.name,
    ...(size !== undefined && { size }),
    ...(contentType && { contentType }),
    ...(ifVersion !== undefined && { ifVersion }),
    ...(sha256 !== undefined && { sha256 }),
  });
}

function headersOf(
  { id, sha256, contentType, writtenAt, version }: PastVersion,
  hasType: boolean,
): Record<string, string> {
  const type = contentType !== null && TYPE.test(contentType) ? contentType : UNKNOWN;
  return {
    ...HARMLESS,
    'content-type': hasType ? type : UNKNOWN,
    'x-pawl-content-type': type,
    'content-disposition': `attachment; filename="${plain(id)}"; filename*=UTF-8''${encoded(id)}`,
    'accept-ranges': 'bytes',
    etag: `"${sha256}"`,
    'last-modified': writtenAt.toUTCString(),
    'x-pawl-version': String(version),
  };
}

const UNKNOWN = 'application/octet-stream';

/**
 * A page of ours could use these bytes as its script, and a browser would then send its cookie; but it would send no token, which
 * is for programs. So a caller with a cookie, or without credentials, gets a type that no browser runs.
 */
function mayKnowType({ by }: Principal): boolean {
  return by === 'token' || by === 'jwt';
}

/** A type in the form of RFC 9110, with characters that a header may contain. */
const TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+(\s*;[\x20-\x7e]*)?$/;

function lastPart(id: string): string {
  return id.split('/').findLast((part) => part !== '') ?? 'file';
}

/**
 * The last part of an id for clients that do not read RFC 8187, such as curl: each character that is no plain part of a name, or
 * hides the file, becomes "_".
 */
function plain(id: string): string {
  return lastPart(id).replaceAll(/^\.|[^\x20-\x7e]|["\\%]/gu, '_');
}

/** The last part of an id, in the form of RFC 8187. */
function encoded(id: string): string {
  return encodeURIComponent(lastPart(id)).replaceAll(
    /['()*]/g,
    (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

function lengthOf(bytes: number, of?: { readonly start: number; readonly end: number; readonly of: number }): object {
  const length = { 'content-length': String(bytes) };
  return of === undefined ? length : { ...length, 'content-range': `bytes ${of.start}-${of.end - 1}/${of.of}` };
}

function isKnown(given: string | null, etag: string | undefined): boolean {
  return given !== null && given.split(',').some((one) => one.trim().replace(/^W\//, '') === etag);
}

/**
 * One range. Any other header is ignored, as RFC 9110 allows, and all bytes are returned.
 * @throws HttpRefusal  range_not_satisfiable
 */
function rangeOf(request: Request, { size, sha256 }: PastVersion): { start: number; end: number } | undefined {
  const [, first = '', last = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(request.headers.get('range') ?? '') ?? [];
  const condition = request.headers.get('if-range');
  if ((first === '' && last === '') || (condition !== null && condition !== `"${sha256}"`)) return undefined;
  const start = first === '' ? Math.max(0, size - Number(last)) : Number(first);
  const end = first === '' || last === '' ? size : Math.min(size, Number(last) + 1);
  if (first !== '' && last !== '' && Number(last) < start) return undefined;
  if (start < end) return { start, end };
  throw new HttpRefusal('range_not_satisfiable', `there are ${size} bytes`, { 'content-range': `bytes */${size}` });
}

function announced({ headers }: Request): number | undefined {
  const length = headers.get('content-length');
  return length !== null && /^\d{1,15}$/.test(length) ? Number(length) : undefined;
}

async function* limited({ body }: Request, most: number): AsyncGenerator<Uint8Array, void> {
  const reader = body?.getReader();
  let size = 0;
  try {
    for (;;) {
      const chunk = await reader?.read().catch(() => {
        throw new HttpRefusal('body_incomplete', `the body broke off after ${size} bytes; nothing was changed`);
      });
      if (chunk === undefined || chunk.done) return;
      size += chunk.value.length;
      if (size > most) throw tooLong(most);
      yield chunk.value;
    }
  } finally {
    // An unwanted body is not read; if the cancellation fails, nothing is lost.
    void reader?.cancel().catch(() => {});
  }
}

function tooLong(most: number): HttpRefusal {
  return new HttpRefusal('body_too_large', `the body is longer than ${most} bytes`);
}
