import { InvalidInput } from '../../base/errors.ts';
import { isObject } from '../../base/options/shape.ts';
import { sleep } from '../../base/time/clock.ts';
import { HttpRefusal } from './failure.ts';

/** The body of a request: parsed, and as it arrived. */
export interface RequestBody {
  readonly given: object;
  readonly text: string;
}

export interface BodyLimits {
  /** Whether the request may have a body. Default true. */
  readonly isWanted?: boolean;
  /** How long it may take to arrive. Default: as long as the server in front allows. */
  readonly withinMs?: number;
}

export const NO_BODY: RequestBody = { given: {}, text: '' };

/**
 * Reads a body of JSON. Called only when the caller is identified: the body of a stranger is never stored.
 * @param most  the largest number of bytes @throws HttpRefusal, InvalidInput
 */
export async function readBody(
  request: Request,
  most: number,
  { isWanted = true, withinMs = Infinity }: BodyLimits = {},
): Promise<RequestBody> {
  if (request.method === 'GET' || request.method === 'HEAD') return NO_BODY;
  const text = await readText(request, most, withinMs);
  if (text === '') return { given: {}, text: '{}' };
  if (!/^application\/json\s*(;|$)/i.test(request.headers.get('content-type') ?? '')) {
    throw new HttpRefusal('unsupported_media_type', 'the body must be JSON: content-type: application/json');
  }
  let given: unknown;
  try {
    given = JSON.parse(text);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidInput(`the body is no JSON: ${why}`, { cause });
  }
  if (!isObject(given) && !Array.isArray(given)) throw new InvalidInput('the body must be a JSON object');
  if (!isWanted && Object.keys(given).length > 0) throw new InvalidInput('this takes no body');
  return { given, text };
}

/**
 * If the request names the length, a large body is refused before it is read. Of any other body, at most `most` bytes are stored.
 */
async function readText(request: Request, most: number, withinMs: number): Promise<string> {
  const tooLong = (): HttpRefusal => new HttpRefusal('body_too_large', `the body is longer than ${most} bytes`);
  const tooLate = (): never => {
    throw new HttpRefusal('body_incomplete', `the body did not arrive within ${withinMs} ms; nothing was done`);
  };
  if (Number(request.headers.get('content-length') ?? 0) > most) throw tooLong();
  const reader = request.body?.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  const over = new AbortController();
  const late = withinMs === Infinity ? undefined : sleep(withinMs, over.signal).then(() => undefined);
  try {
    for (;;) {
      const chunk = await (late === undefined ? reader?.read() : Promise.race([reader?.read(), late.then(tooLate)]));
      if (chunk === undefined || chunk.done) return decode(Buffer.concat(chunks));
      size += chunk.value.length;
      if (size > most) throw tooLong();
      chunks.push(chunk.value);
    }
  } catch (error) {
    void reader?.cancel().catch(() => {}); // the rest of the body is not read
    if (error instanceof HttpRefusal || error instanceof InvalidInput) throw error;
    throw new HttpRefusal('body_incomplete', `the body broke off after ${size} bytes; nothing was done`);
  } finally {
    over.abort();
  }
}

const UTF8 = new TextDecoder('utf-8', { fatal: true });

/** A program that sends another encoding must know: "M\u{fffd}ller" in place of "Müller" would be kept for good. */
function decode(bytes: Uint8Array): string {
  try {
    return UTF8.decode(bytes);
  } catch (cause) {
    throw new InvalidInput('the body is no UTF-8, the only encoding that JSON may have here', { cause });
  }
}
