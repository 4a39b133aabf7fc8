import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { LONG } from '../../../support/long.ts';
import { type DeadlinesModelOptions, type DeadlinesPlant, deadlinesModel } from './deadlines-model.ts';
import { type PausesModelOptions, type PausesPlant, pausesModel } from './pauses-model.ts';

const MOST = 1_500_000;

const SMALL: [string, PausesModelOptions][] = [
  ['two workers, a pause', { workers: 2, pauses: 1 }],
  ['a worker, two pauses', { workers: 1, pauses: 2 }],
  ['a worker, a pause, a request is carried out twice', { workers: 1, pauses: 1, doubles: 1 }],
];

const LARGE: [string, PausesModelOptions][] = [
  ['two workers, two pauses', { workers: 2, pauses: 2 }],
  ['a worker, two pauses, a request is carried out twice', { workers: 1, pauses: 2, doubles: 1 }],
  ['two workers, a pause, a request is carried out twice', { workers: 2, pauses: 1, doubles: 1 }],
];

// Invariant Y2.
test.each(LONG ? [...SMALL, ...LARGE] : SMALL)(
  'no actor is held by a pause that is over: %s',
  (_, options) => {
    const { fault, stuck, states } = explore(pausesModel(options), MOST);
    expect(fault).toBeUndefined();
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(100);
  },
  900_000,
);

const PLANTS: [PausesPlant, PausesModelOptions][] = [
  ['the type is read before the row is put', { workers: 1, pauses: 1 }],
  ['an actor that is only named keeps its fence', { workers: 1, pauses: 1 }],
  ['an actor that is let go keeps its fence', { workers: 1, pauses: 2 }],
  ['any row is removed', { workers: 1, pauses: 2 }],
  ['rows of two holds have one name', { workers: 2, pauses: 2 }],
];

test.each(PLANTS)('a planted bug is found: %s', (plant, options) => {
  expect(explore(pausesModel({ ...options, plant }), MOST).stuck).toBeDefined();
});

const DEADLINES: [string, DeadlinesModelOptions][] = [
  ['it stays, two watchers', { watchers: 2, leaves: false }],
  ['it leaves, two watchers', { watchers: 2, leaves: true }],
  ['it stays, a death, a request is carried out twice', { watchers: 1, leaves: false, crashes: 1, doubles: 1 }],
  ['it leaves, a death, a request is carried out twice', { watchers: 1, leaves: true, crashes: 1, doubles: 1 }],
];

test.each(DEADLINES)(
  'one page reports an actor that is in a state for too long, and none too early: %s',
  (_, options) => {
    const { fault, stuck, states } = explore(deadlinesModel(options), MOST);
    expect(fault).toBeUndefined();
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(30);
  },
);

const STAYS: DeadlinesModelOptions = { watchers: 1, leaves: false };
const DEADLINE_PLANTS: [DeadlinesPlant, DeadlinesModelOptions][] = [
  ['the row comes after the commit', { ...STAYS, crashes: 1 }],
  ['a row of a commit under way is dropped', STAYS],
  ['rows of two turns have one name', { ...STAYS, crashes: 1, doubles: 1 }],
];

test.each(DEADLINE_PLANTS)('a planted bug is found: %s', (plant, options) => {
  expect(explore(deadlinesModel({ ...options, plant }), MOST).stuck).toBeDefined();
});
