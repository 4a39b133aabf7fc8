import { Draw } from '../../support/random.ts';
import { drawFaults, type FaultName, type Weights } from '../fault.ts';
import type { Plan } from '../plan.ts';

export type EngineName = 'postgres' | 'dynamodb';

/** A write under the lock: reads, waits, writes, guards, waits, commits. */
export interface Writing {
  readonly pauseMs: number;
  /** The pause between the guard and the commit. */
  readonly lateMs: number;
  /** Ignores its own clock, as after a pause between check and write: only the database can refuse the write. */
  readonly isUnaware: boolean;
  /** Its process is blocked for this time, before the guard or after it. */
  readonly stands?: { readonly when: 'before' | 'after'; readonly ms: number };
}

/** One step of a client. */
export interface Step {
  /** The pause before the step. */
  readonly restMs: number;
  readonly kind: 'exclusive' | 'shared' | 'permit' | 'once' | 'break';
  /** Several names are a set. */
  readonly names: readonly string[];
  /** How many clients may hold at once: 1; 2147483647 if shared; else the permits. */
  readonly capacity: number;
  readonly leaseMs: number;
  /** Null: without a limit. */
  readonly waitMs: number | null;
  readonly isFair: boolean;
  /** The wait is aborted after this time. */
  readonly abortMs: number | null;
  readonly holdMs: number;
  readonly writing: Writing | null;
}

export interface LockPlan extends Plan {
  readonly engine: EngineName;
  /** How long places are kept without a renewal. */
  readonly waiterMs: number;
  /** Each client is a process with some threads, and each thread executes its steps one after another. */
  readonly clients: readonly (readonly (readonly Step[])[])[];
}

export const SHARED = 2_147_483_647;

const WEIGHTS: Readonly<Record<EngineName, Weights>> = {
  postgres: {
    kill: 3,
    stop: 4,
    clock: 2,
    block: 2,
    terminate: 2,
    reset: 2,
    refuse: 1,
    silence: 2,
    deafen: 2,
    freeze: 3,
    lose: 2,
  },
  // In addition to the network's faults, each client loses, repeats and delays requests of its own.
  dynamodb: { kill: 3, stop: 4, clock: 2, block: 2, reset: 2, refuse: 1, silence: 2, deafen: 1, freeze: 2 },
};

const FAULTS_MS = 3000;

export function planLocks(engine: EngineName): (seed: number) => LockPlan {
  return (seed) => {
    const draw = new Draw(seed, 'shape');
    const names = Array.from({ length: draw.pick(1, 2, 3, 5) }, (_, index) => `n${index}`);
    const leaseMs = draw.pick(1500, 2000, 3000);
    const waiterMs = draw.pick(1500, 2500);
    const members = draw.int(2, 4);
    const threads = draw.int(1, 3);
    const restarts = engine === 'postgres' && draw.chance(0.2);
    const only = draw.chance(0.3);
    const clients = Array.from({ length: members }, (_client, client) =>
      Array.from({ length: threads }, (_thread, thread) => {
        const steps = new Draw(seed, `steps ${client} ${thread}`);
        return Array.from({ length: steps.int(4, 9) }, () => drawStep(steps, { names, leaseMs, isPlain: only }));
      }),
    );
    const weights = restarts ? { ...WEIGHTS[engine], restart: 4 } : WEIGHTS[engine];
    const n = draw.int(3, 8);
    const faults = drawFaults(new Draw(seed, 'faults'), { n, members, withinMs: FAULTS_MS, leaseMs, weights });
    const hasOwnServer = faults.some((fault) => fault.do === ('restart' satisfies FaultName));
    const title = `${members} clients of ${threads}, ${names.length} names, lease ${leaseMs}, place ${waiterMs}${only ? ', exclusive alone' : ''}`;
    return { seed, title, faults, hasOwnServer, engine, waiterMs, clients };
  };
}

interface Shape {
  readonly names: readonly string[];
  readonly leaseMs: number;
  readonly isPlain: boolean;
}

function drawStep(draw: Draw, { names, leaseMs, isPlain }: Shape): Step {
  const others = isPlain ? 0 : 1;
  const kind = draw.weighted({ exclusive: 12, shared: 3 * others, permit: 2 * others, once: others, break: others });
  const isSet = kind === 'exclusive' && names.length > 1 && !isPlain && draw.chance(0.2);
  const chosen = draw.some(names, isSet ? draw.int(2, 3) : 1);
  const wait = draw.weighted({ none: 2, some: 4, endless: 6 });
  return {
    restMs: draw.pick(0, 0, 5, 50, draw.int(0, 300)),
    kind,
    // All clients of a semaphore give the same number.
    names: kind === 'permit' ? ['permits'] : kind === 'once' ? ['daily'] : chosen,
    capacity: kind === 'shared' ? SHARED : kind === 'permit' ? 2 : 1,
    leaseMs,
    waitMs: wait === 'none' ? 0 : wait === 'some' ? draw.int(100, 2500) : null,
    isFair: !draw.chance(0.1),
    abortMs: draw.chance(0.08) ? draw.int(20, 1500) : null,
    holdMs: draw.pick(0, 2, 20, 100, 400),
    writing:
      kind === 'exclusive' && draw.chance(0.6)
        ? { pauseMs: draw.pick(0, 5, 40, 200), lateMs: draw.pick(0, 0, 30, 200), isUnaware: draw.chance(0.3) }
        : null,
  };
}
