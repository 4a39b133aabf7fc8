import { expect, test } from 'vitest';
import { explore } from '../../../support/history/explore.ts';
import { LONG, MODELS } from '../../../support/long.ts';
import { type HandModelOptions, type HandPlant, handModel } from './hand-model.ts';

const MOST = 500_000;

const PLAIN = { workers: 1 } as const;
const KEYED = { workers: 1, isKeyed: true } as const;
const UNIQUE = { workers: 1, unique: 'outstanding' } as const;

const SMALL: [string, HandModelOptions][] = [
  ['a job is cancelled', { ...PLAIN, calls: ['cancel'] }],
  [
    'a job is cancelled, a request is carried out twice, an attempt fails',
    { ...PLAIN, calls: ['cancel'], doubles: 1, failures: 1 },
  ],
  ['a job is cancelled, a death', { ...PLAIN, workers: 2, calls: ['cancel'], crashes: 1 }],
  ['a job is cancelled, and retried by hand', { ...PLAIN, calls: ['cancel', 'retry'] }],
  ['a job is retried by hand, twice', { ...PLAIN, calls: ['retry', 'retry'], failures: 1 }],
  ['a job is changed', { ...PLAIN, workers: 2, calls: ['update'] }],
  ['a job is changed, and cancelled', { ...PLAIN, calls: ['update', 'cancel'] }],
  ['a job is retried by hand, and removed', { ...PLAIN, calls: ['retry', 'remove'], failures: 1 }],
  ['a job is cancelled, and removed', { ...PLAIN, calls: ['cancel', 'remove'] }],
  ['a job of a key is cancelled', { ...KEYED, calls: ['cancel'] }],
  ['a job of a key is changed', { ...KEYED, workers: 2, calls: ['update'] }],
  ['two enqueues of a value, of which one job is outstanding at a time', { ...UNIQUE, calls: ['enqueue', 'enqueue'] }],
  ['an enqueue of a value, whose job is removed', { ...UNIQUE, calls: ['enqueue', 'remove'] }],
  ['an enqueue of a value, whose job is cancelled', { ...UNIQUE, calls: ['enqueue', 'cancel'] }],
  ['two enqueues of a value that has one job ever', { ...PLAIN, unique: 'ever', calls: ['enqueue', 'enqueue'] }],
];

/** Of two to thirty thousand states. */
const MEDIUM: [string, HandModelOptions][] = [
  ['an enqueue of a value, whose job is retried by hand', { ...UNIQUE, calls: ['enqueue', 'retry'], failures: 1 }],
  [
    'an enqueue of a value, of which one job waits at a time',
    { ...UNIQUE, unique: 'waiting', calls: ['enqueue', 'retry'], failures: 1 },
  ],
  ['a job is cancelled, and retried by hand, a lost answer', { ...PLAIN, calls: ['cancel', 'retry'], losses: 1 }],
  [
    'a job is cancelled, and retried by hand, a request is carried out twice',
    { ...PLAIN, calls: ['cancel', 'retry'], doubles: 1 },
  ],
  ['a job of a key is cancelled, and retried by hand', { ...KEYED, calls: ['cancel', 'retry'] }],
  ['a job of a key is changed, and cancelled', { ...KEYED, calls: ['update', 'cancel'] }],
  ['a job of a key is cancelled, and removed', { ...KEYED, calls: ['cancel', 'remove'] }],
  [
    'a job of a key is cancelled, a request is carried out twice, an attempt fails',
    { ...KEYED, calls: ['cancel'], doubles: 1, failures: 1 },
  ],
  ['a job of a key is cancelled, a death', { ...KEYED, workers: 2, calls: ['cancel'], crashes: 1 }],
];

const LARGE: [string, HandModelOptions][] = [
  ['a job is cancelled, retried and changed', { ...PLAIN, calls: ['cancel', 'retry', 'update'] }],
  [
    'a job of a value is cancelled and retried, and another one enqueued',
    { ...UNIQUE, calls: ['cancel', 'retry', 'enqueue'] },
  ],
  [
    'two enqueues of a value, whose job is retried by hand',
    { ...UNIQUE, calls: ['retry', 'enqueue', 'enqueue'], failures: 1 },
  ],
  [
    'a job is cancelled, a death, an attempt fails',
    { ...PLAIN, workers: 2, calls: ['cancel'], crashes: 1, failures: 1 },
  ],
  ['a job of a key is retried by hand, twice', { ...KEYED, calls: ['retry', 'retry'], failures: 1 }],
  ['a job of a key is retried by hand, and removed', { ...KEYED, calls: ['retry', 'remove'], failures: 1 }],
  [
    'a job of a key is cancelled, and retried by hand, a lost answer',
    { ...KEYED, calls: ['cancel', 'retry'], losses: 1 },
  ],
  [
    'a job of a key is cancelled, and retried by hand, a doubled request',
    { ...KEYED, calls: ['cancel', 'retry'], doubles: 1 },
  ],
  [
    'a job of a key and value is retried by hand, and enqueued',
    { ...UNIQUE, isKeyed: true, calls: ['enqueue', 'retry'], failures: 1 },
  ],
];

// Invariants Q1, Q5.
test.each([...SMALL, ...(MODELS ? MEDIUM : []), ...(LONG ? LARGE : [])])(
  'a job ends once, as it is told, runs as it was changed, and is the only one of its value: %s',
  (_, options) => {
    const { fault, stuck, states } = explore(handModel(options), MOST);
    expect(fault).toBeUndefined();
    expect(stuck).toBeUndefined();
    expect(states).toBeGreaterThan(50);
  },
  900_000,
);

const WRONGLY = 'it is told wrongly how a job has ended';
const TWO = 'two jobs of one value are outstanding';

const PLANTS: [HandPlant, HandModelOptions, string][] = [
  ['a job is taken out without a record', { ...KEYED, calls: ['cancel'] }, WRONGLY],
  ['a record by hand counts more than what was read', { ...PLAIN, calls: ['cancel'] }, WRONGLY],
  ['a job that a worker has had is taken out', { ...PLAIN, workers: 2, calls: ['cancel'], crashes: 1 }, WRONGLY],
  ['a running job is taken out', { ...PLAIN, calls: ['cancel'] }, WRONGLY],
  [
    'a change by hand leaves the head alone',
    { ...PLAIN, workers: 2, calls: ['update'] },
    'a job began with what was changed',
  ],
  [
    'a change by hand leaves the head alone',
    { ...KEYED, workers: 2, calls: ['update'] },
    'a job began with what was changed',
  ],
  [
    'a retry expects no mark',
    { ...PLAIN, calls: ['retry', 'retry'], failures: 1 },
    'a job was brought back that had not failed',
  ],
  [
    'a retry leaves its row alone',
    { ...PLAIN, calls: ['retry', 'remove'], failures: 1 },
    'a job that is outstanding was removed',
  ],
  ['a retry forgets the value', { ...UNIQUE, calls: ['enqueue', 'retry'], failures: 1 }, TWO],
  ['an enqueue expects nothing of the value', { ...UNIQUE, calls: ['enqueue', 'enqueue'] }, TWO],
  ['the job is judged before the value is read', { ...UNIQUE, calls: ['enqueue', 'enqueue'] }, TWO],
];

test.each(PLANTS)('a planted bug is found: %s', (plant, options, words) => {
  const { fault, stuck } = explore(handModel({ ...options, plant }), MOST);
  expect(fault?.what ?? (stuck && 'stuck')).toBe(words);
});
