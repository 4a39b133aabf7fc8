import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { S3Refusal } from './refusal.ts';

/** The credentials of the store's clients. */
export interface Keys {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
}

const AUTHORIZATION =
  /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/;
const MOST_SKEW_MS = 15 * 60_000;

/** Checks the signature of a request (AWS Signature Version 4, in the header). @throws S3Refusal */
export function checkSignature(request: IncomingMessage, keys: Keys): void {
  const match = AUTHORIZATION.exec(request.headers.authorization ?? '');
  if (match === null) throw new S3Refusal(403, 'AccessDenied', 'the request is not signed as it has to be');
  const [, id = '', day = '', region = '', signedHeaders = '', signature = ''] = match;
  if (id !== keys.accessKeyId) throw new S3Refusal(403, 'InvalidAccessKeyId', `there is no access key ${id}`);
  const at = header(request, 'x-amz-date');
  if (!at.startsWith(day) || Math.abs(Date.now() - readDate(at)) > MOST_SKEW_MS) {
    throw new S3Refusal(403, 'RequestTimeTooSkewed', `the request says that it is ${at}`);
  }
  const scope = `${day}/${region}/s3/aws4_request`;
  const text = ['AWS4-HMAC-SHA256', at, scope, sha256(canonical(request, signedHeaders))].join('\n');
  const key = ['s3', 'aws4_request'].reduce(
    (secret: Buffer, part) => hmac(secret, part),
    hmac(hmac(Buffer.from(`AWS4${keys.secretAccessKey}`), day), region),
  );
  const expected = hmac(key, text);
  if (!timingSafeEqual(expected, Buffer.from(signature, 'hex'))) {
    throw new S3Refusal(403, 'SignatureDoesNotMatch', 'the signature is not that of this request and this key');
  }
}

function canonical(request: IncomingMessage, signedHeaders: string): string {
  const [path = '', query = ''] = (request.url ?? '').split('?');
  const parameters = query
    .split('&')
    .filter((each) => each !== '')
    .map((each) => (each.includes('=') ? each : `${each}=`))
    .sort();
  const names = signedHeaders.split(';');
  const headers = names.map((name) => `${name}:${header(request, name).trim().replaceAll(/ +/g, ' ')}\n`).join('');
  return [
    request.method,
    path,
    parameters.join('&'),
    headers,
    signedHeaders,
    header(request, 'x-amz-content-sha256'),
  ].join('\n');
}

export function header(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return Array.isArray(value) ? value.join(',') : (value ?? '');
}

function readDate(text: string): number {
  const [, y, mo, d, h, mi, s] = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/.exec(text) ?? [];
  return Date.parse(`${y}-${mo}-${d}T${h}:${mi}:${s}Z`);
}

function hmac(key: Buffer, text: string): Buffer {
  return createHmac('sha256', key).update(text).digest();
}

function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}
