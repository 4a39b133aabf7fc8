import { Draw } from '../../support/random.ts';
import { drawFaults, type Weights } from '../fault.ts';
import type { Plan } from '../plan.ts';

/** One request of a process to the queue. */
export interface Step {
  /** The pause before it. */
  readonly restMs: number;
  readonly what: 'job' | 'save' | 'batch';
  readonly key: string | null;
  readonly delayMs: number;
  /** The expiry: long ago, or in many years. */
  readonly expires: 'past' | 'later' | null;
  /** True: the job comes after the last job that this process enqueued. */
  readonly isAfter: boolean;
  /** The number of attempts that fail. */
  readonly fails: number;
  /** True: the job has one attempt, which fails, and names the kind of its dead letter. */
  readonly isDoomed: boolean;
  /** The duration of its handler. */
  readonly ms: number;
  /** The number of jobs of a batch. */
  readonly n: number;
}

export interface DynamoQueuePlan extends Plan {
  readonly leaseMs: number;
  readonly shards: number;
  /** The steps of each process. Each process works and enqueues. */
  readonly processes: readonly (readonly Step[])[];
}

/** Without faults of the server, which are only for Postgres. */
const WEIGHTS: Weights = {
  kill: 3,
  deploy: 1,
  stop: 3,
  clock: 1,
  block: 1,
  reset: 2,
  refuse: 1,
  silence: 2,
  deafen: 1,
  freeze: 2,
};

export function planQueue(seed: number): DynamoQueuePlan {
  const shape = new Draw(seed, 'shape');
  const members = shape.int(2, 3);
  const leaseMs = shape.int(1000, 1500);
  const faults = drawFaults(new Draw(seed, 'faults'), {
    n: shape.int(3, 6),
    members,
    withinMs: 4000,
    leaseMs,
    weights: WEIGHTS,
  });
  const work = new Draw(seed, 'work');
  const doom = new Draw(seed, 'letters');
  const processes = Array.from({ length: members }, () =>
    Array.from({ length: 14 }, () => doomed(doom, drawStep(work))),
  );
  return {
    seed,
    title: `${members} processes`,
    faults,
    hasOwnServer: false,
    leaseMs,
    shards: shape.int(1, 2),
    processes,
  };
}

/** A child of such a job would end in error, too. So such a job has at least no parent. */
function doomed(draw: Draw, step: Step): Step {
  const isDoomed = draw.chance(0.25) && step.what === 'job' && !step.isAfter && step.expires === null;
  return { ...step, isDoomed };
}

function drawStep(work: Draw): Step {
  const what = work.weighted({ job: 10, save: 3, batch: 2 });
  const isPlain = work.chance(0.5);
  return {
    restMs: work.int(0, 300),
    what,
    key: what === 'save' || isPlain ? work.pick('a', 'b') : null,
    delayMs: work.chance(0.15) ? work.int(1, 800) : 0,
    expires: work.chance(0.2) ? work.pick('past', 'later') : null,
    isAfter: work.chance(0.2),
    fails: work.chance(0.2) ? 1 : 0,
    isDoomed: false,
    ms: work.int(0, 150),
    n: work.int(0, 70),
  };
}
