import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { LONG, MODELS } from '../../../support/long.ts';
import { type ActorModelOptions, actorModel, nameOfState, type Plant } from './model.ts';

const MOST = 1_500_000;

/** One actor that is due, and two workers. */
const DUE: ActorModelOptions = { raisers: 0, workers: 2 };
const RAISED: ActorModelOptions = { ...DUE, raisers: 1 };

const SMALL: [string, ActorModelOptions][] = [
  ['a raise', RAISED],
  ['a raise, a death', { ...RAISED, crashes: 1 }],
  ['a death, a request is carried out twice', { ...DUE, crashes: 1, doubles: 1 }],
  ['a turn that fails', { ...DUE, failures: 1 }],
  ['two turns that fail, a raise', { ...RAISED, workers: 1, failures: 2 }],
  ['a nap, a death', { ...DUE, naps: 1, crashes: 1 }],
  ['a living worker is declared dead', { ...DUE, suspicions: 1 }],
  ['a pause', { ...DUE, pauses: 1 }],
  ['two children', { ...DUE, children: 2 }],
  ['a child, a death', { ...DUE, children: 1, crashes: 1 }],
  ['a turn creates a child, a request is carried out twice', { ...DUE, births: 1, doubles: 1 }],
  ['a child is given to it', { ...DUE, adoptions: 1 }],
  ['a raise meets its removal', { ...RAISED, workers: 1, isRemoved: true }],
  ['its removal, a request is carried out twice', { ...DUE, workers: 1, isRemoved: true, doubles: 1 }],
];

/** Of sixty thousand states. */
const MEDIUM: [string, ActorModelOptions][] = [['a raise, a turn that fails', { ...RAISED, failures: 1 }]];

const LARGE: [string, ActorModelOptions][] = [
  ['two raises', { ...DUE, raisers: 2 }],
  ['a child, and one is given to it', { ...DUE, children: 1, adoptions: 1 }],
  ['a child, a living worker is declared dead', { ...DUE, children: 1, suspicions: 1 }],
  ['a turn creates a child, a lost answer', { ...DUE, births: 1, losses: 1 }],
  ['a child is given to it, a death', { ...DUE, adoptions: 1, crashes: 1 }],
  ['a raise meets its removal, a death', { ...RAISED, isRemoved: true, crashes: 1 }],
  ['a raise meets its removal, a request is carried out twice', { ...RAISED, isRemoved: true, doubles: 1 }],
  ['a raise, a lost answer', { ...RAISED, losses: 1 }],
  ['a raise, a request is carried out twice', { ...RAISED, doubles: 1 }],
  ['a raise, a nap', { ...RAISED, naps: 1 }],
  ['a raise, a pause', { ...RAISED, pauses: 1 }],
  ['a raise, a living worker is declared dead', { ...RAISED, suspicions: 1 }],
  ['a living worker is declared dead, a lost answer', { ...DUE, suspicions: 1, losses: 1 }],
  ['a living worker is declared dead, a request is carried out twice', { ...DUE, suspicions: 1, doubles: 1 }],
  ['a living worker is declared dead, a death', { ...DUE, suspicions: 1, crashes: 1 }],
  ['a living worker is declared dead, a nap', { ...DUE, suspicions: 1, naps: 1 }],
];

// Invariants Y1, Y2.
test.each([...SMALL, ...(MODELS ? MEDIUM : []), ...(LONG ? LARGE : [])])(
  'no raise or end of a child is lost or taken twice, no two workers run an actor, and what is due runs: %s',
  (_, options) => {
    const { fault, stuck, states } = explore({ ...actorModel(options), name: nameOfState }, MOST);
    expect(fault).toBeUndefined();
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(50);
  },
  900_000,
);

const PLANTS: [Plant, ActorModelOptions, string][] = [
  ['claims expect nothing', DUE, 'a living worker has lost its turn'],
  ['the living are rescued without a sign', DUE, 'a living worker has lost its turn'],
  ['commits expect no mark', RAISED, 'stuck'],
  ['what runs is not marked', RAISED, 'stuck'],
  ['a commit under way loses its row', { ...DUE, naps: 1 }, 'stuck'],
  ['the row comes after the commit', { ...DUE, naps: 1, crashes: 1 }, 'stuck'],
  ['absorbed names are forgotten', { ...RAISED, crashes: 1 }, 'a raised semaphore was taken twice'],
  ['the inbox is emptied before the claim', RAISED, 'stuck'],
  ['claims are not noted', { ...DUE, crashes: 1 }, 'stuck'],
  ['a noted claim is not fenced', { ...DUE, suspicions: 1 }, 'stuck'],
  ['absorbed names are forgotten', { ...DUE, children: 1, crashes: 1 }, 'the end of a child was counted twice'],
  ['what runs is not marked', { ...DUE, children: 1 }, 'stuck'],
  ['done() expects no count of children', { ...DUE, adoptions: 1 }, 'an actor has ended before its child'],
  ['births are counted by the next turn', { ...DUE, births: 1 }, 'the end of a child was counted twice'],
  ['names of notes are used again', { ...DUE, suspicions: 1 }, 'stuck'],
  ['what comes for the removed stays', { ...RAISED, workers: 1, isRemoved: true }, 'stuck'],
  ['a removal looks once', { ...RAISED, workers: 1, isRemoved: true }, 'stuck'],
  [
    'claims expect no creation',
    { ...DUE, workers: 1, isRemoved: true, doubles: 1 },
    'a removed actor has a head again',
  ],
];

const LARGE_PLANTS: [Plant, ActorModelOptions, string][] = [
  ['a pause forgets what came', { ...RAISED, pauses: 1 }, 'stuck'],
];

test.each(LONG ? [...PLANTS, ...LARGE_PLANTS] : PLANTS)('a planted bug is found: %s', (plant, options, words) => {
  const { fault, stuck } = explore({ ...actorModel({ ...options, plant }), name: nameOfState }, MOST);
  expect(fault?.what ?? (stuck && 'stuck')).toBe(words);
});
