import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { MODELS } from '../../../support/long.ts';
import { type UnknownModelOptions, type UnknownPlant, unknownModel } from './unknown-model.ts';

const MOST = 200_000;

const SMALL: [string, UnknownModelOptions][] = [
  ['no fault', {}],
  ['a death', { crashes: 1 }],
  ['a living worker is declared dead', { suspicions: 1 }],
];

/** Of ten to fifty thousand states. */
const MEDIUM: [string, UnknownModelOptions][] = [
  ['a request is carried out twice', { doubles: 1 }],
  ['a living worker is declared dead, a request is carried out twice', { suspicions: 1, doubles: 1 }],
];

// Invariant Y3.
test.each([...SMALL, ...(MODELS ? MEDIUM : [])])(
  'no actor is held whose state a program knows by then: %s',
  (_, options) => {
    const { stuck, states } = explore(unknownModel(options), MOST);
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(1000);
  },
);

const PLANTS: [UnknownPlant, UnknownModelOptions][] = [
  ['workers are read before the row is put', {}],
  ['rows are read before the worker is listed', {}],
  ['a row of a turn that runs is dropped', {}],
  ['a hold expects nothing', { suspicions: 1 }],
  ['rows of two turns have one name', { doubles: 1 }],
];

test.each(PLANTS)('a planted bug is found: %s', (plant, options) => {
  expect(explore(unknownModel({ ...options, plant }), MOST).stuck).toBeDefined();
});
