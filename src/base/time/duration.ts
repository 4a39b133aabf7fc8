import { type OptionPath, refusal } from '../options/refusal.ts';

/** A length of time: milliseconds, or a number with a unit: `'250ms'`, `'1.5s'`, `'3m'`, `'24h'`, `'90d'`. */
export type Duration = number | `${number}${'' | ' '}${'ms' | 's' | 'm' | 'h' | 'd'}` | 'Infinity';

/** The bounds of a duration, in milliseconds; the bounds themselves are allowed. */
export interface DurationBounds extends OptionPath {
  /** Default 0. */
  readonly min?: number | undefined;
  /** Default 100 years, so that any time plus any duration is still a date every database can hold. */
  readonly max?: number | undefined;
  /** Accept `Infinity` (or `'Infinity'`, for configuration files and JSON). Default false. */
  readonly infinite?: boolean | undefined;
}

const UNITS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1000, ms: 1 } as const;
const CENTURY = 36_500 * UNITS.d;
const PATTERN = /^(\d+(?:\.\d+)?) ?(ms|s|m|h|d)$/;

/**
 * The duration in whole milliseconds. A smaller duration is rounded, but never down to 0, because 0 often has another meaning.
 * @throws InvalidInput  names the field, the value and the accepted values
 */
export function parseDuration(value: unknown, bounds: DurationBounds): number {
  const { min = 0, max = CENTURY, infinite = false } = bounds;
  const ms = milliseconds(value);
  if (ms === Infinity && infinite) return ms;
  if (ms === undefined || !(ms >= min && ms <= max)) throw refusal(bounds, value, accepted(min, max, infinite));
  return ms;
}

/**
 * The shortest form that is exact to the millisecond and that {@link parseDuration} reads back: `'1.5s'`, `'3m'`, `'90d'`. A time
 * that is a round number of no unit is given in seconds: `'3725.25s'`.
 */
export function formatDuration(ms: number): string {
  if (!Number.isFinite(ms)) return String(ms);
  if (ms < 0) return `-${formatDuration(-ms)}`;
  const whole = Math.round(ms);
  if (whole === 0) return '0ms';
  for (const [unit, size] of Object.entries(UNITS)) {
    const count = whole / size;
    if (count >= 1 && isShort(count, unit)) return `${count}${unit}`;
  }
  return `${whole}ms`;
}

function milliseconds(value: unknown): number | undefined {
  if (typeof value === 'number') return roundUpFromZero(value);
  if (value === 'Infinity') return Infinity;
  const match = typeof value === 'string' ? PATTERN.exec(value) : null;
  if (match === null) return undefined;
  return roundUpFromZero(Number(match[1]) * UNITS[unitOf(match[2])]);
}

function unitOf(text: string | undefined): keyof typeof UNITS {
  return text === 'd' || text === 'h' || text === 'm' || text === 's' ? text : 'ms';
}

function roundUpFromZero(ms: number): number {
  return ms > 0 && ms < 1 ? 1 : Math.round(ms);
}

/** Seconds may have milliseconds as decimals; other units have at most two decimals, so that they are easy to read. */
function isShort(count: number, unit: string): boolean {
  const decimals = String(count).split('.')[1]?.length ?? 0;
  return decimals <= (unit === 's' ? 3 : 2) && !String(count).includes('e');
}

function accepted(min: number, max: number, infinite: boolean): string {
  const from = `from ${formatDuration(min)}`;
  const range = max === CENTURY ? `, ${from} up` : `, ${from} to ${formatDuration(max)}`;
  const shown = min === 0 && max === CENTURY ? '' : range;
  return `a duration such as '30s' or a number of milliseconds${shown}${infinite ? ', or Infinity' : ''}`;
}
