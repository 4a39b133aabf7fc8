import { CorruptObject, NotFound } from '../../base/errors.ts';
import { listOf, type S3Api, textOf } from './api.ts';
import { withRetries } from './retry.ts';

/** Aborts an upload in parts. An upload that does not exist is no error. */
export async function abortUpload(api: S3Api, Key: string, UploadId: string, signal: AbortSignal): Promise<void> {
  const input = { Bucket: api.bucket, Key, UploadId };
  await withRetries(signal, () => api.send('AbortMultipartUpload', input, { signal })).catch((error: unknown) => {
    if (!(error instanceof NotFound || error instanceof CorruptObject)) throw error;
  });
}

/** Aborts all uploads in parts whose key has this prefix, also those whose ids are not in the database. */
export async function abortUploads(
  api: S3Api,
  Prefix: string,
  isMeant: (key: string) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const input = { Bucket: api.bucket, Prefix };
  const output = await withRetries(signal, () => api.send('ListMultipartUploads', input, { signal }));
  for (const each of listOf(output, 'Uploads')) {
    const key = textOf(each, 'Key') ?? '';
    if (isMeant(key)) await abortUpload(api, key, textOf(each, 'UploadId') ?? '', signal);
  }
}
