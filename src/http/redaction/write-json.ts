import { DEEPEST } from './depth.ts';

/** What stands for what is nested deeper. */
const TOO_DEEP = '[nested too deep to be shown; GET …/payload has it to the letter]';

/**
 * A value as JSON. A bigint is written as a text. A value that is nested deeper than the stack is cut, since its writer, by a library or
 * by SQL, must not make it impossible to look at.
 */
export function writeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch {
    // Either is rare, so nothing is looked for before.
    return JSON.stringify(prepared(value, 0)) ?? 'null';
  }
}

function prepared(value: unknown, depth: number): unknown {
  if (typeof value === 'bigint') return String(value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth > DEEPEST) return TOO_DEEP;
  if ('toJSON' in value && typeof value.toJSON === 'function') return prepared(value.toJSON(), depth + 1);
  if (Array.isArray(value)) return value.map((inner) => prepared(inner, depth + 1));
  return Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, prepared(inner, depth + 1)]));
}
