import type { Fault } from '../fault.ts';
import { type KindName, type Orders, PER_TENANT } from './declaration.ts';
import type { Hand } from './hands/hand.ts';
import { type Enqueue, type Group, type Hold, type NewJob, newest, type Operation, type QueuePlan } from './plan.ts';
import type { PlantName } from './plants.ts';

/** The special parts of a schedule that forces one situation. The rest is two workers without faults. */
interface Scene {
  readonly operations: readonly Operation[];
  readonly faults?: readonly Fault[];
  readonly hold?: Hold;
  readonly concurrency?: number;
  readonly prefetch?: number;
  readonly perTenant?: number;
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

function several(n: number, make: (nth: number) => NewJob): Enqueue {
  return { restMs: 0, jobs: Array.from({ length: n }, (_, nth) => make(nth)), how: 'alone', cancels: false };
}

function group(n: number, make: (nth: number) => NewJob, of: Group): Enqueue {
  return { ...several(n, make), how: 'committed', group: of };
}

/** Jobs that are enqueued one after another, each in its own transaction. */
function each(n: number, make: (nth: number) => NewJob): Enqueue[] {
  return Array.from({ length: n }, (_, nth) => several(1, () => make(nth)));
}

function byHand(hand: Hand, restMs = 0): Operation {
  return { restMs, hand };
}

/** A pause, and jobs that are enqueued after it. */
function paused(): Operation[] {
  const part = { tag: 'p0' };
  const tagged = several(3, () => ({ ...job('plain', null), tag: 'p0' }));
  return [byHand({ do: 'pause', part }), tagged, byHand({ do: 'resume', part }, 500)];
}

/** Schedules that show the bug of a plant. */
const SCENES: Readonly<Record<PlantName, () => Scene>> = {
  // The guard is sent before the lease ends, and answered after another worker has run the job.
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
  // Jobs of one claim may have one token, so another process must continue the key.
  'a token stands still': () => ({
    operations: each(20, () => job('plain', 'k', { ms: 100 })),
    faults: [600, 1500].flatMap((at) => [0, 1].map((whom) => ({ at, do: 'kill', whom, ms: 100 }) as const)),
  }),
  // A worker that stops gives back the jobs that it claimed ahead.
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
  // The worker is blocked while it has jobs that have not begun. Its running job ends before a timer can report the lost lease.
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
  'what a job says of its letter is forgotten': () => ({
    operations: each(3, (nth) => ({
      ...job(nth === 0 ? 'fragile' : 'plain', null, { how: 'refuse' }),
      onError: 'own',
    })),
  }),
  // The jobs end one after another. With the bug, each end admits more jobs than one.
  'places are not counted': () => ({
    operations: [several(6, (nth) => ({ ...job('plain', null, { ms: 800 + 400 * nth }), tenant: 't1' }))],
  }),
  'a rate has room for all': () => ({
    operations: [several(120, () => ({ ...job('plain', null, { ms: 200 }), tenant: 't1' }))],
    // All places at once: on a slow machine, two places run fewer jobs than the rate allows.
    perTenant: 120,
    concurrency: 60,
  }),
  'two are outstanding': () => ({ operations: each(3, () => job('only', 'k', { ms: 500 })) }),
  'two wait': () => ({
    operations: [several(1, () => job('plain', 'k', { ms: 600 })), ...each(3, () => job('waiting', 'k'))],
  }),
  'a throttle lets through': () => ({ operations: each(3, () => job('throttled', 'k')) }),
  'a replacement is forgotten': () => ({
    operations: [several(1, () => job('plain', 'k', { ms: 600 })), ...each(3, () => newest(job('replaced', 'k')))],
  }),
  'debounced jobs do not wait': () => ({
    operations: Array.from({ length: 6 }, () => ({ ...several(1, () => job('saved', 'k')), restMs: 150 })),
  }),
  'a snooze does not wait': () => ({ operations: [several(3, () => job('plain', null, { how: 'snooze' }))] }),
  // All workers are busy until the expiry.
  'an expired job begins': () => ({
    operations: [
      several(4, () => job('plain', null, { ms: 600 })),
      several(3, () => ({ ...job('plain', null), expiresMs: 100 })),
    ],
    concurrency: 1,
  }),
  'an update is forgotten': () => {
    const late = job('plain', null, {}, 3000);
    const hand = { do: 'update', n: late.orders.n, version: 1, delayMs: null } as const;
    return { operations: [several(1, () => late), byHand(hand)] };
  },
  'what is erased stays': () => {
    const late = job('plain', null, {}, 5000);
    return { operations: [several(1, () => late), byHand({ do: 'erase', n: late.orders.n })] };
  },
  'what was completed by hand runs': () => {
    const late = job('plain', null, {}, 1500);
    return { operations: [several(1, () => late), byHand({ do: 'finish', n: late.orders.n })] };
  },
  'a key goes on past an error': () => ({
    operations: [several(6, (nth) => job('book', 'b1', nth === 0 ? { how: 'refuse' } : { ms: 50 }))],
  }),
  'outcomes of a batch are mixed up': () => ({
    operations: [several(24, (nth) => job('batched', null, nth % 2 === 0 ? { how: 'refuse' } : {}))],
  }),
  'a child runs though its parent failed': () => ({
    operations: [
      group(2, (nth) => job('plain', null, nth === 0 ? { how: 'refuse' } : {}), { as: 'flow', afterError: 'error' }),
    ],
  }),
  // Two children wait for jobs of one bucket, so their watches are a pack.
  'a pack lets go too early': () => ({
    operations: [group(4, (nth) => job('plain', null, { ms: nth * 800 }), { as: 'flow', after: [[0, 1], [1]] })],
  }),
  'a pack knows nothing of failures': () => ({
    operations: [
      group(4, (nth) => job('plain', null, nth === 0 ? { how: 'refuse' } : {}), {
        as: 'flow',
        after: [[0], [1]],
        afterError: 'error',
      }),
    ],
  }),
  'a batch calls the wrong one': () => ({
    operations: [group(4, () => job('plain', null), { as: 'batch', callback: 1000, completes: 1001, fails: 1002 })],
  }),
  'a batch does not wait for the one in it': () => ({
    operations: [
      group(4, (nth) => job('plain', null, nth < 2 ? {} : { ms: 800 }), {
        as: 'batch',
        callback: 1000,
        nested: { n: 2, callback: 1001 },
      }),
    ],
  }),
  'a paused part goes on': () => ({ operations: paused() }),
  // The workers are busy, and the client works for longer than its first lease and the next rescue.
  'an extension is forgotten': () => ({
    operations: [
      several(2, () => job('plain', null, { ms: 600 })),
      several(20, () => job('plain', null, { ms: 300 })),
      byHand({ do: 'pull', limit: 20, leaseMs: 1000, dies: false }),
    ],
    concurrency: 1,
  }),
};

/** The schedule that shows a plant. Without the plant it breaks no rule. */
export function planForced(name: PlantName): QueuePlan {
  numbers = 0;
  const {
    operations,
    faults = [],
    hold = 'lease',
    concurrency = 3,
    prefetch = 0,
    perTenant = PER_TENANT,
  } = SCENES[name]();
  const worker = { hold, concurrency, prefetch, version: 2 };
  return {
    seed: 0,
    title: name,
    faults,
    hasOwnServer: false,
    shards: 1,
    leaseMs: LEASE_MS,
    isRelated: true,
    hasBatches: hold === 'lease',
    hasRate: name === 'a rate has room for all',
    perTenant,
    hasLedger: name === 'a key goes on past an error',
    workers: [worker, worker],
    producers: [operations],
  };
}
