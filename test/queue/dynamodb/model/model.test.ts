import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { LONG, MODELS } from '../../../support/long.ts';
import { nameOfState } from './alike.ts';
import { type Plant, type QueueModelOptions, queueModel } from './model.ts';

const MOST = 1_500_000;

const TWO: QueueModelOptions = { producers: [null, null], workers: 2 };
const KEY: QueueModelOptions = { producers: ['k', 'k'], workers: 2 };

const THREE: QueueModelOptions = { producers: ['k', 'k', 'k'], workers: 2 };

const REST: QueueModelOptions = { producers: ['k', 'k'], workers: 2, rests: [true, true] };
/** The second job is of another kind, and does not wait. */
const MIXED: QueueModelOptions = { ...REST, rests: [true, false] };

/** Jobs that are over are removed, and heads of keys with them. */
const PRUNED: QueueModelOptions = { ...KEY, isPruned: true };
const ALONE: QueueModelOptions = { ...PRUNED, workers: 1 };

const SMALL: [string, QueueModelOptions][] = [
  ['two jobs', TWO],
  ['two jobs, an answer is lost', { ...TWO, losses: 1 }],
  ['two jobs, a request is carried out twice', { ...TWO, doubles: 1 }],
  ['two jobs, the number of a live producer is given up', { ...TWO, voids: 1 }],
  ['two jobs, an attempt fails', { ...TWO, failures: 1 }],
  ['one job, a living worker is declared dead', { producers: [null], workers: 2, suspicions: 1, losses: 1 }],
  ['one job, a death, a lost answer', { producers: [null], workers: 2, crashes: 1, losses: 1, voids: 1 }],
  ['two jobs of a key', KEY],
  ['one job of a key, a living worker is declared dead', { producers: ['k'], workers: 2, suspicions: 1, failures: 1 }],
  ['two jobs of a key, a death', { ...KEY, crashes: 1 }],
  ['two jobs of a key, a doubled request', { ...KEY, doubles: 1 }],
  ['two jobs of a key that rest', REST],
  ['one job of a key, a claim that cannot be read', { ...KEY, producers: ['k'], losses: 1 }],
  [
    'one job of a key that is removed, a living worker is declared dead',
    { ...PRUNED, producers: ['k'], suspicions: 1 },
  ],
  ['one job of a key that is removed, a death', { ...PRUNED, producers: ['k'], crashes: 1, losses: 1 }],
];

/** Of two to six thousand states. */
const MEDIUM: [string, QueueModelOptions][] = [
  ['two jobs, a death', { ...TWO, crashes: 1, voids: 1 }],
  ['two jobs, a living worker is declared dead', { ...TWO, suspicions: 1 }],
  ['two jobs, a failure, a death', { ...TWO, failures: 1, crashes: 1 }],
  ['two jobs of a key, a lost answer', { ...KEY, losses: 1 }],
  ['two jobs of a key, a failure', { ...KEY, failures: 1 }],
  [
    'one job of a key that rests, a living worker is declared dead',
    { ...REST, producers: ['k'], rests: [true], suspicions: 1 },
  ],
  ['a job of a key that rests, and one that does not', MIXED],
  ['two jobs of a key that are removed', PRUNED],
  ['two jobs of a key that are removed, a doubled request', { ...ALONE, doubles: 1 }],
  ['two jobs of a key that are removed, a lost answer', { ...ALONE, losses: 1 }],
];

const LARGE: [string, QueueModelOptions][] = [
  ['two jobs of a key that are removed, a death, a lost answer', { ...PRUNED, crashes: 1, losses: 1 }],
  ['two jobs of a key that are removed, a living worker declared dead', { ...PRUNED, suspicions: 1 }],
  ['two jobs of a key that are removed, a doubled request, a failure', { ...PRUNED, doubles: 1, failures: 1 }],
  ['three jobs of a key that are removed', { ...THREE, isPruned: true }],
  ['two jobs of a key that rest, a living worker declared dead', { ...REST, suspicions: 1 }],
  ['two jobs of a key that rest, a death, a lost answer', { ...REST, crashes: 1, losses: 1 }],
  ['two jobs of a key that rest, a doubled request, a failure', { ...REST, doubles: 1, failures: 1 }],
  ['a job of a key that rests, and one that does not, a living worker declared dead', { ...MIXED, suspicions: 1 }],
  ['two jobs of a key, a number given up', { ...KEY, voids: 1 }],
  ['two jobs of a key, a number given up, and a death', { ...KEY, voids: 1, crashes: 1 }],
  ['two jobs of a key, a living worker declared dead', { ...KEY, suspicions: 1 }],
  ['two jobs of a key, a living worker declared dead, a lost answer', { ...KEY, suspicions: 1, losses: 1 }],
  ['two jobs of a key, a failure and a death', { ...KEY, failures: 1, crashes: 1 }],
  ['two jobs of a key, a failure and a living worker declared dead', { ...KEY, failures: 1, suspicions: 1 }],
  ['two jobs of a key, a death, a lost answer, a doubled request', { ...KEY, crashes: 1, losses: 1, doubles: 1 }],
  ['two jobs of a key, two failures', { ...KEY, failures: 2 }],
  ['two jobs of a key, three workers, a death', { ...KEY, workers: 3, crashes: 1 }],
  ['two jobs of a key and one without, a death', { producers: ['k', 'k', null], workers: 2, crashes: 1 }],
  ['three jobs of a key', THREE],
  ['three jobs of a key, a failure', { ...THREE, failures: 1 }],
  ['three jobs of a key, a death', { ...THREE, crashes: 1 }],
  ['three jobs, a death, a lost answer', { producers: [null, null, null], workers: 2, crashes: 1, losses: 1 }],
  ['two jobs, two living workers declared dead, a lost answer', { ...TWO, suspicions: 2, losses: 1 }],
];

const MEDIUM_PLANTS: [Plant, QueueModelOptions, string][] = [
  ['gaps are not noted', THREE, 'a job of a key began before an earlier one was over'],
  ['the epoch of a key begins anew', PRUNED, 'the token of a key fell'],
  ['heads of keys go whatever has changed', PRUNED, 'stuck'],
  ['the version of a key begins anew', { ...ALONE, doubles: 1 }, 'a job was settled twice'],
];

const LARGE_PLANTS: [Plant, QueueModelOptions, string][] = [
  ['a taker forgets pokes', { ...KEY, suspicions: 1, losses: 1 }, 'stuck'],
  ['an old claim takes a key', { ...KEY, suspicions: 1, failures: 1 }, 'stuck'],
];

// Invariants Q1, Q2, Q3, Q4.
test.each([...SMALL, ...(MODELS ? MEDIUM : []), ...(LONG ? LARGE : [])])(
  'no job is lost, settled twice or run by two, and a key keeps its order: %s',
  (_, options) => {
    const { fault, stuck, states } = explore({ ...queueModel(options), name: nameOfState }, MOST);
    expect(fault).toBeUndefined();
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(50);
  },
  900_000,
);

test.each<[Plant, QueueModelOptions, string]>([
  ['claims expect nothing', TWO, 'two own the same job or key'],
  ['settlements expect nothing', { ...TWO, suspicions: 1 }, 'a job was settled twice'],
  ['missing pieces are not noted', TWO, 'stuck'],
  ['the living are rescued without a sign', TWO, 'two run the same job or key'],
  ['an empty piece replaces what is there', { ...TWO, voids: 1 }, 'stuck'],
  ['a held key is not marked by a poke', KEY, 'stuck'],
  ['the poke comes before the job of the key', KEY, 'stuck'],
  ['a job that comes late is taken for over', KEY, 'stuck'],
  ['the poke of a retry is over', { producers: ['k'], workers: 2, failures: 1 }, 'stuck'],
  ['a claim that was given back still holds its key', { ...KEY, producers: ['k'], losses: 1 }, 'stuck'],
  ['heads of keys go first', ALONE, 'a job was settled twice'],
  ['the poke of those that rest is over', { ...REST, producers: ['k'], rests: [true] }, 'stuck'],
  ...(MODELS ? MEDIUM_PLANTS : []),
  ...(LONG ? LARGE_PLANTS : []),
])('a planted bug is found: %s', (plant, options, words) => {
  const { fault, stuck } = explore({ ...queueModel({ ...options, plant }), name: nameOfState }, MOST);
  expect(fault?.what ?? (stuck && 'stuck')).toBe(words);
});
