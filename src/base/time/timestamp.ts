/**
 * Reads a time, or a date, in ISO 8601.
 * @returns undefined if the text is none, or names a day that does not exist: JavaScript alone takes February 31 for March 3
 */
export function readTimestamp(text: string): Date | undefined {
  const [, year, month, day] = /^(\d{4})-(\d\d)-(\d\d)/.exec(text) ?? [];
  const at = new Date(text);
  if (day === undefined || Number.isNaN(at.getTime())) return undefined;
  const date = new Date(0);
  date.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
  return date.getUTCDate() === Number(day) ? at : undefined;
}
