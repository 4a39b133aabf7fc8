import { CorruptObject, NotFound } from '../../base/errors.ts';
import { listOf, type S3Api, textOf } from './api.ts';
import { withRetries } from './retry.ts';

/** Gives up an upload in parts. One that is not there is no error. */
export async function abortUpload(api: S3Api, Key: string, UploadId: string, signal: AbortSignal): Promise<void> {
  const input = { Bucket: api.bucket, Key, UploadId };
  await withRetries(signal, () => api.send('AbortMultipartUpload', input, { signal })).catch((error: unknown) => {
    if (!(error instanceof NotFound || error instanceof CorruptObject)) throw error;
  });
}

/** Gives up all uploads in parts of keys that begin so, also those whose beginning nobody was told of. */
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
