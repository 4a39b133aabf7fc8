import type { Fault } from '../fault.ts';
import type { KindName, Orders } from './declaration.ts';
import type { Group, Hold, NewJob, Operation, QueuePlan } from './plan.ts';
import type { PlantName } from './plants.ts';

/** What is peculiar to a schedule that forces one situation; the rest is two workers, and nothing that goes wrong. */
interface Scene {
  readonly operations: readonly Operation[];
  readonly faults?: readonly Fault[];
  readonly hold?: Hold;
  readonly concurrency?: number;
  readonly prefetch?: number;
}

const LEASE_MS = 1500;
/** Longer than a lease and the rescue after it. */
const AGES_MS = 8000;

let numbers = 0;

function job(kind: KindName, key: string | null, orders: Partial<Orders> = {}, delayMs = 0): NewJob {
  numbers += 1;
  const usual: Orders = { n: numbers, ms: 0, how: 'well', times: 1, lateMs: 0 };
  return { kind, key, priority: 0, delayMs, orders: { ...usual, ...orders } };
}

function several(n: number, make: (nth: number) => NewJob): Operation {
  return { restMs: 0, jobs: Array.from({ length: n }, (_, nth) => make(nth)), how: 'alone', cancels: false };
}

function group(n: number, make: () => NewJob, of: Group): Operation {
  return { ...several(n, make), how: 'committed', group: of };
}

/** One after another, each in a transaction of its own. */
function each(n: number, make: (nth: number) => NewJob): Operation[] {
  return Array.from({ length: n }, (_, nth) => several(1, () => make(nth)));
}

/** Schedules in which the bug of a plant shows. */
const SCENES: Readonly<Record<PlantName, () => Scene>> = {
  // It is asked before the lease is over, and answered after somebody else has had the job.
  'the guard does nothing': () => ({
    operations: [several(6, () => job('plain', null, { lateMs: 600 }))],
    faults: [{ at: 300, do: 'freeze', whom: 0, ms: AGES_MS }],
  }),
  'a rescue charges no job': () => ({
    operations: [several(6, () => job('plain', null, { ms: 700 }))],
    faults: [{ at: 300, do: 'kill', whom: 0, ms: 100 }],
  }),
  'the order is reversed': () => ({ operations: each(12, () => job('plain', 'k', { ms: 60 })) }),
  'a key is claimed twice': () => ({ operations: each(12, () => job('plain', 'k', { ms: 60 })) }),
  // What one process has claimed together may have one token: so others go on with the key.
  'a token stands still': () => ({
    operations: each(20, () => job('plain', 'k', { ms: 100 })),
    faults: [600, 1500].flatMap((at) => [0, 1].map((whom) => ({ at, do: 'kill', whom, ms: 100 }) as const)),
  }),
  // What was claimed ahead goes back when its worker is told to stop.
  'a release charges': () => ({
    operations: [several(40, () => job('plain', null, { ms: 200 }))],
    faults: [{ at: 300, do: 'deploy', whom: 0, ms: 0 }],
    prefetch: 20,
  }),
  'what was not run is complete': () => ({
    operations: [several(30, (nth) => job('plain', null, { ms: 50 + nth }))],
    prefetch: 20,
  }),
  'a unique job is there twice': () => ({ operations: each(4, () => job('create', 'k')) }),
  'a predecessor is not waited for': () => ({
    operations: [several(1, () => job('create', 'k', {}, 1200)), several(1, () => job('update', 'k'))],
  }),
  'an acknowledged job is lost': () => ({ operations: each(12, () => job('plain', null)) }),
  'an effect is outside of its transaction': () => ({
    operations: each(6, () => job('plain', null, { how: 'throw late' })),
    hold: 'transaction',
  }),
  // It stands still with more in its hands than it has begun, and what it was at ends before any timer can tell it.
  'a unit begins after its claim is lost': () => ({
    operations: [several(40, (nth) => job('plain', null, nth === 0 ? { ms: 5000, how: 'block and throw' } : {}))],
    concurrency: 1,
    prefetch: 20,
  }),
  'a child does not wait for its parents': () => ({
    operations: [group(4, () => job('plain', null, { ms: 500 }), { as: 'flow' })],
  }),
  'a callback is enqueued twice': () => ({
    operations: [group(4, () => job('plain', null), { as: 'batch', callback: 1000 })],
  }),
  'a dead letter is forgotten': () => ({ operations: each(3, () => job('fragile', null, { how: 'refuse' })) }),
  'two are outstanding': () => ({ operations: each(3, () => job('only', 'k', { ms: 500 })) }),
};

/** The schedule that shows a plant; without the plant, it is one like any other. */
export function planForced(name: PlantName): QueuePlan {
  numbers = 0;
  const { operations, faults = [], hold = 'lease', concurrency = 3, prefetch = 0 } = SCENES[name]();
  const worker = { hold, concurrency, prefetch, version: 2 };
  return {
    seed: 0,
    title: name,
    faults,
    hasOwnServer: false,
    shards: 1,
    leaseMs: LEASE_MS,
    isRelated: true,
    workers: [worker, worker],
    producers: [operations],
  };
}
