/** One measured quantity. */
export interface Figure {
  readonly unit: string;
  readonly median: number;
  /** One value per round, in the order measured. */
  readonly samples: readonly number[];
}

/** A promise about the figures. */
export interface Bar {
  readonly value: number;
  readonly bar: number;
  readonly holds: boolean;
  readonly rule: 'at least' | 'at most';
}

/** The result of a bench. */
export interface Outcome {
  readonly figures: Readonly<Record<string, Figure>>;
  readonly bars: Readonly<Record<string, Bar>>;
}

export function figure(unit: string, samples: readonly number[]): Figure {
  return { unit, median: round(median(samples)), samples: samples.map(round) };
}

export function atLeast(bar: number, value: number): Bar {
  return { value: round(value), bar, holds: value >= bar, rule: 'at least' };
}

export function atMost(bar: number, value: number): Bar {
  return { value: round(value), bar, holds: value <= bar, rule: 'at most' };
}

/**
 * The median of the ratios of all rounds. The two values of a round are measured within seconds of each other, so a slow phase of the
 * whole machine affects both and leaves their ratio as it is.
 */
export function ratio(ours: readonly number[], theirs: readonly number[]): number {
  return median(ours.map((value, index) => value / (theirs[index] ?? Number.NaN)));
}

/** The series with the highest median. */
export function fastest(...series: (readonly number[])[]): readonly number[] {
  const [first, ...rest] = series;
  if (first === undefined) throw new Error('no series to choose from');
  return rest.reduce((best, next) => (median(next) > median(best) ? next : best), first);
}

export function median(values: readonly number[]): number {
  return percentile(values, 50);
}

/** The smallest value that at least `percent` % of the values do not exceed. The median of an even number of values is the mean of the middle two. */
export function percentile(values: readonly number[], percent: number): number {
  if (values.length === 0) return Number.NaN;
  const sorted = [...values].sort((a, b) => a - b);
  const at = (sorted.length * percent) / 100;
  const low = sorted[Math.ceil(at) - 1] ?? Number.NaN;
  if (percent !== 50 || !Number.isInteger(at)) return low;
  return (low + (sorted[at] ?? low)) / 2;
}

function round(value: number): number {
  const digits = Math.abs(value) >= 100 ? 0 : 3;
  return Number(value.toFixed(digits));
}
