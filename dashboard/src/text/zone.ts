import { kept } from '../data/kept.ts';

// Every time on every page is in one zone, which the top of the page names.

const ZONES = ['local', 'UTC'] as const;
type Zone = (typeof ZONES)[number];

export const zone = kept<Zone>('pawl-zone', (value): value is Zone => ZONES.some((one) => one === value), 'local');
/** Whether lists show times, and not how long ago they were. */
export const isAbsolute = kept<boolean>(
  'pawl-absolute',
  (value): value is boolean => typeof value === 'boolean',
  false,
);

export function nextZone(): void {
  zone.value = zone.value === 'UTC' ? 'local' : 'UTC';
}

export function toggleAbsolute(): void {
  isAbsolute.value = !isAbsolute.value;
}

/** `GMT+1`, or `UTC`. The name depends on the time, because it changes with the season. */
export function zoneName(at: string | number = Date.now()): string {
  return fieldsOf(at)['timeZoneName'] ?? 'UTC';
}

/** The name of the local zone: `Europe/Berlin`. */
export function localZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** `14:03:59`. If the time is not today, the day is in front of it. */
export function clock(time: string | number, withDay = true): string {
  const { hour, minute, second } = fieldsOf(time);
  const isToday = day(time) === day(Date.now());
  return `${withDay && !isToday ? `${day(time)} ` : ''}${hour}:${minute}:${second}`;
}

/** The time with the day and to the millisecond: `2026-11-23 14:03:59.120`. */
export function precise(time: string | number): string {
  const { hour, minute, second } = fieldsOf(time);
  return `${day(time)} ${hour}:${minute}:${second}.${millis(time)}`;
}

/** The time with its zone, and in UTC too, to compare it with a log. */
export function exact(time: string): string {
  const utc = new Date(time).toISOString();
  return zone.value === 'UTC' ? `${precise(time)} UTC` : `${precise(time)} ${zoneName(time)} (${utc})`;
}

export function millis(time: string | number): string {
  return String(new Date(time).getMilliseconds()).padStart(3, '0');
}

/** `2026-11-23` */
export function day(time: string | number): string {
  const { year, month, day: of } = fieldsOf(time);
  return `${year}-${month}-${of}`;
}

/** `Mon 23 Nov` */
export function dayName(time: number): string {
  return new Date(time).toLocaleDateString('en-GB', { ...inZone(), weekday: 'short', day: 'numeric', month: 'short' });
}

/** 0 to 23. */
export function hour(time: number): number {
  return Number(fieldsOf(time)['hour']);
}

/** The value of an input field for a time. */
export function toField(time: string | number): string {
  return `${day(time)}T${clock(time, false)}`;
}

/** Reads the text of such a field as a time in the zone of the page; undefined if it is no time. */
export function fromField(text: string): string | undefined {
  const at = new Date(zone.value === 'UTC' ? `${text}Z` : text);
  return Number.isNaN(at.getTime()) ? undefined : at.toISOString();
}

function inZone(): { timeZone?: string } {
  return zone.value === 'UTC' ? { timeZone: 'UTC' } : {};
}

const formats = new Map<Zone, Intl.DateTimeFormat>();

function fieldsOf(time: string | number): Readonly<Partial<Record<string, string>>> {
  let format = formats.get(zone.value);
  if (format === undefined) {
    const two = '2-digit';
    format = new Intl.DateTimeFormat('en-GB', {
      ...inZone(),
      year: 'numeric',
      month: two,
      day: two,
      hour: two,
      minute: two,
      second: two,
      hourCycle: 'h23',
      timeZoneName: 'short',
    });
    formats.set(zone.value, format);
  }
  return Object.fromEntries(format.formatToParts(new Date(time)).map(({ type, value }) => [type, value]));
}
