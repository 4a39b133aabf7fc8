import { readTimestamp } from '../../base/time/timestamp.ts';

export type TimeStyle = 'relative' | 'iso';

const STEPS = [
  [86_400, 'd'],
  [3600, 'h'],
  [60, 'm'],
  [1, 's'],
] as const;

/** A time for people: `3m ago`, `in 2h`; or as ISO 8601 in UTC. */
export function showTime(at: Date, style: TimeStyle, now: number = Date.now()): string {
  if (style === 'iso') return at.toISOString();
  const seconds = Math.round((at.getTime() - now) / 1000);
  const [size, unit] = STEPS.find(([step]) => Math.abs(seconds) >= step) ?? [1, 's'];
  const count = Math.floor(Math.abs(seconds) / size);
  if (count === 0) return 'now';
  return seconds < 0 ? `${count}${unit} ago` : `in ${count}${unit}`;
}

/** Reads a time in ISO 8601, or a wait from now such as `10m`; undefined if the text is neither. */
export function readTime(text: string, now: number = Date.now()): Date | undefined {
  const wait = /^(?:in )?(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text.trim());
  if (wait !== null) {
    const size = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 }[wait[2] ?? 'ms'] ?? 1;
    const at = new Date(now + Number(wait[1]) * size);
    return Number.isNaN(at.getTime()) ? undefined : at;
  }
  // A bare number, or a date in words, has another meaning in every engine.
  return readTimestamp(text);
}
