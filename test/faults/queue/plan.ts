import { Draw } from '../../support/random.ts';
import { drawFaults, type FaultName, USUAL } from '../fault.ts';
import type { Plan } from '../plan.ts';
import { APART, type KindName, type Manner, type Orders, PER_TENANT } from './declaration.ts';
import { type ByHand, HandDraw } from './hands/hand.ts';
import { namesLetter } from './letters.ts';

export type Hold = 'lease' | 'transaction';

export interface WorkerPlan {
  readonly hold: Hold;
  readonly concurrency: number;
  readonly prefetch: number | 'auto';
  readonly version: number;
}

/** One operation of a producer. */
export type Operation = Enqueue | ByHand;

/** An enqueue of one or several `jobs` together. */
export interface Enqueue {
  /** The pause of the producer before it. */
  readonly restMs: number;
  readonly jobs: readonly NewJob[];
  /** `alone`: without a transaction of the producer. */
  readonly how: 'alone' | 'committed' | 'rolled back';
  /** True: the producer then cancels the first job. */
  readonly cancels: boolean;
  readonly group?: Group | undefined;
}

/** Jobs that belong together: a flow, whose last jobs come after others, or a batch, with the number of its callback. */
export type Group = Flow | JobBatch;

/** The outcome of a job if one of its parents did not complete. */
export type Fate = 'run' | 'error' | 'cancel';

export interface Flow {
  readonly as: 'flow';
  /** For each of the last jobs, the indexes of its parents among the first. Default: the last job comes after all others. */
  readonly after?: readonly (readonly number[])[];
  /** Default: it runs. */
  readonly afterError?: Fate;
  readonly afterCancel?: Fate;
}

/** The children of a flow, each with its parents. */
export function childrenOf<Job>({ after }: Flow, jobs: readonly Job[]): { child: Job; parents: Job[] }[] {
  const all = after ?? [jobs.slice(1).map((_, nth) => nth)];
  const first = jobs.length - all.length;
  return all.map((parents, nth) => ({
    child: jobs[first + nth] as Job,
    parents: parents.map((at) => jobs[at] as Job),
  }));
}

export interface JobBatch {
  readonly as: 'batch';
  /** The callback when all jobs have ended. */
  readonly callback: number;
  /** The callbacks if all jobs completed, and if one did not. */
  readonly completes?: number;
  readonly fails?: number;
  /** The last `n` of its jobs are in an inner batch with its own callback. The outer batch waits for the inner one. */
  readonly nested?: { readonly n: number; readonly callback: number };
}

export interface NewJob {
  readonly kind: KindName;
  readonly key: string | null;
  readonly priority: number;
  /** The delay from the enqueue, in milliseconds. */
  readonly delayMs: number;
  /** The job must begin within this time from the enqueue, in milliseconds, or never does. */
  readonly expiresMs?: number | undefined;
  readonly tag?: string | undefined;
  /** The group of the job. */
  readonly tenant?: string | undefined;
  /** The kind of its dead letter, in place of the one that its kind names. */
  readonly onError?: 'own' | undefined;
  readonly orders: Orders;
}

export interface QueuePlan extends Plan {
  readonly shards: number;
  readonly leaseMs: number;
  /** Whether kinds coalesce or come after others. Keys of such kinds are claimed in another way. */
  readonly isRelated: boolean;
  /** Whether a batch handler exists. */
  readonly hasBatches: boolean;
  /** Whether tenants have a rate: only if all workers hold by leases, because a rolled back transaction leaves no row of its start. */
  readonly hasRate: boolean;
  /** How many jobs of a tenant run at a time. */
  readonly perTenant: number;
  /** Whether a second queue exists, whose keys stop at an error. */
  readonly hasLedger: boolean;
  readonly workers: readonly WorkerPlan[];
  readonly producers: readonly (readonly Operation[])[];
}

const MS = { faults: 4000 };

export function planQueue(seed: number): QueuePlan {
  const draw = new Draw(seed, 'shape');
  const holds = draw.weighted({ lease: 4, transaction: 4, both: 2 });
  const shards = draw.pick(1, 1, 2, 3);
  const leaseMs = draw.pick(1500, 2000, 3000);
  const hasVersions = draw.chance(0.1);
  const isRelated = draw.chance(0.6);
  const restarts = draw.chance(0.2);
  const workers = Array.from(
    { length: draw.int(2, 3) },
    (_, index): WorkerPlan => ({
      hold: holds === 'both' ? (index % 2 === 0 ? 'lease' : 'transaction') : holds,
      concurrency: draw.int(1, 5),
      prefetch: draw.pick<number | 'auto'>('auto', 'auto', 0, 20),
      version: hasVersions && index === 0 ? 1 : 2,
    }),
  );
  const keys = draw.pick(1, 3, 8);
  const hasTransactions = workers.some(({ hold }) => hold === 'transaction');
  const more = new Draw(seed, 'more');
  const hasLedger = more.chance(0.5);
  const hasBatches = !hasTransactions && more.chance(0.6);
  const hasRate = !hasTransactions && new Draw(seed, 'rate').chance(0.3);
  const shape = { keys, hasVersions, isRelated, hasTransactions, hasLedger, hasBatches };
  const producers = drawProducers(seed, shape);
  const faults = drawFaults(new Draw(seed, 'faults'), {
    n: draw.int(3, 8),
    members: workers.length + producers.length,
    withinMs: MS.faults,
    leaseMs,
    weights: restarts ? { ...USUAL, restart: 4 } : USUAL,
  });
  const title = [
    holds === 'both' ? 'both holds' : holds,
    `${workers.length} workers`,
    `${shards} shards`,
    `${keys} keys`,
    `lease ${leaseMs}`,
    ...(isRelated ? ['related kinds'] : []),
    ...(hasVersions ? ['two versions'] : []),
    ...(hasBatches ? ['batch handlers'] : []),
    ...(hasLedger ? ['keys that stop'] : []),
    ...(hasRate ? ['rates'] : []),
  ].join(', ');
  const hasOwnServer = faults.some((fault) => fault.do === ('restart' satisfies FaultName));
  const declared = { shards, isRelated, hasBatches, hasRate, perTenant: PER_TENANT, hasLedger };
  return { seed, title, faults, hasOwnServer, leaseMs, ...declared, workers, producers };
}

/** The common features of the jobs of a plan. */
interface Shape {
  readonly keys: number;
  readonly hasVersions: boolean;
  readonly isRelated: boolean;
  readonly hasTransactions: boolean;
  readonly hasLedger: boolean;
  readonly hasBatches: boolean;
}

function drawProducers(seed: number, shape: Shape): Operation[][] {
  let n = 0;
  return [0, 1].map((producer) => {
    const draw = new Draw(seed, `producer ${producer}`);
    const drawn = Array.from({ length: draw.int(15, 40) }, (): Enqueue => {
      const one = (): NewJob => drawJob(draw, (n += 1), shape);
      const first = one();
      const many = first.kind === 'create' || !draw.chance(0.25) ? 0 : draw.int(2, 25);
      const others = Array.from({ length: many }, one).filter(({ kind }) => kind !== 'create');
      return {
        restMs: draw.int(0, 150),
        jobs: [first, ...others],
        how: draw.weighted({ alone: 6, committed: 2, 'rolled back': 1 }),
        cancels: draw.chance(0.04),
      };
    });
    const more = new Draw(seed, `groups ${producer}`);
    let number = 10_000 * (producer + 1);
    for (let left = 6; left > 0; left -= 1) {
      const one = drawGroup(more, () => (number += 1), shape);
      drawn.splice(more.int(0, drawn.length), 0, one);
    }
    const last = new Draw(seed, `tenants ${producer}`);
    const enqueues = drawn.map((each) => ({ ...each, jobs: each.jobs.map((job) => ofTenant(last, job)) }));
    const operations = addByHand(seed, producer, enqueues, () => (number += 1), shape);
    const all = addReplacing(new Draw(seed, `replaced ${producer}`), operations, () => (number += 1), shape);
    const letters = new Draw(seed, `letters ${producer}`);
    return all.map((operation) => nameLetters(letters, operation));
  });
}

function nameLetters(draw: Draw, operation: Operation): Operation {
  if ('hand' in operation) return operation;
  return {
    ...operation,
    jobs: operation.jobs.map((job) => (namesLetter(draw, job) ? { ...job, onError: 'own' } : job)),
  };
}

/** Half of the jobs without a key have a tenant. */
function ofTenant(draw: Draw, job: NewJob): NewJob {
  const takes = job.key === null && ['plain', 'timed', 'fragile'].includes(job.kind);
  return takes && draw.chance(0.5) ? { ...job, tenant: draw.pick('t1', 't1', 't2') } : job;
}

/** Adds bursts of unique and throttled jobs, and changes by hand, between the other operations. */
function addByHand(
  seed: number,
  producer: number,
  enqueues: readonly Enqueue[],
  next: () => number,
  shape: Shape,
): Operation[] {
  const draw = new Draw(seed, `by hand ${producer}`);
  const mixed = [...enqueues];
  for (let left = 4; left > 0; left -= 1)
    mixed.splice(draw.int(0, mixed.length), 0, drawBurst(draw, producer, next, shape));
  const hands = new HandDraw(draw, producer);
  const operations: Operation[] = [...mixed];
  const places = Array.from({ length: 6 }, () => draw.int(1, mixed.length)).toSorted((a, b) => a - b);
  for (const [nth, place] of places.entries()) {
    const known = mixed.slice(0, place).flatMap((enqueue) => (isChangeable(enqueue) ? enqueue.jobs : []));
    const change = hands.change(known.map(({ kind, orders }) => ({ kind, n: orders.n })));
    if (change !== undefined) operations.splice(Math.min(place + nth, operations.length), 0, change);
  }
  const from = draw.int(0, operations.length);
  const [pause, resume] = hands.pause();
  operations.splice(draw.int(from, operations.length), 0, resume);
  operations.splice(from, 0, pause);
  for (let left = draw.int(1, 3); left > 0; left -= 1)
    operations.splice(draw.int(0, operations.length), 0, hands.pull());
  if (draw.chance(0.3)) operations.splice(draw.int(0, operations.length), 0, hands.cancelAll());
  return operations;
}

/** Adds bursts of jobs that replace the payload of waiting ones. Their other options are equal. */
function addReplacing(draw: Draw, operations: readonly Operation[], next: () => number, shape: Shape): Operation[] {
  const mixed = [...operations];
  for (let left = 4; left > 0; left -= 1) {
    const jobs = Array.from({ length: draw.int(1, 3) }, () => newest(drawJobOf(draw, next(), 'replaced', shape)));
    const how = draw.weighted({ alone: 4, committed: 2, 'rolled back': 1 });
    mixed.splice(draw.int(0, mixed.length), 0, { restMs: draw.int(0, 100), jobs, how, cancels: false });
  }
  return mixed;
}

/** The job with its number as version, by which runs distinguish payloads. */
export function newest(job: NewJob): NewJob {
  return { ...job, priority: 0, delayMs: 0, orders: { ...job.orders, version: job.orders.n } };
}

/** Jobs that belong together are not changed by hand, nor are rolled back ones. */
function isChangeable({ group, how }: Enqueue): boolean {
  return group === undefined && how !== 'rolled back';
}

/** A burst of unique, throttled, debounced, expiring or pausable jobs. */
function drawBurst(draw: Draw, producer: number, next: () => number, shape: Shape): Enqueue {
  const more = { batched: shape.hasBatches ? 4 : 0, book: shape.hasLedger ? 4 : 0 };
  const what = draw.weighted({
    waiting: 3,
    throttled: 2,
    saved: shape.isRelated ? 3 : 0,
    expiring: 2,
    tagged: 3,
    ...more,
  });
  const kind = what === 'expiring' || what === 'tagged' ? draw.pick<KindName>('plain', 'timed', 'fragile') : what;
  const one = (): NewJob => {
    const job = drawJobOf(draw, next(), kind, shape);
    if (what === 'book') return drawEntry(job, draw, shape);
    if (what === 'expiring') return { ...job, expiresMs: draw.int(1, 600) };
    return what === 'tagged' ? { ...job, tag: `p${producer}` } : { ...job, delayMs: 0 };
  };
  const jobs = Array.from({ length: draw.int(1, what === 'batched' ? 12 : 4) }, one);
  return { restMs: draw.int(0, 150), jobs, how: draw.pick('alone', 'committed'), cancels: false };
}

/** An entry of a ledger. One in three uses up its attempts. */
function drawEntry(job: NewJob, draw: Draw, { hasTransactions }: Shape): NewJob {
  const orders = draw.chance(0.35) ? { how: draw.pick<Manner>('throw', 'refuse', 'die'), times: 2 } : {};
  const ms = orders.how === 'die' && hasTransactions ? DYING_MS : job.orders.ms;
  return { ...job, key: `b${draw.int(1, 2)}`, delayMs: 0, orders: { ...job.orders, ms, ...orders } };
}

/** A flow, a batch, a job of a kind with one outstanding job, or a job that probably leaves a dead letter. */
function drawGroup(draw: Draw, next: () => number, shape: Shape): Enqueue {
  const what = draw.weighted({ flow: 2, batch: 2, only: 3, fragile: 2 });
  const one = (kind: KindName): NewJob => drawJobOf(draw, next(), kind, shape);
  const base = { restMs: draw.int(0, 150), cancels: draw.chance(0.1) };
  if (what === 'only' || what === 'fragile') {
    const job = one(what);
    const orders: Orders =
      what === 'only' ? job.orders : { ...job.orders, how: draw.pick('refuse', 'throw'), times: 3 };
    return { ...base, jobs: [{ ...job, orders }], how: draw.pick('alone', 'committed') };
  }
  const jobs = Array.from({ length: draw.int(2, 6) }, () => one(draw.pick('plain', 'plain', 'fragile')));
  const how = draw.weighted({ alone: 0, committed: 6, 'rolled back': 1 });
  if (what === 'batch') {
    const nested = draw.chance(0.4) ? { nested: { n: draw.int(1, jobs.length - 1), callback: next() } } : {};
    const callbacks = { callback: next(), completes: next(), fails: next() };
    return { ...base, jobs, how, group: { as: 'batch', ...callbacks, ...nested } };
  }
  const fate = (): Fate => draw.pick<Fate>('run', 'error', 'cancel');
  const parents = jobs.slice(1);
  const after = Array.from({ length: draw.int(1, 3) }, () => drawSome(parents.length, draw));
  // A job that waits for others does not keep its place in its key.
  const children = after.map(() => ({ ...one('plain'), key: null }));
  return {
    ...base,
    jobs: [...parents, ...children],
    how,
    group: { as: 'flow', after, afterError: fate(), afterCancel: fate() },
  };
}

/** At least one of the numbers below `n`. */
function drawSome(n: number, draw: Draw): number[] {
  const some = Array.from({ length: n }, (_, at) => at).filter(() => draw.chance(0.6));
  return some.length > 0 ? some : [draw.int(0, n - 1)];
}

function drawJob(draw: Draw, n: number, shape: Shape): NewJob {
  const { hasVersions, isRelated } = shape;
  const related = isRelated ? { sync: 4, last: 2, update: 3 } : { sync: 0, last: 0, update: 0 };
  const newer = hasVersions ? 0.3 : 0;
  const kind = draw.weighted<KindName>({ plain: 10, timed: 2, create: 1, fragile: 1, newer, ...related, ...APART });
  return drawJobOf(draw, n, kind, shape);
}

const KEYED: readonly KindName[] = [
  'sync',
  'last',
  'create',
  'update',
  'only',
  'waiting',
  'throttled',
  'replaced',
  'saved',
  'book',
];

function drawJobOf(draw: Draw, n: number, kind: KindName, { keys, hasTransactions }: Shape): NewJob {
  const needsKey = KEYED.includes(kind);
  const key = needsKey || draw.chance(0.5) ? `k${draw.int(1, keys)}` : null;
  const how = drawManner(draw, kind);
  const orders: Orders = {
    n,
    ms: drawMs(draw, how, hasTransactions),
    how,
    times: draw.int(1, 3),
    lateMs: draw.chance(0.1) ? draw.int(10, 800) : 0,
  };
  const delayMs = draw.chance(0.08) ? draw.int(100, 1500) : 0;
  return { kind, key, priority: draw.pick(0, 0, 0, -1, 1), delayMs, orders };
}

/** If a handler in a transaction dies sooner, it is only sometimes charged. */
const DYING_MS = 700;

function drawMs(draw: Draw, how: Manner, hasTransactions: boolean): number {
  if (how === 'block') return draw.int(100, 1500);
  // Sometimes longer than a worker waits for a handler after its timeout.
  if (how === 'deaf') return draw.chance(0.25) ? draw.int(5500, 7000) : draw.int(500, 1500);
  if (how === 'die' && hasTransactions) return draw.int(DYING_MS - 200, DYING_MS + 200);
  return draw.pick(0, 0, 2, 20, 150);
}

function drawManner(draw: Draw, kind: KindName): Manner {
  if (!draw.chance(0.15)) return 'well';
  return draw.weighted<Manner>({
    well: 0,
    throw: 4,
    'throw late': 2,
    refuse: 1,
    // Such a handler holds its key for the same time.
    deaf: kind === 'timed' ? 2 : 0,
    block: 0.3,
    'block and throw': 0,
    die: 0.4,
    circle: 1,
    'throw nothing': 1,
    some: kind === 'sync' ? 3 : 0,
    snooze: 1,
    'snooze one': 1,
    'retry after': 1,
    cancel: 0.5,
    discard: 0.5,
  });
}
