import { type Check, custom, integer, optional, text } from '../base/options/options.ts';
import { refusal } from '../base/options/refusal.ts';

/** Years of four digits: with more, or with a sign, JavaScript and Postgres write times differently. */
const WHEN = 'a valid Date of the years 1 to 9999';

const when: Check<Date> = custom(WHEN, (value, place) => {
  if (!(value instanceof Date) || !isPlain(value.getUTCFullYear())) throw refusal(place, value, WHEN);
  return value;
});

/** False for NaN. */
function isPlain(year: number): boolean {
  return year >= 1 && year <= 9999;
}

/** Checks of the options of a job that every way of enqueueing has. */
export const jobShape: {
  readonly key: Check<string | undefined>;
  readonly priority: Check<number>;
  readonly runAt: Check<Date | undefined>;
} = {
  key: optional(text({ min: 1, maxBytes: 1000 })),
  priority: integer({ min: -32_768, max: 32_767, default: 0 }),
  runAt: optional(when),
};
