const whole = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** The API counts to 10,000 at most. So that value is shown as `10,000+`. */
export function count(value: number | undefined, most = 10_000): string {
  if (value === undefined) return '–';
  return value >= most && value === most ? `${whole.format(most)}+` : whole.format(value);
}

export function plural(n: number, one: string): string {
  return `${whole.format(n)} ${n === 1 ? one : `${one}s`}`;
}

export function short(value: number): string {
  return value < 10_000 ? whole.format(Math.round(value)) : compact.format(value);
}

/** `1.2 s`, `3 min 20 s`: two units at most. */
export function duration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined) return '–';
  const sign = ms < 0 ? '−' : '';
  const value = Math.abs(ms);
  if (value === 0) return '0 ms';
  if (value < 1) return `${sign}${value.toFixed(1)} ms`;
  if (value < 1000) return `${sign}${Math.round(value)} ms`;
  if (value < 60_000) return `${sign}${(value / 1000).toFixed(value < 10_000 ? 1 : 0)} s`;
  const units = [
    ['d', 86_400_000],
    ['h', 3_600_000],
    ['min', 60_000],
    ['s', 1000],
  ] as const;
  const first = units.findIndex(([, size]) => value >= size);
  const [big, small] = [units[first], units[first + 1]];
  if (big === undefined) return `${sign}${Math.round(value)} ms`;
  const rest = small === undefined ? 0 : Math.floor((value % big[1]) / small[1]);
  return `${sign}${Math.floor(value / big[1])} ${big[0]}${rest > 0 && small !== undefined ? ` ${rest} ${small[0]}` : ''}`;
}

/** A rough duration: `18 min`. */
export function rough(ms: number | null | undefined): string {
  return duration(typeof ms === 'number' && ms > 0 ? roughly(ms) : ms);
}

/** `12 s ago`, `in 3 min`. */
export function ago(time: string | null | undefined, now = Date.now()): string {
  if (time === null || time === undefined) return '–';
  const ms = now - new Date(time).getTime();
  if (Math.abs(ms) < 1000) return 'just now';
  const about = rough(Math.abs(ms));
  return ms < 0 ? `in ${about}` : `${about} ago`;
}

export function bytes(value: number): string {
  if (value < 1024) return `${value} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  const power = Math.min(Math.floor(Math.log2(value) / 10), units.length);
  return `${(value / 1024 ** power).toFixed(1)} ${units[power - 1]}`;
}

export function percent(part: number, whole: number): number {
  return whole === 0 ? 0 : Math.min(100, Math.round((part / whole) * 100));
}

/** If a duration is ten or more of a unit, smaller units are left out. */
function roughly(ms: number): number {
  const unit = [86_400_000, 3_600_000, 60_000].find((size) => ms >= 10 * size) ?? (ms >= 1000 ? 1000 : undefined);
  return unit === undefined ? ms : Math.floor(ms / unit) * unit;
}

const FIELDS = ['minute', 'hour', 'day of the month', 'month', 'weekday'] as const;
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const NAMED: Readonly<Record<string, string>> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
};

/** A usual pattern in words; for another pattern, the meaning of each field. */
export function cronWords(pattern: string): string {
  const parts = (NAMED[pattern.toLowerCase()] ?? pattern).trim().split(/\s+/);
  const seconds = parts.length === 6 ? parts.shift() : '0';
  const [minute = '*', hour = '*', day = '*', month = '*', weekday = '*'] = parts;
  const isPlain = (value: string): boolean => /^\d+$/.test(value);
  const step = /^\*\/(\d+)$/;
  const on = [
    weekday === '*' ? '' : weekday === '1-5' ? ' on workdays' : ` on ${names(weekday, DAYS)}`,
    day === '*' ? '' : ` on day ${day}`,
    month === '*' ? '' : ` in ${names(month, MONTHS, 1)}`,
  ].join('');
  const everySeconds = step.exec(seconds ?? '')?.[1] ?? (seconds === '*' ? '1' : undefined);
  if (everySeconds !== undefined && minute === '*' && hour === '*')
    return `every ${everySeconds === '1' ? 'second' : `${everySeconds} seconds`}${on}`;
  if (isPlain(minute) && isPlain(hour))
    return `at ${hour.padStart(2, '0')}:${minute.padStart(2, '0')}${on || ' every day'}`;
  if (minute === '*' && hour === '*') return `every minute${on}`;
  const everyMinutes = step.exec(minute)?.[1];
  if (everyMinutes !== undefined && hour === '*') return `every ${everyMinutes} minutes${on}`;
  if (isPlain(minute) && hour === '*') return `every hour, ${minute} minutes past${on}`;
  const everyHours = step.exec(hour)?.[1];
  if (isPlain(minute) && everyHours !== undefined) return `every ${everyHours} hours, ${minute} minutes past${on}`;
  return parts.map((part, index) => `${FIELDS[index]} ${part === '*' ? 'any' : part}`).join(', ');
}

function names(list: string, of: readonly string[], from = 0): string {
  return list
    .split(',')
    .map((part) =>
      part
        .replace(/\d+/g, (digit) => of[(Number(digit) - from + of.length * 2) % of.length] ?? digit)
        .replace('-', ' to '),
    )
    .join(', ');
}

/** The path of the page that searches for the jobs of one key. */
export function jobsOfKey(key: string): string {
  return `jobs?q=${encodeURIComponent(`key:"${key.replaceAll(/["\\]/g, '\\$&')}"`)}`;
}
