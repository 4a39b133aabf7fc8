import { randomUUID } from 'node:crypto';
import { InvalidInput, LeaseLost } from '../../base/errors.ts';
import { checkOptions, custom, integer, list, object, optional, record, text } from '../../base/options/options.ts';
import { refusal } from '../../base/options/refusal.ts';
import { Transaction } from '../../engine/postgres/index.ts';
import {
  guardHeld,
  Job,
  type ParentRecord,
  type ScheduledFor,
  Unit,
  type UnitHold,
  type UnitOwner,
} from '../../queue/index.ts';

/** The facts of a test unit, except its payload. */
export interface TestUnitFacts {
  /** The queue's name. Default `'test'`. */
  readonly queue?: string | undefined;
  /** Default `'test'`. */
  readonly kind?: string | undefined;
  /** Default: none. */
  readonly key?: string | undefined;
  /** The number of the attempt. Default 1. */
  readonly attempt?: number | undefined;
  /** The fencing token. Default 1. */
  readonly token?: number | undefined;
  /** The id of the first job; later jobs have the following ids. Default 1. */
  readonly id?: number | undefined;
  /** Default: now, by the clock of this process. */
  readonly enqueuedAt?: Date | undefined;
  /** The schedule and the tick of its job. Default: none. */
  readonly schedule?: ScheduledFor | undefined;
  /** The `meta` of its enqueue. Default: none. */
  readonly meta?: Readonly<Record<string, unknown>> | undefined;
  /** The jobs that it comes after, for `parents()`. Default: none. */
  readonly parents?: readonly ParentRecord[] | undefined;
  /** The open transaction that holds the unit, as in a worker with `hold: 'transaction'`. Default: a lease holds it. */
  readonly tx?: Transaction | undefined;
}

/**
 * The description of a test unit. The handler gets the payload unchanged: no schema checks it, and it does not pass through JSON.
 * A unit that coalesces has `payloads`, one for each job, oldest first.
 */
export type TestUnitOptions<P> = TestUnitFacts &
  (
    | { readonly payload: P; readonly payloads?: undefined }
    | { readonly payload?: undefined; readonly payloads: readonly P[] }
  );

/** A call of `progress()` by a handler. */
export interface NotedProgress {
  readonly job: Job;
  readonly value: unknown;
}

const anything = custom('any value', (value) => value, { default: null });
const date = custom('a Date', (value, place): Date => {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value;
  throw refusal(place, value, 'a valid Date');
});
const transaction = custom('what engine.transaction() gives', (value, place): Transaction => {
  if (value instanceof Transaction) return value;
  throw refusal(place, value, 'what engine.transaction() gives');
});

const shape = {
  payload: anything,
  payloads: optional(list(anything, { min: 1 })),
  queue: text({ min: 1, max: 100, default: 'test' }),
  kind: text({ min: 1, max: 100, default: 'test' }),
  key: optional(text({ min: 1, max: 1000 })),
  attempt: integer({ min: 1, default: 1 }),
  token: integer({ min: 1, default: 1 }),
  id: integer({ min: 1, default: 1 }),
  enqueuedAt: optional(date),
  schedule: optional(object({ name: text({ min: 1, max: 100 }), at: date })),
  meta: optional(record(anything)),
  parents: optional(list(anything)),
  tx: optional(transaction),
};

/**
 * A unit for a unit test of a handler, as a worker would pass it, without a worker and without a database. It is the worker's own
 * class, so its checks and errors are real. Calls of the handler are recorded and not written.
 *
 * The worker applies payload schemas, time limits, attempts and results: test those with {@link testQueue}.
 * @throws InvalidInput  an option is impossible
 */
export function testUnit<P>(options: TestUnitOptions<P>): TestUnit<P> {
  const { queue, kind, key, attempt, token, id, enqueuedAt, schedule, meta, tx } = checkOptions(
    'testUnit',
    options,
    shape,
  );
  if (options.payloads !== undefined && 'payload' in options) {
    throw new InvalidInput('testUnit takes "payload" or "payloads", but was given both', { field: 'payloads' });
  }
  const payloads = options.payloads ?? [options.payload];
  const at = (enqueuedAt ?? new Date()).getTime();
  const claim = { id: token, shard: 0, processId: randomUUID(), isAlone: false, left: payloads.length };
  const scheduled = schedule && { schedule: { name: schedule.name, at: schedule.at.toISOString() } };
  const origin =
    scheduled === undefined && meta === undefined
      ? at
      : { enqueuedAt: at, options: { ...scheduled, ...(meta && { meta }) } };
  const jobs = payloads.map((payload, nth) => new Job(id + nth, claim, attempt, origin, payload));
  const epoch = key === undefined ? null : token;
  const held = { epoch, brokenBy: null, isCoalesced: options.payloads !== undefined, tx };
  return new TestUnit(new Notes(queue, tx, options.parents ?? []), kind, key ?? null, jobs, held);
}

/** A unit that no worker runs. */
export class TestUnit<P = unknown> extends Unit<P> {
  readonly #notes: Notes;

  /** @internal */
  constructor(notes: Notes, kind: string, key: string | null, jobs: readonly Job<P>[], held: UnitHold) {
    super(notes, kind, key, jobs, held);
    this.#notes = notes;
  }

  /** The arguments of `progress()`, oldest first, in the form that a reader of the job would get. */
  get noted(): readonly NotedProgress[] {
    return this.#notes.noted;
  }

  /** The transactions that were passed to `guard()`, oldest first, without refused ones. */
  get guarded(): readonly unknown[] {
    return this.#notes.guarded;
  }

  /** The jobs that the handler failed by `fail()`, with the error of each. */
  get failures(): ReadonlyMap<Job, unknown> {
    return new Map(this.failed);
  }

  /**
   * Aborts `signal` with this reason, as a worker does: `new Cancelled('…')` for a cancelled job, `LeaseLost`, `TimedOut`,
   * `Stopped`. After a lost lease or a timeout, `progress()` and `guard()` throw `LeaseLost`. Only the first call counts.
   */
  override abort(reason: Error): void {
    super.abort(reason);
  }
}

/** Takes the place of the unit's worker: records the calls of the handler, and refuses the calls that a worker refuses. */
class Notes implements UnitOwner {
  readonly queueName: string;
  readonly noted: NotedProgress[] = [];
  readonly guarded: unknown[] = [];
  readonly #tx: Transaction | undefined;

  readonly #parents: readonly ParentRecord[];

  constructor(queueName: string, tx: Transaction | undefined, parents: readonly ParentRecord[]) {
    this.queueName = queueName;
    this.#tx = tx;
    this.#parents = parents;
  }

  async parents(): Promise<readonly ParentRecord[]> {
    return this.#parents;
  }

  async progress(unit: Unit, job: Job, json: string): Promise<void> {
    requireLease(unit);
    this.noted.push({ job, value: JSON.parse(json) });
  }

  async guard(unit: Unit, tx: unknown): Promise<void> {
    if (this.#tx === undefined) requireLease(unit);
    else guardHeld(unit, tx);
    this.guarded.push(tx);
  }
}

function requireLease({ abortReason, job }: Unit): void {
  if (!(abortReason instanceof LeaseLost)) return;
  throw new LeaseLost(`the lease of job ${job.id} is lost; stop working on it`, { cause: abortReason });
}
