import { createHash } from 'node:crypto';
import { InvalidInput } from '../../base/errors.ts';

/** The name of the header, and of the field in an error about it. */
export const IDEMPOTENCY_KEY = 'Idempotency-Key';

/** The key of a request, and the request that it belongs to. */
export interface Once {
  readonly who: string;
  readonly key: string | null;
  /** The digest of the whole request: a repeated request with a key must be the same. */
  readonly digest: string;
}

/**
 * A client that sends a key relies on it when it repeats the request, so a route that would ignore it refuses it.
 * @throws InvalidInput
 */
export function refuseVainKey({ method, headers }: Request, what: string): void {
  if (method === 'GET' || method === 'HEAD' || !headers.has(IDEMPOTENCY_KEY)) return;
  throw new InvalidInput(
    `${what} takes no ${IDEMPOTENCY_KEY}: a repeated request is carried out again; send it without the header`,
    { field: IDEMPOTENCY_KEY },
  );
}

/** @throws InvalidInput  the value is no key */
export function onceOf(request: Request, who: string, body: string): Once {
  const key = request.headers.get(IDEMPOTENCY_KEY);
  if (key !== null && !/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new InvalidInput(`${IDEMPOTENCY_KEY} must be 1 to 255 visible characters of ASCII`, {
      field: IDEMPOTENCY_KEY,
    });
  }
  const what = `${request.method} ${new URL(request.url).pathname}\n${body}`;
  return { who, key, digest: createHash('sha256').update(what).digest('base64url') };
}
