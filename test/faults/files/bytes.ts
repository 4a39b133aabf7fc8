import { createCipheriv, createHash } from 'node:crypto';

/** Bytes of one operation only: they begin with its name, and do not repeat. */
export function bytesOf(op: string, size: number): Buffer {
  const key = createHash('sha256').update(op).digest();
  const bytes = createCipheriv('aes-128-ctr', key.subarray(0, 16), key.subarray(16)).update(Buffer.alloc(size));
  bytes.write(`${op} `);
  return bytes;
}

export function hashOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}
