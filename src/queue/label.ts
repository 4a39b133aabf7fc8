import { type Check, text } from '../base/options/options.ts';

/** The name of a queue, a kind or a schedule. */
export const label: Check<string> = text({ min: 1, maxBytes: 100 });
