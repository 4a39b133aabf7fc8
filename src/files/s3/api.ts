/** The requests that Pawl sends to a bucket: a policy has to allow them. */
export type S3Operation =
  | 'PutObject'
  | 'GetObject'
  | 'HeadObject'
  | 'DeleteObject'
  | 'CopyObject'
  | 'ListObjectsV2'
  | 'CreateMultipartUpload'
  | 'UploadPart'
  | 'CompleteMultipartUpload'
  | 'AbortMultipartUpload'
  | 'ListMultipartUploads';

/** The answer of the service. */
export type S3Output = Readonly<Record<string, unknown>>;

export interface S3SendOptions {
  readonly signal: AbortSignal;
  /** The SHA-256 of the body in hex, if it is known, or the mark of an unsigned body: it is then not computed again. */
  readonly payload?: string;
}

/** Sends one request to a bucket, once. */
export interface S3Api {
  readonly bucket: string;
  /** The prefix of all keys; empty, or with a slash at its end. */
  readonly prefix: string;
  /** @throws StoreUnavailable, StoreRefused, Conflict, CorruptObject */
  send(operation: S3Operation, input: object, options: S3SendOptions): Promise<S3Output>;
  stop(): void;
}

export function textOf(output: S3Output, field: string): string | undefined {
  const value = output[field];
  return typeof value === 'string' ? value : undefined;
}

export function numberOf(output: S3Output, field: string): number | undefined {
  const value = output[field];
  return typeof value === 'number' ? value : undefined;
}

/** The objects in a list of the answer. */
export function listOf(output: S3Output, field: string): readonly S3Output[] {
  const value = output[field];
  return Array.isArray(value) ? value : [];
}
