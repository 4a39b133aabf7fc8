import { InvalidInput } from '../errors.ts';
import { type Logger, stderrLogger } from '../logger.ts';
import { isStorable, STORABLE } from '../storable.ts';
import { type Duration, parseDuration } from '../time/duration.ts';
import { type OptionPath, refusal, subject } from './refusal.ts';
import { type Check, isObject, missing, type OptionValues, readShape, type Shape, within } from './shape.ts';

/** Fields of every kind: an option with a default may be left out. The default is checked like a given value. */
export interface OptionKind<T> {
  readonly default?: T | undefined;
}

/** Bounds count as allowed. */
export interface Range {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
}

/** Bounds are lengths in characters. */
export interface TextKind extends OptionKind<string>, Range {
  /** The longest text in UTF-8 bytes, instead of `max`: the database counts bytes. */
  readonly maxBytes?: number | undefined;
  /** The pattern of the text, and words for it after "must be": `[/^[a-z]+$/, 'lower-case letters']`. */
  readonly pattern?: readonly [RegExp, string] | undefined;
  /** True: messages never show the value. Default false. */
  readonly secret?: boolean | undefined;
}

export interface DurationKind extends OptionKind<Duration> {
  /** Default 0. */
  readonly min?: Duration | undefined;
  /** Default 100 years. */
  readonly max?: Duration | undefined;
  /** Accept Infinity. Default false. */
  readonly infinite?: boolean | undefined;
}

/** A whole number. */
export function integer(kind: OptionKind<number> & Range = {}): Check<number> {
  const words = `a whole number${rangeWords(kind)}`;
  const fits = (value: unknown): value is number => Number.isSafeInteger(value) && isInRange(Number(value), kind);
  return check(words, fits, kind);
}

/** A finite number. */
export function number(kind: OptionKind<number> & Range = {}): Check<number> {
  const words = `a number${rangeWords(kind)}`;
  const fits = (value: unknown): value is number => Number.isFinite(value) && isInRange(Number(value), kind);
  return check(words, fits, kind);
}

/** A text a database can hold: without U+0000 and halves of surrogate pairs, which would be refused or changed there. */
export function text(kind: TextKind = {}): Check<string> {
  const { pattern, secret = false } = kind;
  const words = `${pattern?.[1] ?? 'a string'}${lengthWords(kind)}`;
  const fits = (value: unknown): value is string =>
    typeof value === 'string' &&
    isInRange(value.length, kind) &&
    fitsBytes(value, kind) &&
    (pattern?.[0].test(value) ?? true);
  const read = (value: unknown, place: OptionPath): string => {
    if (!fits(value)) throw secret ? hidden(place, words) : refusal(place, value, words);
    if (!isStorable(value)) throw secret ? hidden(place, STORABLE) : refusal(place, value, STORABLE);
    return value;
  };
  return kindOf(read, words, kind.default);
}

function hidden(place: OptionPath, words: string): InvalidInput {
  return new InvalidInput(`${subject(place)} must be ${words}; its value is secret and not shown`, {
    field: place.field,
  });
}

/** `true` or `false`. */
export function bool(kind: OptionKind<boolean> = {}): Check<boolean> {
  return check('true or false', (value) => typeof value === 'boolean', kind);
}

/** One of the given words or numbers. */
export function oneOf<const T extends string | number>(
  values: readonly T[],
  kind: OptionKind<NoInfer<T>> = {},
): Check<T> {
  const words = `one of ${values.map((value) => JSON.stringify(value)).join(', ')}`;
  return check(words, (value): value is T => values.some((known) => known === value), kind);
}

/** A length of time; the result is in milliseconds. */
export function duration(kind: DurationKind = {}): Check<number> {
  const bound = (value: Duration | undefined): number | undefined =>
    value === undefined ? undefined : parseDuration(value, { field: 'bound', infinite: true });
  const [min, max] = [bound(kind.min), bound(kind.max)];
  const read = (value: unknown, place: OptionPath): number =>
    parseDuration(value, { ...place, min, max, infinite: kind.infinite });
  return kindOf(read, "a duration such as '30s'", kind.default);
}

/** A function. The caller of this builder declares its type; the check can only see that it is a function. */
export function func<F extends (...args: never[]) => unknown>(kind: OptionKind<F> = {}): Check<F> {
  return check('a function', (value): value is F => typeof value === 'function', kind);
}

/** An AbortSignal, recognised by its shape, so that one from a polyfill or another realm is accepted. Absent by default. */
export const signal: Check<AbortSignal | undefined> = optional(
  check(
    'an AbortSignal',
    (value): value is AbortSignal => {
      return isObject(value) && typeof value.aborted === 'boolean' && typeof value.addEventListener === 'function';
    },
    {},
  ),
);

/** A logger; only the four functions that are used are required. Default: warnings and errors go to stderr. */
export function logger(): Check<Logger> {
  const fits = (value: unknown): value is Logger =>
    value instanceof Object && LOGS.every((level) => typeof Reflect.get(value, level) === 'function');
  return check('a logger with debug, info, warn and error', fits, { default: stderrLogger({ level: 'warn' }) });
}

const LOGS = ['debug', 'info', 'warn', 'error'] as const;

/** A list, every item of one kind. Bounds are its length. */
export function list<T>(of: Check<T>, kind: OptionKind<readonly unknown[]> & Range = {}): Check<readonly T[]> {
  const words = `an array${rangeWords(kind, ' items')}`;
  const read = (value: unknown, place: OptionPath): readonly T[] => {
    if (!Array.isArray(value) || !isInRange(value.length, kind)) throw refusal(place, value, words);
    return Object.freeze(value.map((item, index) => of.given(item, within(place, index))));
  };
  return kindOf(read, words, kind.default);
}

/**
 * An object with any keys, every value of one kind; keys whose value is undefined are left out. The result has no prototype, so a
 * look-up of `constructor` finds only a key of the user.
 */
export function record<T>(
  of: Check<T>,
  kind: OptionKind<Readonly<Record<string, unknown>>> = {},
): Check<Readonly<Record<string, T>>> {
  const read = (value: unknown, place: OptionPath): Readonly<Record<string, T>> => {
    if (!isObject(value)) throw refusal(place, value, 'an object');
    const result: Record<string, T> = Object.create(null);
    for (const [key, item] of Object.entries(value)) {
      if (item !== undefined) result[key] = of.given(item, within(place, key));
    }
    return Object.freeze(result);
  };
  return kindOf(read, 'an object', kind.default);
}

/** A nested table. If it is left out, it has its own defaults; wrap it in {@link optional} to get undefined instead. */
export function object<S extends Shape>(shape: S): Check<OptionValues<S>> {
  return {
    given: (value, place) => readShape(value, shape, place),
    absent: (place) => readShape({}, shape, place),
  };
}

/** The same kind, but undefined if it is left out, whatever its default was. */
export function optional<T>(of: Check<T>): Check<T | undefined> {
  return { given: of.given, absent: () => undefined };
}

/**
 * Any other kind: `read` returns the checked value, and throws (best with {@link refusal}) for a value that it refuses.
 * @param words  the accepted values, in words that fit after "must be"; for the message if the option is required and left out
 */
export function custom<T>(
  words: string,
  read: (value: unknown, place: OptionPath) => T,
  kind: OptionKind<unknown> = {},
): Check<T> {
  return kindOf(read, words, kind.default);
}

function check<T>(words: string, fits: (value: unknown) => value is T, kind: OptionKind<T>): Check<T> {
  const read = (value: unknown, place: OptionPath): T => {
    if (!fits(value)) throw refusal(place, value, words);
    return value;
  };
  return kindOf(read, words, kind.default);
}

function kindOf<T>(given: Check<T>['given'], words: string, byDefault: unknown): Check<T> {
  const absent = (place: OptionPath): T => {
    if (byDefault === undefined) throw missing(place, words);
    return given(byDefault, place);
  };
  return { given, absent };
}

function isInRange(value: number, { min = -Infinity, max = Infinity }: Range): boolean {
  return value >= min && value <= max;
}

function fitsBytes(value: string, { maxBytes = Infinity }: TextKind): boolean {
  return value.length * 3 <= maxBytes || Buffer.byteLength(value) <= maxBytes;
}

function lengthWords({ maxBytes, ...range }: TextKind): string {
  if (maxBytes !== undefined) return rangeWords({ ...range, max: maxBytes }, ' bytes');
  return range.max === undefined && range.min === 1 ? ' that is not empty' : rangeWords(range, ' characters');
}

function rangeWords({ min, max }: Range, unit = ''): string {
  if (min === undefined && max === undefined) return '';
  if (max === undefined) return ` of ${min} or more${unit}`;
  if (min === undefined) return ` of at most ${max}${unit}`;
  if (min === max) return ` of ${min}${unit}`;
  return ` ${unit === '' ? 'from' : 'of'} ${min} to ${max}${unit}`;
}

/** For checks across options, each of which is valid alone: the error for an impossible pair. */
export function contradiction(place: OptionPath, words: string): InvalidInput {
  return new InvalidInput(`${subject(place)} ${words}`, { field: place.field });
}
