import { type Check, contradiction, duration, number, oneOf, optional } from '../options/options.ts';
import { type OptionPath, refusal } from '../options/refusal.ts';
import { isObject, readShape, within } from '../options/shape.ts';
import { type Duration, formatDuration } from './duration.ts';

export type BackoffKind = 'fixed' | 'linear' | 'exponential';

/** How long to wait before each retry, complete and in milliseconds. */
export interface Backoff {
  readonly kind: BackoffKind;
  /** The wait before the first retry, before jitter. */
  readonly min: number;
  /** The longest wait. */
  readonly max: number;
  /** The factor between two waits; only exponential backoff uses it. */
  readonly factor: number;
  /** The random part of each wait, 0 to 1. */
  readonly jitter: number;
}

/** A backoff in options: its kind alone, or the fields that differ from the defaults. */
export type BackoffOption = BackoffKind | BackoffFields;

export interface BackoffFields {
  /** `exponential` multiplies by `factor` each time, `linear` adds `min` each time, `fixed` stays at `min`. Default `exponential`. */
  readonly kind?: BackoffKind | undefined;
  /** The wait before the first retry, before jitter. Default 1 s. */
  readonly min?: Duration | undefined;
  /** The longest wait. Default 1 h, or `min` when that is longer. */
  readonly max?: Duration | undefined;
  /** Default 2. */
  readonly factor?: number | undefined;
  /** 0: no randomness. 1: a random time between zero and the whole wait. Default 0.5, but 0 for `fixed`. */
  readonly jitter?: number | undefined;
}

/**
 * The defaults. Jitter 0.5 is "Equal Jitter", 1 is "Full Jitter" of Marc Brooker, "Exponential Backoff And Jitter" (AWS
 * Architecture Blog, 2015). Full spreads a crowd a little better; but a job has few attempts, and Full may spend all of them in
 * the first moments of an outage. With Equal, each wait is at least half of the declared one.
 */
export const BACKOFF: Backoff = Object.freeze({
  kind: 'exponential',
  min: 1000,
  max: 3_600_000,
  factor: 2,
  jitter: 0.5,
});

/**
 * The wait in milliseconds before retry number `attempt`: 1 after the first failure.
 * @param random  from 0 up to 1, usually `Math.random()`; it shortens the wait by up to `jitter` of it
 */
export function delay(policy: Backoff, attempt: number, random: number): number {
  const whole = Math.min(policy.max, grown(policy, Math.max(1, attempt)));
  return Math.round(whole * (1 - policy.jitter * random));
}

function grown({ kind, min, factor }: Backoff, attempt: number): number {
  switch (kind) {
    case 'fixed':
      return min;
    case 'linear':
      return min * attempt;
    case 'exponential':
      return min * factor ** (attempt - 1);
  }
}

/**
 * The option: a {@link BackoffOption}, or nothing, becomes a complete {@link Backoff}.
 * @param defaults  the fields that differ from {@link BACKOFF} for this call
 */
export function backoffShape(defaults: Partial<Backoff> = {}): Check<Backoff> {
  const base = { ...BACKOFF, ...defaults };
  const kind = oneOf(KINDS, { default: base.kind });
  const read = (value: unknown, place: OptionPath): Backoff => {
    if (typeof value === 'string') return readFields({ kind: kind.given(value, place) }, base, place);
    if (!isObject(value)) throw refusal(place, value, `${KINDS.map((name) => `"${name}"`).join(', ')} or an object`);
    return readFields(value, base, place);
  };
  return { given: read, absent: (place) => readFields({}, base, place) };
}

const KINDS = ['fixed', 'linear', 'exponential'] as const;

function readFields(value: object, base: Backoff, place: OptionPath): Backoff {
  const given = readShape(
    value,
    {
      kind: oneOf(KINDS, { default: base.kind }),
      min: duration({ min: 1, default: base.min }),
      max: optional(duration({ min: 1 })),
      factor: number({ min: 1, max: 100, default: base.factor }),
      jitter: optional(number({ min: 0, max: 1 })),
    },
    place,
  );
  const max = given.max ?? Math.max(base.max, given.min);
  if (max < given.min) {
    const bounds = `(${formatDuration(max)}) must not be less than min (${formatDuration(given.min)})`;
    throw contradiction(within(place, 'max'), bounds);
  }
  const jitter = given.jitter ?? (given.kind === 'fixed' ? 0 : base.jitter);
  return Object.freeze({ ...given, max, jitter });
}
