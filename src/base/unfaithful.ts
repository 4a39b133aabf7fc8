import { types } from 'node:util';

/**
 * The first place in a value that JSON cannot hold, or would silently change, and the reason; undefined if there is none.
 * `payload.lines[2].price`. It names only values that JSON would write as nothing. A Date becomes a text, as everywhere.
 */
export function findUnfaithful(value: unknown, path: string): string | undefined {
  return find(value, path, refuse);
}

/** The first place of a Date in a value, for values that must be read back unchanged: `fields.lines[2].at`. */
export function findDate(value: unknown, path: string): string | undefined {
  return find(value, path, (inner) => (types.isDate(inner) ? '' : undefined))?.replace(/ is $/, '');
}

/** @param refuse  returns why a value is a match */
function find(value: unknown, path: string, refuse: (value: unknown) => string | undefined): string | undefined {
  const seen = new Set<object>();
  // With a list and not by recursion: a value may be nested deeper than the stack.
  const left: { readonly value: unknown; readonly path: string }[] = [{ value, path }];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const why = refuse(next.value);
    if (why !== undefined) return `${next.path} is ${why}`;
    if (typeof next.value !== 'object' || next.value === null || seen.has(next.value) || hasOwnForm(next.value))
      continue;
    seen.add(next.value);
    const isList = Array.isArray(next.value);
    const entries = Object.entries(next.value).map(([key, inner]) => ({
      value: inner,
      path: isList ? `${next?.path}[${key}]` : `${next?.path}.${key}`,
    }));
    left.push(...entries.reverse());
  }
  return undefined;
}

function refuse(value: unknown): string | undefined {
  if (typeof value === 'bigint') return `${value}n, a bigint, which JSON has no form for; write it as a text`;
  if (typeof value === 'number' && !Number.isFinite(value))
    return `${value}, which JSON would make null; write it as a text`;
  return whyLost(value);
}

/** Like {@link findUnfaithful}, but bigints and numbers of every kind are accepted. */
export function findLost(value: unknown, path: string): string | undefined {
  return find(value, path, whyLost);
}

/** Why JSON would make nothing of an object; undefined if it would not. Its parts are not searched. */
export function whyLost(value: unknown): string | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  if (types.isDate(value) && Number.isNaN(value.getTime())) return 'an invalid Date, which JSON would make null';
  if (hasOwnForm(value)) return undefined;
  for (const [name, is, advice] of EMPTY) if (is(value)) return `${name}, which JSON would make {}; ${advice}`;
  return undefined;
}

/** Its class decides its form in JSON. */
function hasOwnForm(value: object): boolean {
  return typeof Reflect.get(value, 'toJSON') === 'function';
}

const EMPTY: readonly (readonly [string, (value: object) => boolean, string])[] = [
  ['a Promise', types.isPromise, 'await it first'],
  ['a Map', types.isMap, 'write Object.fromEntries(map), or its entries'],
  ['a Set', types.isSet, 'write [...set]'],
  ['an Error', types.isNativeError, 'write its message, or the parts of it that you need'],
  ['a RegExp', types.isRegExp, 'write its source'],
  ['a WeakMap', types.isWeakMap, 'it cannot be written'],
  ['a WeakSet', types.isWeakSet, 'it cannot be written'],
  ['an ArrayBuffer', types.isAnyArrayBuffer, 'write it as base64'],
];
