import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { crc32 } from 'node:zlib';
import { S3Refusal } from './refusal.ts';
import { header } from './signature.ts';

/** The body of a request: without the framing of aws-chunked, and checked by its checksums. @throws S3Refusal */
export async function readBody(request: IncomingMessage, isChecked: boolean): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const raw = Buffer.concat(chunks);
  const declared = request.headers['content-length'];
  if (declared !== undefined && Number(declared) !== raw.length) {
    throw new S3Refusal(400, 'IncompleteBody', `the body has ${raw.length} of ${declared} bytes`);
  }
  const payload = header(request, 'x-amz-content-sha256');
  const { body, trailers } = payload.startsWith('STREAMING-') ? unframe(raw) : { body: raw, trailers: {} };
  if (isChecked) checkSums(body, payload, { ...headersOf(request), ...trailers });
  return body;
}

/** Chunks of `<hex length>[;chunk-signature=…]\r\n<bytes>\r\n`, up to one of length 0, and then headers. */
function unframe(raw: Buffer): { body: Buffer; trailers: Record<string, string> } {
  const parts: Buffer[] = [];
  let at = 0;
  for (;;) {
    const end = raw.indexOf('\r\n', at);
    const length = Number.parseInt(raw.toString('latin1', at, Math.max(at, end)), 16);
    if (end < 0 || Number.isNaN(length))
      throw new S3Refusal(400, 'IncompleteBody', 'the chunks of the body do not fit');
    at = end + 2;
    if (length === 0) break;
    parts.push(raw.subarray(at, at + length));
    at += length + 2;
  }
  const lines = raw.toString('latin1', at).split('\r\n');
  const trailers = lines
    .filter((line) => line.includes(':'))
    .map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 1).trim()]);
  return { body: Buffer.concat(parts), trailers: Object.fromEntries(trailers) };
}

function headersOf(request: IncomingMessage): Record<string, string> {
  return Object.fromEntries(Object.keys(request.headers).map((name) => [name, header(request, name)]));
}

const SUMS: Readonly<Record<string, (body: Buffer) => string>> = {
  'content-md5': (body) => createHash('md5').update(body).digest('base64'),
  'x-amz-checksum-sha1': (body) => createHash('sha1').update(body).digest('base64'),
  'x-amz-checksum-crc32': crc32Of,
};

/** In the form of S3. */
export function crc32Of(body: Buffer): string {
  const sum = Buffer.alloc(4);
  sum.writeUInt32BE(crc32(body));
  return sum.toString('base64');
}

function checkSums(body: Buffer, payload: string, given: Readonly<Record<string, string>>): void {
  const sha256 = given['x-amz-checksum-sha256'];
  const isSigned = /^[0-9a-f]{64}$/.test(payload);
  // Computed once for both checks, because no other check costs as much.
  const hash = isSigned || sha256 !== undefined ? createHash('sha256').update(body).digest() : undefined;
  if (isSigned && payload !== hash?.toString('hex')) {
    throw new S3Refusal(400, 'XAmzContentSHA256Mismatch', 'the body is not the one that was signed');
  }
  if (sha256 !== undefined) checkSum('x-amz-checksum-sha256', sha256, hash?.toString('base64'));
  for (const [name, reckon] of Object.entries(SUMS)) {
    const sum = given[name];
    if (sum !== undefined) checkSum(name, sum, reckon(body));
  }
}

function checkSum(name: string, given: string, reckoned: string | undefined): void {
  if (given === reckoned) return;
  const message = `${name} says ${given}, and the body has ${reckoned}: a checksum that does not fit`;
  throw new S3Refusal(400, 'BadDigest', message);
}
