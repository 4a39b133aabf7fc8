import { DEEPEST } from './depth.ts';

/** Replaces deeper levels. */
const TOO_DEEP = '[nested too deep to be shown; GET …/payload has it to the letter]';

/**
 * A value as JSON. A bigint is written as a text. A value that is nested deeper than the stack is cut: a library or SQL may have
 * written it, and a person must still be able to see the rest.
 */
export function writeJson(value: unknown): string {
  try {
    return JSON.stringify(value) ?? 'null';
  } catch {
    // Bigints and such nesting are rare, so the value is searched only after an error.
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
