import type { JSX } from 'preact';
import type { Tone } from '../parts/badge.tsx';

const SIZE = { width: 110, height: 28 } as const;

interface SparkProps {
  readonly values: readonly number[];
  readonly tone?: Tone;
}

/** A line of the last minutes. Its last value is next to it as a number, so screen readers skip the line. */
export function Spark({ values, tone = 'accent' }: SparkProps): JSX.Element | null {
  if (values.length < 2) return <svg class="spark" aria-hidden="true" />;
  const most = Math.max(1, ...values);
  const points = values.map((value, index) => {
    const x = (index / (values.length - 1)) * SIZE.width;
    const y = SIZE.height - 2 - (value / most) * (SIZE.height - 4);
    return `${x.toFixed(1)} ${y.toFixed(1)}`;
  });
  const line = `M${points.join('L')}`;
  return (
    <svg class={`spark tone-${tone}`} viewBox={`0 0 ${SIZE.width} ${SIZE.height}`} aria-hidden="true">
      <path class="area" d={`${line}L${SIZE.width} ${SIZE.height}L0 ${SIZE.height}Z`} />
      <path d={line} />
    </svg>
  );
}

interface GaugeProps {
  readonly part: number;
  readonly of: number;
  readonly label: string;
  /** Whether full use is no reason for a warning. */
  readonly isPlain?: boolean;
}

/** Shows which part of a limit is in use. */
export function Gauge({ part, of, label, isPlain = false }: GaugeProps): JSX.Element {
  const share = of === 0 ? 0 : Math.min(1, part / of);
  const tone = of === 0 ? 'idle' : share >= 1 && !isPlain ? 'warn' : 'busy';
  return (
    <div
      class={`bar tone-${tone}`}
      role="meter"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={Math.max(of, 1)}
      aria-valuenow={Math.min(part, Math.max(of, 1))}
    >
      <span style={{ width: `${share * 100}%` }} />
    </div>
  );
}
