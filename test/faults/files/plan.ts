import { Draw } from '../../support/random.ts';
import { drawFaults, type FaultName, type Weights } from '../fault.ts';
import type { Plan } from '../plan.ts';

/** An operation of a client on a document. */
export type Deed =
  /** A write without a transaction of the client. */
  | 'write'
  /** A write in a transaction with a row of the client. */
  | 'tx'
  /** An upload that is published with such a row a while later. */
  | 'late'
  /** A write in a transaction that is rolled back. */
  | 'undo'
  /** An upload that is abandoned. */
  | 'abandon'
  | 'remove'
  | 'restore'
  | 'copy'
  | 'read'
  /** A read of an earlier version. */
  | 'read old'
  | 'hot';

export interface Operation {
  readonly deed: Deed;
  /** The document; for a copy, its target. */
  readonly id: string;
  /** For a copy: its source. */
  readonly from: string;
  readonly size: number;
  /** True: with the `ifVersion` that was just read. */
  readonly isGuarded: boolean;
  readonly restMs: number;
  /** The pause between upload and publication. */
  readonly lateMs: number;
}

export const STORE_FAULTS = [
  /** The store answers no call for `ms`. */
  'hang',
  /** The disk is full. */
  'full',
  /** A bit of a stored object is flipped, for good. */
  'rot',
  /** A bit of the marker, or of its copy, is flipped. */
  'rot the marker',
  /** Names that no row has are put into the store. */
  'strangers',
  'lose_answer',
  'cut',
  'delay',
  'unavailable',
  'conflict',
  'error_in_200',
  'short',
  'short_body',
  'flip',
  'trickle',
] as const;

export type StoreFaultName = (typeof STORE_FAULTS)[number];

export interface StoreFaulting {
  readonly at: number;
  readonly do: StoreFaultName;
  readonly ms: number;
  /** How many requests it hits, if it hits requests. */
  readonly times: number;
  /** A random number for all other choices. */
  readonly draw: number;
}

export interface FilesPlan extends Plan {
  readonly store: 'disk' | 's3';
  readonly limitMs: number;
  readonly retainMs: number;
  readonly clients: readonly (readonly Operation[])[];
  /** The call of the content store at which each process of each member kills itself: clients first, then sweepers. */
  readonly killAt: readonly (readonly number[])[];
  readonly sweepers: number;
  readonly storeFaults: readonly StoreFaulting[];
}

const WEIGHTS: Weights = {
  kill: 3,
  deploy: 1,
  stop: 3,
  clock: 1,
  block: 1,
  terminate: 2,
  reset: 2,
  refuse: 1,
  silence: 1,
  deafen: 1,
  freeze: 2,
  lose: 3,
};
/** With these weights the database always answers, so only the store can make calls slow. */
const CALM: Weights = { kill: 1 };

const ON_DISK: Partial<Record<StoreFaultName, number>> = { hang: 2, full: 3, rot: 2, strangers: 1 };
const ON_S3: Partial<Record<StoreFaultName, number>> = {
  hang: 2,
  rot: 1,
  strangers: 1,
  lose_answer: 3,
  cut: 2,
  delay: 2,
  unavailable: 2,
  conflict: 1,
  error_in_200: 1,
  short: 1,
  short_body: 1,
  flip: 2,
  trickle: 1,
};
const WITHIN_MS = 3000;
export const DOCUMENTS = 4;

export function planFiles(seed: number): FilesPlan {
  const draw = new Draw(seed, 'shape');
  const store = seed % 2 === 0 ? 'disk' : 's3';
  const isCalm = draw.chance(0.25);
  const sweepers = draw.int(1, 2);
  const clients = [0, 1].map((client) => drawOperations(new Draw(seed, `client ${client}`), store));
  const weights = isCalm ? CALM : draw.chance(0.15) ? { ...WEIGHTS, restart: 4 } : WEIGHTS;
  const members = clients.length + sweepers;
  const faults = drawFaults(new Draw(seed, 'faults'), {
    n: isCalm ? draw.int(0, 2) : draw.int(2, 6),
    members,
    withinMs: WITHIN_MS,
    leaseMs: 1500,
    weights,
  });
  const killing = new Draw(seed, 'kill at call');
  return {
    seed,
    title: `${store}, ${sweepers} sweepers${isCalm ? ', the database is calm' : ''}`,
    faults,
    hasOwnServer: faults.some((fault) => fault.do === ('restart' satisfies FaultName)),
    store,
    limitMs: 2000,
    retainMs: draw.pick(0, 800, 2500),
    clients,
    sweepers,
    // Over the seeds, every call in turn. The kill is before the call if the number is even, else after it.
    killAt: Array.from({ length: members }, (_, n) =>
      Array.from({ length: killing.int(0, 2) }, (__, life) => ((seed * 7 + n * 13 + life * 29) % 90) + 1),
    ),
    storeFaults: drawStoreFaults(new Draw(seed, 'store'), store),
  };
}

function drawStoreFaults(draw: Draw, store: 'disk' | 's3'): StoreFaulting[] {
  const weights = store === 'disk' ? ON_DISK : ON_S3;
  const all = Object.fromEntries(STORE_FAULTS.map((name) => [name, weights[name] ?? 0])) as Record<
    StoreFaultName,
    number
  >;
  const one = (name: StoreFaultName): StoreFaulting => ({
    at: draw.int(100, WITHIN_MS),
    do: name,
    ms: draw.int(100, 3500),
    times: draw.int(1, 6),
    draw: draw.int(0, 1_000_000),
  });
  const faults = Array.from({ length: draw.int(1, 6) }, () => one(draw.weighted(all)));
  // At most once: if the marker and its copy were damaged, an operator would have to confirm the owner of the store.
  return draw.chance(0.5) ? [...faults, one('rot the marker')] : faults;
}

function drawOperations(draw: Draw, store: 'disk' | 's3'): Operation[] {
  return Array.from({ length: draw.int(20, 35) }, (): Operation => {
    const isLarge = draw.chance(store === 's3' ? 0.04 : 0.08);
    return {
      deed: draw.weighted<Deed>({
        write: 7,
        tx: 4,
        late: 2,
        undo: 2,
        abandon: 2,
        remove: 1,
        restore: 1,
        copy: 1,
        read: 6,
        'read old': 3,
        hot: 3,
      }),
      id: `doc-${draw.int(1, DOCUMENTS)}`,
      from: `doc-${draw.int(1, DOCUMENTS)}`,
      // On S3, more than 16 MiB are sent in parts.
      size: isLarge ? draw.int(3 << 20, 18 << 20) : draw.pick(40, 1000, 70_000, draw.int(40, 1_500_000)),
      isGuarded: draw.chance(0.3),
      restMs: draw.int(0, 100),
      lateMs: draw.int(0, 1500),
    };
  });
}
