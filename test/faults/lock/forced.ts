import type { Fault } from '../fault.ts';
import { type EngineName, type LockPlan, planLocks, SHARED, type Step } from './plan.ts';
import { FAILURE } from './plants.ts';

const LEASE_MS = 1000;

const step = (given: Partial<Step> = {}): Step => ({
  restMs: 0,
  kind: 'exclusive',
  names: ['n'],
  capacity: 1,
  leaseMs: LEASE_MS,
  waitMs: null,
  isFair: true,
  abortMs: null,
  holdMs: 20,
  writing: null,
  ...given,
});

const several = (n: number, given: Partial<Step>): Step[] => Array.from({ length: n }, () => step(given));

interface Scene {
  readonly clients: readonly (readonly (readonly Step[])[])[];
  readonly faults?: readonly Fault[];
}

const alone = { pauseMs: 0, lateMs: 0, isUnaware: true } as const;
/** Blocks for longer than the lease between its read and its guard, and ignores its own clock. */
const late = step({ writing: { ...alone, stands: { when: 'before', ms: 6 * LEASE_MS } } });
/** Blocks between its guard and its commit. */
const slow = step({ writing: { ...alone, stands: { when: 'after', ms: 8 * LEASE_MS } } });
const quick = step({ restMs: 300, writing: { pauseMs: 0, lateMs: 0, isUnaware: false } });
const crowd = (given: Partial<Step>): Step[][] => Array.from({ length: 3 }, () => several(6, given));

/** Schedules that show the bug of a plant. */
const SCENES: Readonly<Record<string, Scene>> = {
  'the guard does nothing': { clients: [[[late]], [[quick, quick]]] },
  'the guard lets others in': { clients: [[[slow]], [[quick, quick]]] },
  'a held lock is taken': { clients: [crowd({ holdMs: 60 }), crowd({ holdMs: 60 })] },
  'readers read together with a writer': {
    clients: [[several(2, { holdMs: 800 })], [several(2, { kind: 'shared', capacity: SHARED, restMs: 300 })]],
  },
  'who came last is served first': {
    // A lock is handed over if its lease is longer than the place.
    clients: [0, 1, 2].map(() => [0, 1].map(() => several(3, { leaseMs: 5000, holdMs: 250 }))),
  },
  'a token stands still': { clients: [[several(6, { holdMs: 5 })], [several(6, { holdMs: 5 })]] },
  'a renewal renews nothing': { clients: [[[step({ holdMs: 6000 })]], [several(2, { restMs: 300, holdMs: 300 })]] },
  'leases end too early': {
    clients: [[[step({ holdMs: 7000, leaseMs: 3000 })]], [several(3, { restMs: 300, leaseMs: 3000, holdMs: 1000 })]],
    faults: [{ at: 2500, do: 'silence', whom: 0, ms: 3000 }],
  },
  'a release releases nothing': { clients: [[several(9, { holdMs: 5 })], [several(9, { holdMs: 5 })]] },
  'a run is not counted': {
    clients: [0, 1].map(() => [several(3, { kind: 'once', names: ['daily'], restMs: 50 })]),
  },
  'who lost it is not told': {
    clients: [[[step({ holdMs: 8000, leaseMs: 1500 })]], [[step({ kind: 'break', restMs: 2500 }), quick]]],
  },
  // A process that wakes checks its belief again.
  'holders believe for ever': {
    clients: [[[step({ ...late, holdMs: 500 })]], [[step({ restMs: 300, holdMs: 8000 })]]],
  },
  'waits end by the wall clock': {
    // The clock is set while the client waits, however late its process started.
    clients: [[[step({ holdMs: 11_000 })]], [[step({ restMs: 500, waitMs: 10_000 })]]],
    faults: [{ at: 6000, do: 'clock', whom: 1, ms: 3_600_000 }],
  },
  'conditions always hold': { clients: [crowd({ holdMs: 60 }), crowd({ holdMs: 60 })] },
  'a refusal is taken for a grant': { clients: [crowd({ holdMs: 60 }), crowd({ holdMs: 60 })] },
  'a committed write is gone': { clients: [[[quick]]] },
  [FAILURE]: { clients: [[[quick]], [[quick]]] },
};

/** @throws Error  there is no scene for the plant */
export function planForced(engine: EngineName, plant: string): LockPlan {
  const scene = SCENES[plant];
  if (scene === undefined) throw new Error(`there is no schedule for the plant "${plant}"`);
  const { clients, faults = [] } = scene;
  return { ...planLocks(engine)(0), title: `forced: ${plant}`, faults, hasOwnServer: false, waiterMs: 2000, clients };
}
