import { randomUUID } from 'node:crypto';
import { ConnectionFailed, DatabaseError, InvalidInput, PawlError } from '../../base/errors.ts';
import type { JsonSchema } from './field.ts';

/** Refusals that only this surface has, with their status. Errors of the library keep their own codes. */
const STATUS = {
  unauthorized: 401,
  forbidden: 403,
  read_only: 403,
  cross_site: 403,
  not_found: 404,
  method_not_allowed: 405,
  body_incomplete: 400,
  body_too_large: 413,
  unsupported_media_type: 415,
  range_not_satisfiable: 416,
  rate_limited: 429,
  internal: 500,
  not_supported: 501,
  busy: 503,
  identity_unavailable: 503,
} as const;

export type HttpCode = keyof typeof STATUS;

/** The statuses for errors of the library. An error that is not listed is the server's fault: 500. */
const OF_LIBRARY: Readonly<Record<string, number>> = {
  invalid_input: 400,
  not_found: 404,
  conflict: 409,
  duplicate_key: 409,
  lock_not_available: 409,
  lock_timeout: 409,
  lease_lost: 409,
  deadlock: 409,
  serialization_failed: 409,
  version_conflict: 409,
  upload_expired: 409,
  collector_halted: 409,
  not_supported: 501,
  corrupt_object: 502,
  store_refused: 502,
  store_unavailable: 503,
  connection_failed: 503,
  throttled: 503,
  stopped: 503,
  schema_mismatch: 503,
  statement_timeout: 504,
  timed_out: 504,
};

/** A request that was refused before anything was done. */
export class HttpRefusal extends Error {
  readonly code: HttpCode;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: HttpCode, message: string, headers: Readonly<Record<string, string>> = {}) {
    super(message);
    this.name = 'HttpRefusal';
    this.code = code;
    this.headers = headers;
  }

  get status(): number {
    return STATUS[this.code];
  }
}

/** The one shape of every error. */
export interface ErrorBody {
  readonly error: {
    readonly code: string;
    readonly message: string;
    readonly field?: string;
    /** For `connection_failed`: whether something may have been written. */
    readonly outcome?: string;
    /** The same id as in the log, which has more about a 500. */
    readonly requestId: string;
  };
}

export interface Failure {
  readonly status: number;
  readonly body: ErrorBody;
  readonly headers: Readonly<Record<string, string>>;
}

/** The answer for any thrown value. If it is not an error of Pawl, the answer says nothing about it. */
export function failureOf(error: unknown, requestId: string): Failure {
  if (error instanceof HttpRefusal) {
    const { code, message, status, headers } = error;
    return { status, body: { error: { code, message, requestId } }, headers };
  }
  if (isOfValue(error)) {
    const message = `the database refuses a value of this request: ${error.message}`;
    return { status: 400, body: { error: { code: 'invalid_input', message, requestId } }, headers: {} };
  }
  const status = error instanceof PawlError ? (OF_LIBRARY[error.code] ?? 500) : 500;
  if (!(error instanceof PawlError) || status === 500) {
    const message = `the server failed; its log has more under request ${requestId}`;
    return { status: 500, body: { error: { code: 'internal', message, requestId } }, headers: {} };
  }
  const { code, message } = error;
  const field = error instanceof InvalidInput && error.field !== undefined ? { field: error.field } : {};
  const outcome = error instanceof ConnectionFailed ? { outcome: error.outcome } : {};
  const headers: Record<string, string> = status === 503 ? { 'retry-after': '2' } : {};
  return { status, body: { error: { code, message, ...field, ...outcome, requestId } }, headers };
}

/**
 * Whether the database refused a value: SQLSTATE class 22, "data exception". The checks of requests should have refused such a
 * value; if they did not, it is the caller's mistake anyway.
 */
export function isOfValue(error: unknown): error is DatabaseError {
  return error instanceof DatabaseError && error.sqlState?.startsWith('22') === true;
}

export function newRequestId(): string {
  return randomUUID();
}

export const ERROR_SCHEMA: JsonSchema = {
  type: 'object',
  properties: {
    error: {
      type: 'object',
      properties: {
        code: { type: 'string', enum: [...new Set([...Object.keys(STATUS), ...Object.keys(OF_LIBRARY)])].sort() },
        message: { type: 'string' },
        field: { type: 'string' },
        outcome: { type: 'string', enum: ['nothing_written', 'unknown'] },
        requestId: { type: 'string' },
      },
      required: ['code', 'message', 'requestId'],
      additionalProperties: false,
    },
  },
  required: ['error'],
  additionalProperties: false,
};
