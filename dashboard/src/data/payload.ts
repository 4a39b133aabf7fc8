import { ApiError } from './api.ts';

/** What is wrong, by the field that it is about; under no name what is about none. */
export type Problems = Readonly<Record<string, string>>;

/** What a payload has wrong before it is sent. Nothing at all is null. */
export function problemOfJson(payload: string): Problems {
  if (payload.trim() === '') return {};
  try {
    JSON.parse(payload);
    return {};
  } catch (error) {
    return { payload: error instanceof Error ? error.message : 'this is no JSON' };
  }
}

/** As it is sent: to the letter, since reading it here would round long numbers. */
export function payloadText(payload: string): string {
  return payload.trim() === '' ? 'null' : payload;
}

/** What the server refuses names its field, as far as it is about one of ours. */
export function problemOf(error: unknown): Problems {
  const text = error instanceof Error ? error.message : String(error);
  const field = error instanceof ApiError ? (error.field ?? '') : '';
  const ours = ['kind', 'payload', 'key', 'priority', 'runAt'].find(
    (name) => field === name || field.startsWith(`${name}.`),
  );
  return { [ours ?? '']: ours !== undefined && field !== ours ? `${field}: ${text}` : text };
}

/** In lines, if that changes nothing: numbers that are too long would be rounded. */
export function pretty(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return /\d{16,}|\d[eE]/.test(text) ? text : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}
