import { type Check, custom, text } from '../base/options.ts';
import { refusal } from '../base/refusal.ts';

const LABEL = 'a string of 1 to 100 bytes';

/** The name of a queue, a kind or a schedule. */
export const label: Check<string> = custom(LABEL, (value, place) => {
  const name = text({ min: 1, max: 100 }).given(value, place);
  if (Buffer.byteLength(name) > 100) throw refusal(place, value, LABEL);
  return name;
});
