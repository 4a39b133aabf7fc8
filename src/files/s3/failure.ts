import { Conflict, CorruptObject, NotFound, PawlError, StoreRefused, StoreUnavailable } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';

/**
 * Translates an error of the SDK to one of Pawl's. NotFound: there is no such upload. Conflict: there is an object of that
 * name. CorruptObject: there is none.
 */
export function s3Failure(error: unknown, where: string): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  const status = statusOf(error);
  const message = `${where}: ${error.name}${status === undefined ? '' : ` (${status})`}: ${error.message}`;
  const cause = { cause: error };
  if (error.name === 'NoSuchUpload') return new NotFound(message, cause);
  if (error.name === 'NoSuchBucket') return new StoreRefused(`${message}; create the bucket`, cause);
  if (error.message.startsWith('Region is missing')) {
    return new StoreRefused(`${message}; give s3() a region, or set it in the environment`, cause);
  }
  if (CREDENTIALS_CODES.has(error.name)) {
    return new StoreRefused(`${message}; check the credentials of s3() or of the environment`, cause);
  }
  if (status === 404) return new CorruptObject(message, { ...cause, damage: 'missing' });
  if (status === 412) return new Conflict(message, cause);
  if (status === undefined || status >= 500 || PASSING.has(status) || PASSING_CODES.has(error.name)) {
    return new StoreUnavailable(message, cause);
  }
  const advice = status === 401 || status === 403 ? '; give the role the rights that docs/files.md lists' : '';
  return new StoreRefused(`${message}${advice}`, cause);
}

/** Statuses of passing failures: two requests in conflict, "slow down", and an unreadable answer (200, 206). */
const PASSING: ReadonlySet<number> = new Set([200, 206, 408, 409, 429]);
/**
 * Codes of passing failures. Bytes were damaged in transfer: the bytes in this process are right. Or this machine's clock is wrong:
 * the SDK has read the time in the answer, and signs the next request with it.
 */
const PASSING_CODES: ReadonlySet<string> = new Set([
  'RequestTimeTooSkewed',
  'BadDigest',
  'XAmzContentChecksumMismatch',
  'XAmzContentSHA256Mismatch',
  'RequestTimeout',
  'IncompleteBody',
]);

/** The SDK found no credentials, or the service does not accept those that it found. */
const CREDENTIALS_CODES: ReadonlySet<string> = new Set([
  'CredentialsProviderError',
  'InvalidAccessKeyId',
  'SignatureDoesNotMatch',
  'InvalidToken',
  'ExpiredToken',
  'ExpiredTokenException',
  'TokenRefreshRequired',
]);

function statusOf(error: Error): number | undefined {
  const metadata: unknown = Reflect.get(error, '$metadata');
  const status: unknown = isObject(metadata) ? metadata['httpStatusCode'] : undefined;
  return typeof status === 'number' ? status : undefined;
}
