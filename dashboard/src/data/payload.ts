import { ApiError } from './api.ts';

/** Problems by the names of their fields. A problem of no field is under the empty name. */
export type Problems = Readonly<Record<string, string>>;

/** The problem of a payload before it is sent. An empty payload is valid and means null. */
export function problemOfJson(payload: string): Problems {
  if (payload.trim() === '') return {};
  try {
    JSON.parse(payload);
    return {};
  } catch (error) {
    return { payload: error instanceof Error ? error.message : 'this is no JSON' };
  }
}

/** The payload as it is sent: unchanged, because JSON.parse would round long numbers. */
export function payloadText(payload: string): string {
  return payload.trim() === '' ? 'null' : payload;
}

/** A refusal of the server, under its field if the form has that field. */
export function problemOf(error: unknown): Problems {
  const text = error instanceof Error ? error.message : String(error);
  const field = error instanceof ApiError ? (error.field ?? '') : '';
  const ours = ['kind', 'payload', 'key', 'priority', 'runAt'].find(
    (name) => field === name || field.startsWith(`${name}.`),
  );
  return { [ours ?? '']: ours !== undefined && field !== ours ? `${field}: ${text}` : text };
}

/** Breaks JSON into lines, unless that could change it: long numbers would be rounded. */
export function pretty(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return /\d{16,}|\d[eE]/.test(text) ? text : JSON.stringify(value, null, 2);
  } catch {
    return text;
  }
}
