import { InvalidInput, NotSupported } from '../../base/errors.ts';
import {
  type Check,
  checkOptions,
  custom,
  duration,
  integer,
  oneOf,
  optional,
  signal,
} from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import type { Duration } from '../../base/time/duration.ts';
import type { Definition } from '../definition.ts';
import { type BacklogLimits, type BacklogOptions, backlogOptions, requireLimit } from './backlog.ts';
import { kindNames, type PriorityRange, priorityRange, readTaken } from './taken.ts';
import type { WorkerSettings } from './worker-parts.ts';

/** Options of a worker. */
export interface WorkOptions {
  /** How many units this worker runs at the same time. Default 10. */
  readonly concurrency?: number | undefined;
  /**
   * `'lease'` (default): claims and settlements are short statements for many jobs at once; a job runs at least once.
   * `'transaction'`: the transaction of the claim stays open while the handler runs. `unit.tx` is that transaction, and its
   * writes and the outcome are committed together. It needs one connection per unit of concurrency.
   */
  readonly hold?: 'lease' | 'transaction' | undefined;
  /**
   * How long a worker keeps its units without a heartbeat. It sends a heartbeat every third of this time. Default `'20s'`, at
   * least `'1s'`.
   */
  readonly lease?: Duration | undefined;
  /** How often to poll for work if no notification comes. Default `'2s'`. */
  readonly poll?: Duration | undefined;
  /**
   * How many jobs to claim ahead of free slots. Default `'auto'`: as many as the rate of the last 50 ms allows, at most 2,000.
   * None if the queue has a `rate`, or if a kind has a single attempt.
   */
  readonly prefetch?: number | 'auto' | undefined;
  /**
   * `'exit'`: if the event loop of this process was blocked for a lease, the running jobs are written to stderr and the process
   * ends itself with SIGKILL, so that a supervisor can start another one. A thread watches the event loop. Default: not watched.
   */
  readonly onBlocked?: 'exit' | undefined;
  /**
   * The limits beyond which the worker warns that the queue has too much to do: with the event `backlog` and a line in the log,
   * once, and with `caughtUp` when the backlog is over. Each worker with this option checks on its own. Default: no checks. Not
   * on DynamoDB.
   */
  readonly warn?: BacklogOptions | undefined;
  /**
   * The worker takes only jobs of these kinds, and needs only their handlers. Needs `concurrency: { perKey: Infinity }`. Default:
   * all kinds of the queue.
   */
  readonly kinds?: readonly string[] | undefined;
  /**
   * The worker takes only jobs of these priorities, both ends included, such as `{ max: -1 }` for urgent jobs. Needs
   * `concurrency: { perKey: Infinity }`. Default: all.
   */
  readonly priority?: PriorityRange | undefined;
  /** Stops the worker when it aborts. */
  readonly signal?: AbortSignal | undefined;
}

export interface StopOptions {
  /**
   * How long running handlers may continue. After this time their `signal` is aborted, and their jobs are given back without
   * spending the attempt. Default `'15s'`.
   */
  readonly timeout?: Duration | undefined;
}

export interface OnceOptions {
  /** After this time the worker claims nothing more; running handlers may then end, as with `stop`. Default: no limit. */
  readonly timeout?: Duration | undefined;
}

const prefetch: Check<number | 'auto'> = custom(
  "'auto' or a whole number from 0 to 100000",
  (value, place) => {
    if (value === 'auto') return value;
    if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 100_000) return value;
    throw refusal(place, value, "'auto' or a whole number from 0 to 100000");
  },
  { default: 'auto' },
);

const shape = {
  concurrency: integer({ min: 1, max: 10_000, default: 10 }),
  hold: oneOf(['lease', 'transaction'], { default: 'lease' }),
  // Below a second a busy event loop looks like a dead one.
  lease: duration({ min: '1s', max: '24h', default: '20s' }),
  poll: duration({ min: '10ms', max: '1h', default: '2s' }),
  prefetch,
  onBlocked: optional(oneOf(['exit'])),
  warn: backlogOptions,
  signal,
  kinds: kindNames,
  priority: priorityRange,
};

const stopShape = { timeout: duration({ default: '15s' }) };
const onceShape = { timeout: duration({ default: Infinity, infinite: true }) };

export interface ReadWorkOptions {
  readonly settings: WorkerSettings;
  readonly signal: AbortSignal | undefined;
  readonly onBlocked: 'exit' | undefined;
  readonly warn: BacklogLimits | undefined;
}

/** @throws InvalidInput on bad options, and if the engine has too few connections for them */
export function readWorkOptions(options: WorkOptions, definition: Definition, connections: number): ReadWorkOptions {
  const given = checkOptions('work', options, shape);
  if (given.warn !== undefined) requireLimit(given.warn);
  refuseBatches(given.hold, definition);
  const takes = readTaken(given, definition);
  const once = [...definition.kinds.values()].some((kind) => kind.attempts === 1);
  // The heartbeat has a connection of its own; all other statements can share a second one.
  const needed = given.hold === 'transaction' ? given.concurrency + 2 : 2;
  if (needed > connections) {
    throw new InvalidInput(
      `hold: '${given.hold}' with concurrency ${given.concurrency} needs ${needed} connections, but the pool has ` +
        `${connections}; ${given.hold === 'transaction' ? 'lower concurrency, or ' : ''}give postgres() a larger max`,
      { field: 'concurrency' },
    );
  }
  const settings: WorkerSettings = {
    concurrency: given.concurrency,
    hold: given.hold,
    leaseMs: given.lease,
    pollMs: given.poll,
    // A job with a single attempt must not lose it because its worker died while the job was only prefetched. A rate counts a run
    // at the claim of its job, so the job has to begin then.
    prefetch: once || definition.rate !== undefined ? 0 : given.prefetch,
    takes,
  };
  return { settings: Object.freeze(settings), signal: given.signal, onBlocked: given.onBlocked, warn: given.warn };
}

function refuseBatches(hold: 'lease' | 'transaction', { name, kinds }: Definition): void {
  const batched = [...kinds.values()].find(({ batch }) => batch !== undefined);
  if (hold === 'lease' || batched === undefined) return;
  throw new NotSupported(
    `kind "${batched.name}" of queue "${name}" has batch, and with hold: 'transaction' each job has a transaction of its own, which ` +
      "ends with it: use hold: 'lease' and units.guard(tx), or leave batch out",
  );
}

/** @throws InvalidInput */
export function readStopOptions(options: StopOptions): number {
  return checkOptions('stop', options, stopShape).timeout;
}

/** @throws InvalidInput */
export function readOnceOptions(options: OnceOptions): number {
  return checkOptions('once', options, onceShape).timeout;
}
