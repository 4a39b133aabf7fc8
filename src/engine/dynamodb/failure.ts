import {
  ConnectionFailed,
  DatabaseError,
  InvalidInput,
  NotSupported,
  PawlError,
  SchemaMismatch,
  Throttled,
} from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';

/** The call that failed. */
export interface FailedCall {
  readonly operation: string;
  readonly table: string;
}

/**
 * Turns an error of the SDK into one of Pawl's errors, which names operation, table and request, and has the SDK's error as
 * `cause`.
 */
export function failure(error: unknown, call: FailedCall): unknown {
  if (!(error instanceof Error) || error instanceof PawlError) return error;
  const where = `${call.operation} on table "${call.table}"${requestId(error)}`;
  const cause = { cause: error };
  if (THROTTLED.has(error.name) || cancelledBy(error, THROTTLED)) {
    return new Throttled(`${where} was refused for lack of capacity: ${error.message}`, cause);
  }
  if (error.name === 'ResourceNotFoundException') {
    return new SchemaMismatch(
      `${where}: there is no such table; create it with pawl migrate --dynamodb, engine.migrate() or your templates`,
      cause,
    );
  }
  if (error.name === 'ValidationException') {
    return new DatabaseError(`${where} was refused: ${error.message}`, cause);
  }
  if (FORBIDDEN.has(error.name)) {
    const advice = 'give the role the actions that docs/dynamodb.md lists';
    return new DatabaseError(`${where} is not allowed: ${error.message}; ${advice}`, cause);
  }
  if (error.name === 'UnknownOperationException') {
    return new NotSupported(`this service has no ${call.operation}, which sets of locks need`, cause);
  }
  if (error.name === 'CredentialsProviderError' || error.message.startsWith('Region is missing')) {
    return new InvalidInput(`${where} cannot be sent: ${error.message}; configure the DynamoDBClient`, cause);
  }
  if (isPassing(error)) {
    const isSent = !NEVER_SENT.has(codeOf(error));
    const what = isSent ? 'had no certain outcome' : 'could not be sent';
    return new ConnectionFailed(`${where} ${what}: ${error.message || error.name}`, {
      ...cause,
      outcome: isSent ? 'unknown' : 'nothing_written',
    });
  }
  return new DatabaseError(`${where} failed: ${error.name}: ${error.message}`, cause);
}

/** Errors that may pass without a correction. */
export type Transient = ConnectionFailed | Throttled;

/** True if the same call may succeed a moment later without a correction by a person. */
export function isTransient(error: unknown): error is Transient {
  return error instanceof ConnectionFailed || error instanceof Throttled;
}

/** Whether the condition of a request refused it. */
export function isRefusal(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return error.name === 'ConditionalCheckFailedException' || cancelledBy(error, LOST_RACE);
}

/** How often the SDK itself has sent the request. */
export function attemptsOf(answer: unknown): number {
  const metadata = isObject(answer) || answer instanceof Error ? Reflect.get(answer, '$metadata') : undefined;
  const attempts: unknown = isObject(metadata) ? metadata['attempts'] : undefined;
  return typeof attempts === 'number' ? attempts : 1;
}

const THROTTLED = new Set([
  'ProvisionedThroughputExceededException',
  'ThrottlingException',
  'RequestLimitExceeded',
  'ProvisionedThroughputExceeded',
  'ThrottlingError',
]);
const LOST_RACE = new Set(['ConditionalCheckFailed', 'TransactionConflict']);
const FORBIDDEN = new Set(['AccessDeniedException', 'UnrecognizedClientException', 'InvalidSignatureException']);
const NEVER_SENT = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH']);

/** Whether the transaction was cancelled, with at least one of these codes among the reasons. */
function cancelledBy(error: Error, codes: ReadonlySet<string>): boolean {
  if (error.name !== 'TransactionCanceledException') return false;
  const reasons: unknown = Reflect.get(error, 'CancellationReasons');
  if (!Array.isArray(reasons)) return false;
  return reasons.some((reason) => isObject(reason) && codes.has(String(reason['Code'])));
}

/** Whether the error may pass, since it is a broken connection, a fault of the service, or a conflicting transaction. */
function isPassing(error: Error): boolean {
  const fault: unknown = Reflect.get(error, '$fault');
  const metadata: unknown = Reflect.get(error, '$metadata');
  const status = isObject(metadata) ? Number(metadata['httpStatusCode']) : Number.NaN;
  if (fault === 'server' || status >= 500) return true;
  if (error.name === 'TransactionConflictException' || error.name === 'TransactionInProgressException') return true;
  // The service refused the request, and will refuse it again. An error of the SDK without a status means that no answer came.
  if (status >= 400) return false;
  return (
    codeOf(error) !== '' || /abort|timeout|socket|network|deserializ|connection/i.test(`${error.name} ${error.message}`)
  );
}

function codeOf(error: Error): string {
  const code: unknown = Reflect.get(error, 'code');
  return typeof code === 'string' ? code : '';
}

function requestId(error: Error): string {
  const metadata: unknown = Reflect.get(error, '$metadata');
  const id: unknown = isObject(metadata) ? metadata['requestId'] : undefined;
  return typeof id === 'string' ? ` (request ${id})` : '';
}
