import type { Fault } from '../fault.ts';
import type { Orders } from './declaration.ts';
import type { ActorPlan, Operation } from './plan.ts';
import type { PlantName } from './plants.ts';

/** The special parts of a schedule that forces one situation. The rest is two dispatchers without faults. */
interface Scene {
  readonly operations: readonly Operation[];
  readonly faults?: readonly Fault[];
}

const LEASE_MS = 1000;
/** Longer than a lease and the rescue after it. */
const AGES_MS = 4000;

const operation = (given: Partial<Operation>): Operation => ({
  restMs: 0,
  what: 'create',
  how: 'alone',
  orders: { n: 0, how: 'well', times: 1, ms: 0, items: 1 },
  counter: 0,
  ...given,
});

/** Operations one after another. */
function several(count: number, given: Partial<Operation>, orders: Partial<Orders> = {}): Operation[] {
  return Array.from({ length: count }, (_, n) =>
    operation({ ...given, orders: { n, how: 'well', times: 1, ms: 0, items: 1, ...orders } }),
  );
}

/** Schedules that show the bug of a plant. */
const SCENES: Readonly<Record<PlantName, Scene>> = {
  // The commit is sent before the lease ends, and arrives after other workers have run the actor.
  'a commit is believed, whatever worker sends it': {
    operations: several(60, { restMs: 60 }, { how: 'throw late', ms: 500 }),
    faults: [{ at: 2000, do: 'freeze', whom: 0, ms: AGES_MS }],
  },
  'a commit leads elsewhere': { operations: several(3, {}) },
  // While a turn of a counter waits, raises of the counter pile up.
  'a raise that comes with others is lost': {
    operations: several(60, { what: 'raise' }),
    faults: [0, 1].map((whom) => ({ at: 50, do: 'block', whom, ms: 600 })),
  },
  'a child is counted twice': { operations: several(3, {}, { items: 4 }) },
  'an epoch stands still': { operations: several(3, {}) },
  'a message is written twice': { operations: several(6, { what: 'send' }) },
  'a message is lost': { operations: several(6, { what: 'send' }) },
  'a parent is not told': { operations: several(3, {}) },
  // The first attempt fails after it has kept a result.
  'what was to be kept is not': { operations: several(3, {}, { how: 'throw' }) },
  'a failed turn moves on': { operations: several(3, {}, { how: 'throw' }) },
};

/** The schedule that shows a plant. Without the plant it breaks no rule. */
export function planForced(name: PlantName): ActorPlan {
  const { operations, faults = [] } = SCENES[name];
  const worker = { concurrency: 8 };
  return {
    seed: 0,
    title: name,
    faults,
    hasOwnServer: false,
    leaseMs: LEASE_MS,
    workers: [worker, worker],
    counters: 1,
    producers: [operations],
  };
}
