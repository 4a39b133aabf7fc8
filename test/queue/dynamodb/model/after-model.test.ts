import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { MODELS } from '../../../support/long.ts';
import { type AfterModelOptions, type AfterPlant, afterModel } from './after-model.ts';

const MOST = 100_000;

const PLAIN: AfterModelOptions = { lookers: 2, failures: 1, calls: [] };
const KEYED: AfterModelOptions = { ...PLAIN, isKeyed: true };

const SMALL: [string, AfterModelOptions][] = [
  ['two look', PLAIN],
  ['it is cancelled', { ...PLAIN, calls: ['cancel'] }],
  ['it has a key', KEYED],
  ['it has a key, and is cancelled', { ...KEYED, calls: ['cancel'] }],
  ['it has a key, and is cancelled, and retried by hand', { ...KEYED, calls: ['cancel', 'retry'] }],
];

/** Of five to thirty thousand states. */
const MEDIUM: [string, AfterModelOptions][] = [
  ['it is cancelled, retried by hand and changed', { ...PLAIN, calls: ['cancel', 'retry', 'update'] }],
  ['it has a key, and is cancelled, retried by hand and changed', { ...KEYED, calls: ['cancel', 'retry', 'update'] }],
];

// Invariant Q6.
test.each([...SMALL, ...(MODELS ? MEDIUM : [])])(
  'a job that comes after another one is let go or ended once, when that has ended: %s',
  (_, options) => {
    const { fault, stuck, states } = explore(afterModel(options), MOST);
    expect(fault).toBeUndefined();
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(50);
  },
);

const TWICE = 'a job has ended twice';

const PLANTS: [AfterPlant, AfterModelOptions, string][] = [
  ['the row of the wait may have changed', { ...PLAIN, calls: ['update', 'cancel'] }, TWICE],
  ['the head of the key may have changed', { ...KEYED, calls: ['update', 'cancel'] }, TWICE],
  ['one that was cancelled is let go', { ...PLAIN, calls: ['cancel'] }, TWICE],
  ['ends of failed jobs are kept', PLAIN, 'a job was judged before its parent had ended'],
  ['those that were cancelled stay counted', { ...PLAIN, calls: ['cancel'] }, 'stuck'],
];

test.each(PLANTS)('a planted bug is found: %s', (plant, options, words) => {
  const { fault, stuck } = explore(afterModel({ ...options, plant }), MOST);
  expect(fault?.what ?? (stuck && 'stuck')).toBe(words);
});
