import { inspect, types } from 'node:util';
import { toStorable } from './storable.ts';

/** The longest text of a thrown value that is kept; a stack trace with its causes is rarely longer. */
const MOST = 10_000;
/** The most causes of causes, and errors of an AggregateError, in total. */
const MOST_PARTS = 10;
/** How a value is shown in the text of an error: deep and long enough to find it, short enough to read it. */
const SHOWN = { depth: 3, breakLength: Infinity, maxStringLength: 1000, maxArrayLength: 50, getters: false } as const;
/** Properties that the stack shows, or that are parts of their own. */
const TOLD = new Set(['name', 'message', 'stack', 'cause', 'errors']);

/**
 * A thrown value, as the text that is kept with a job or an actor. The text has the stack, the error's own properties (`code`,
 * `detail` and so on) on a line each, its causes after `caused by:`, and the errors of an AggregateError after `with:`. For a
 * value that is not an error, the text says so. It has at most 10,000 characters, and each part has a share of them. Characters
 * that a text column cannot store are made visible. Never throws.
 */
export function describeThrown(thrown: unknown): string {
  const parts: string[] = [];
  try {
    collect(thrown, '', parts, new Set());
  } catch {
    parts.push('an error that cannot be shown: reading it failed');
  }
  const share = Math.max(MOST / 10, Math.floor(MOST / parts.length));
  const text = parts.length === 1 ? parts[0] : parts.map((part) => cut(part, share)).join('\n');
  return cut(toStorable(cut(text ?? '', MOST)), MOST);
}

function collect(thrown: unknown, label: string, parts: string[], seen: Set<unknown>): void {
  if (parts.length >= MOST_PARTS) return;
  if (!isError(thrown)) {
    parts.push(`${label}${toText(thrown, label === '')}`);
    return;
  }
  if (seen.has(thrown)) {
    parts.push(`${label}an error that is shown above`);
    return;
  }
  seen.add(thrown);
  parts.push(`${label}${headOf(thrown)}${propertiesOf(thrown)}`);
  if (thrown.cause !== undefined) collect(thrown.cause, 'caused by: ', parts, seen);
  const { errors } = thrown as { errors?: unknown };
  if (!Array.isArray(errors)) return;
  for (const inner of errors.slice(0, MOST_PARTS)) collect(inner, 'with: ', parts, seen);
}

/** Errors of another realm (a vm context, a worker) are no instances of this realm's class. */
function isError(value: unknown): value is Error {
  return value instanceof Error || types.isNativeError(value);
}

/** A stack contains the message at the time of the error's creation; a message that was changed since comes before the stack. */
function headOf(error: Error): string {
  const { name, message, stack } = error;
  const head = `${String(name)}: ${String(message)}`;
  if (typeof stack !== 'string' || stack === '') return head;
  const shown = withoutCallers(stack);
  return stack.includes(String(message)) ? shown : `${head}\n${shown}`;
}

/** The path of this library in stack frames; undefined in a bundle, whose frames all have one file. */
const OURS = /^file:.*\/base\/error-text\.[jt]s$/.test(import.meta.url)
  ? new URL('..', import.meta.url).pathname
  : undefined;

/**
 * A stack without its last frames, those of the worker that has called the handler: they are the same for every error. It reads
 * the stack from its end and does not split it into lines: most frames are such callers, and another service that is down causes
 * a thousand stacks a second.
 */
function withoutCallers(stack: string): string {
  let end = stack.length;
  for (;;) {
    const before = stack.lastIndexOf('\n', end - 1);
    const line = stack.slice(before + 1, end);
    // A stack without a frame of a handler is of an error that the library itself threw. A stack may be any text, because
    // programs can set it.
    if (before < 0 || !line.startsWith('    at ')) return stack;
    if (!isCaller(line)) return stack.slice(0, end);
    end = before;
  }
}

function isCaller(frame: string): boolean {
  return (OURS !== undefined && frame.includes(OURS)) || frame.includes('(node:') || frame.includes(' node:');
}

function propertiesOf(error: Error): string {
  let text = '';
  for (const name of Object.keys(error)) {
    if (!TOLD.has(name)) text += `\n  ${name}: ${inspect(read(error, name), SHOWN)}`;
  }
  return text;
}

function read(error: Error, name: string): unknown {
  try {
    return Reflect.get(error, name);
  } catch {
    return 'a property that cannot be read';
  }
}

/** JSON if it shows the whole value, because a search can find JSON. */
function toText(value: unknown, isThrown: boolean): string {
  if (typeof value === 'string' && value !== '') return value;
  const shown =
    typeof value === 'object' && value !== null ? (json(value) ?? inspect(value, SHOWN)) : inspect(value, SHOWN);
  return isThrown ? `${shown} was thrown` : shown;
}

function json(value: object): string | undefined {
  try {
    const text = JSON.stringify(value);
    return text === '{}' ? undefined : text;
  } catch {
    return undefined;
  }
}

function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
