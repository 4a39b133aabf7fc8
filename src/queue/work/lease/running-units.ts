import { Stopped } from '../../../base/errors.ts';
import type { Logger } from '../../../base/logger.ts';
import type { Budget } from '../../../base/time/budget.ts';
import { GRACE_MS } from '../../../base/work/deadlines.ts';
import { Drain } from '../../../base/work/drain.ts';
import type { Definition } from '../../definition.ts';
import { BatchRun } from '../batch/batch-run.ts';
import type { ReadyBatch } from '../batch/gatherer.ts';
import type { BatchHandler } from '../batch/unit-batch.ts';
import { logAbandoned } from '../run/abandoned.ts';
import { type AttemptResult, type Handler, startAttempt } from '../run/attempt.ts';
import { type Unit, unitOf } from '../run/unit.ts';

interface RunningParts {
  readonly definition: Definition;
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly batchHandlers: ReadonlyMap<string, BatchHandler>;
  readonly logger: Logger;
  /** Rises when the lease is lost: later ends of handlers count for nothing. */
  readonly generation: () => number;
  readonly onEnd: (unit: Unit, outcome: AttemptResult) => void;
  /** Called when the worker has no handler for the kind. */
  readonly onUnknownKind: (unit: Unit) => void;
}

/** Units whose handler runs, alone or in a batch. */
export class RunningUnits {
  readonly #parts: RunningParts;
  /** Each unit with the function that ends it from outside. */
  readonly #units = new Map<Unit, ((why: unknown) => void) | undefined>();
  /** The running batch handlers. */
  readonly #batches = new Set<BatchRun>();
  /** The number of running units that take no slot, because another unit of their batch does. */
  #sharing = 0;
  readonly #drain: Drain<Unit> = new Drain(() => this.#units.keys());

  constructor(parts: RunningParts) {
    this.#parts = parts;
  }

  get units(): Iterable<Unit> {
    return this.#units.keys();
  }

  get slotsTaken(): number {
    return this.#units.size - this.#sharing;
  }

  get sharing(): number {
    return this.#sharing;
  }

  start(unit: Unit): void {
    this.#start(unit, this.#parts.handlers);
  }

  startBatch({ kind, units }: ReadyBatch): void {
    const handler = this.#parts.batchHandlers.get(kind);
    if (handler === undefined) throw new Error('only kinds with a batch handler are gathered');
    const batch = new BatchRun(kind, units, handler);
    this.#batches.add(batch);
    this.#sharing += units.length - 1;
    for (const unit of units) this.#start(unit, new Map([[kind, (seen) => batch.join(unit, seen)]]), batch);
  }

  #start(unit: Unit, handlers: ReadonlyMap<string, Handler>, batch?: BatchRun): void {
    this.#units.set(unit, undefined);
    const generation = this.#parts.generation();
    const fail = startAttempt(unit, this.#parts.definition, handlers, (outcome) => {
      this.#units.delete(unit);
      if (batch !== undefined) this.#endInBatch(unit, batch);
      if (generation === this.#parts.generation()) this.#parts.onEnd(unit, outcome);
    });
    if (fail === undefined) {
      this.#units.delete(unit);
      this.#parts.onUnknownKind(unit);
    } else if (this.#units.has(unit)) this.#units.set(unit, fail);
  }

  #endInBatch(unit: Unit, batch: BatchRun): void {
    const isLast = batch.end(unit);
    // After the loss of the lease, its end counts for nothing.
    if (!this.#batches.has(batch)) return;
    if (isLast) this.#batches.delete(batch);
    else this.#sharing -= 1;
  }

  /**
   * For a handler that waits for the stop of its worker: resolves when all other handlers have ended.
   * @param task  of that handler
   */
  othersEnded(task: object | undefined): Promise<void> | undefined {
    const unit = unitOf(task, this.#units.keys());
    if (unit === undefined) return undefined;
    // The other units of its batch end when the handler returns.
    const batch = [...this.#batches].find(({ units }) => units.includes(unit));
    for (const other of batch?.units ?? []) void this.#drain.waitInside(other);
    return this.#drain.waitInside(unit);
  }

  /** Called when the worker knows the outcome of a unit. */
  recordEnd(): void {
    this.#drain.recordEnd();
  }

  /** Waits for all running units. @param written  resolves when the outcomes are written */
  drain(time: Budget, written: () => Promise<unknown>): Promise<void> {
    const reason = new Stopped('the worker is being stopped and its time is over');
    return this.#drain.run({
      time,
      graceMs: GRACE_MS,
      abort: (units) => units.forEach((unit) => unit.abort(reason)),
      abandon: (units) => this.#abandon(units),
      written,
    });
  }

  /** Gives back the jobs of handlers that did not end after their abort; their later outcomes are ignored. */
  #abandon(left: readonly Unit[]): void {
    const { logger, definition } = this.#parts;
    logAbandoned(logger, definition.name, left);
    for (const unit of left) this.#units.get(unit)?.(new Stopped('the worker was stopped'));
  }

  /**
   * Called when the lease is lost: all units are told to end, and nothing that they do later counts. Call it once the generation
   * has risen.
   */
  lose(why: Error): void {
    const units = [...this.#units];
    this.#units.clear();
    this.#batches.clear();
    this.#sharing = 0;
    for (const [unit, fail] of units) {
      unit.abort(why);
      fail?.(why);
    }
  }
}
