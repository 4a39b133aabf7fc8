import { InvalidInput } from '../errors.ts';
import { calledHere } from './elsewhere.ts';
import { type OptionPath, refusal, show, subject } from './refusal.ts';
import { suggest } from './suggest.ts';

/** The rule of one option: turns the caller's value into the value for the code. The builders are in kinds.ts. */
export interface Check<T> {
  /** Reads a value that was given. @throws InvalidInput */
  readonly given: (value: unknown, place: OptionPath) => T;
  /** The value of the option if it was left out, or was undefined. @throws InvalidInput if it is required */
  readonly absent: (place: OptionPath) => T;
}

/** The table of all the options of one call. */
export type Shape = Readonly<Record<string, Check<unknown>>>;

/** The checked options of a shape: every key is present, defaults are filled in, durations are milliseconds. */
export type OptionValues<S extends Shape> = { readonly [K in keyof S]: S[K] extends Check<infer T> ? T : never };

/** Checks one object against its table, at the top or nested. @throws InvalidInput */
export function readShape<S extends Shape>(value: unknown, shape: S, place: OptionPath): OptionValues<S> {
  if (!isObject(value)) throw refusal(place, value, 'an object');
  refuseUnknownKeys(value, shape, place);
  const result: Record<string, unknown> = {};
  for (const key of Object.keys(shape)) {
    const check = shape[key];
    if (check === undefined) continue;
    const option = value[key];
    const inside = within(place, key);
    result[key] = option === undefined ? check.absent(inside) : check.given(option, inside);
  }
  // The loop above has set every key of the shape from its own check. The type says this, but the compiler cannot infer it.
  return Object.freeze(result) as OptionValues<S>;
}

/** The place of a key inside an object: `attempts` within `retry` is `retry.attempts`. */
export function within(place: OptionPath, key: string | number): OptionPath {
  return { field: place.field === '' ? String(key) : `${place.field}.${key}`, what: place.what };
}

/** A value with keys: neither an array nor a function. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A promise, or the object of a query builder, which does its work only if it is awaited. */
export function isThenable(value: unknown): value is PromiseLike<unknown> {
  if (value instanceof Promise) return true;
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function';
}

/** The error for a required option that was left out. */
export function missing(place: OptionPath, accepted: string): InvalidInput {
  return new InvalidInput(`${subject(place)} is required; give ${accepted}`, { field: place.field });
}

function refuseUnknownKeys(value: Readonly<Record<string, unknown>>, shape: Shape, place: OptionPath): void {
  for (const key of Object.keys(value)) {
    if (!Object.hasOwn(shape, key)) throw unknownKey(key, Object.keys(shape), place);
  }
}

function unknownKey(key: string, known: readonly string[], place: OptionPath): InvalidInput {
  const path = (name: string): string => within(place, name).field;
  const here = calledHere(key, known);
  const near = here === undefined ? suggest(key, known) : here;
  const all = known.length === 0 ? 'it takes none' : `accepted are ${known.map(path).join(', ')}`;
  const advice = near === undefined || near === null ? all : `did you mean "${path(near)}"?`;
  const name = show(path(key));
  const where = place.what === undefined ? '' : ` for ${place.what}`;
  return new InvalidInput(`unknown option ${name}${where}; ${advice}`, { field: path(key) });
}
