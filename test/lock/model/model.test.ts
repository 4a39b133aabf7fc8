import { expect, test } from 'vitest';
import { explore } from '../../support/history/explore.ts';
import { LONG } from '../../support/long.ts';
import { type OursOptions, ourProtocol, publishedDesign } from './model.ts';

const MOST = 6_000_000;

test('the published ticket design has two holders, without any failure', () => {
  const { fault } = explore(publishedDesign(2), MOST);
  expect(fault?.what).toBe('two hold it');
  expect(fault?.trace).toEqual([
    'start',
    '0 takes ticket 1',
    '1 takes ticket 2',
    '1 puts row 2',
    '1 sees itself first',
    '0 puts row 1',
    '0 sees itself first',
  ]);
});

const QUIET: OursOptions = { clients: 3, crashes: 0, isSuspicious: false, losses: 0 };

const ALL: OursOptions = { ...QUIET, isSuspicious: true, losses: 1, crashes: 1 };

const SMALL: [string, OursOptions][] = [
  ['three clients, without a failure', QUIET],
  ['three clients, two of which may die anywhere', { ...QUIET, crashes: 2 }],
  ['three clients, and an answer lost anywhere', { ...QUIET, losses: 1 }],
  ['two clients, answers lost anywhere, and a death', { ...QUIET, clients: 2, losses: 4, crashes: 1 }],
  ['three clients, live ones declared dead', { ...QUIET, isSuspicious: true }],
  ['two clients, all of it at once', { clients: 2, isSuspicious: true, losses: 4, crashes: 1 }],
];

/** The last one has some three hundred thousand states. */
const LARGE: [string, OursOptions][] = [
  ['three clients, two answers lost anywhere, and a death', { ...QUIET, losses: 2, crashes: 1 }],
  ['three clients, live ones declared dead, and a death anywhere', { ...QUIET, isSuspicious: true, crashes: 1 }],
  ['three clients, an answer lost, and live ones declared dead', { ...QUIET, isSuspicious: true, losses: 1 }],
  ['three clients, all of it at once', ALL],
];

// Invariant L1.
test.each(LONG ? [...SMALL, ...LARGE] : SMALL)(
  'our protocol never has two holders, reuses no token, and never gets stuck: %s',
  (_, options) => {
    const { fault, stuck, states } = explore(ourProtocol(options), MOST);
    expect(fault).toBeUndefined();
    // In the model, clients that were declared dead too often give up. Then it is no fault that they are stuck.
    if (!options.isSuspicious) expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(100);
  },
  900_000,
);

test('a planted grant that checks neither the turn nor earlier decisions is found', () => {
  const planted = 'a grant asks neither whose turn it is nor what was decided';
  const { fault } = explore(ourProtocol({ ...QUIET, planted }), MOST);
  expect(fault?.what).toBe('two believe that they hold it');
});
