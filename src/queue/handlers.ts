import { InvalidInput } from '../base/errors.ts';
import type { Events } from '../base/events.ts';
import { suggest } from '../base/options/options.ts';
import { currentTask } from '../base/work/current-task.ts';
import type { Definition, KindOptions, Kinds, PayloadOut } from './definition.ts';
import { type ReadTraces, traced, tracedBatch } from './tracing.ts';
import type { BatchHandler, UnitBatch } from './work/batch/unit-batch.ts';
import type { WorkerEvents } from './work/report.ts';
import type { Handler } from './work/run/attempt.ts';
import type { Unit } from './work/run/unit.ts';

/**
 * One handler for each kind of a queue. Its return value is stored as the job's result. If it throws an error, the attempt fails.
 * For a kind with `batch` see {@link UnitBatch}.
 */
export type Handlers<K extends Kinds> = { readonly [N in keyof K]: HandlerOf<K[N]> };

type HandlerOf<K extends KindOptions> = K extends { readonly batch: object }
  ? (units: UnitBatch<PayloadOut<K>>) => unknown
  : (unit: Unit<PayloadOut<K>>) => unknown;

/** The handlers of a worker, by their kinds. */
export interface WorkHandlers {
  readonly handlers: ReadonlyMap<string, Handler>;
  readonly batchHandlers: ReadonlyMap<string, BatchHandler>;
}

/** The context in which each handler is called. */
export interface HandlerContext {
  readonly engine: object;
  readonly events: Events<WorkerEvents>;
  /** Undefined: the engine keeps no traces. */
  readonly traces?: ReadTraces;
}

/**
 * Checks the handlers that a program passes to `work()`: one for each kind of the queue, or of the kinds that the worker takes,
 * and none for others. The result emits an event when a handler starts. Code inside a handler can ask for its job: the newest job
 * of its unit, or of the first unit of a batch.
 * @throws InvalidInput
 */
export function readHandlers(
  definition: Definition,
  given: unknown,
  context: HandlerContext,
  taken?: readonly string[],
): WorkHandlers {
  const handlers = new Map<string, Handler>();
  const batchHandlers = new Map<string, BatchHandler>();
  for (const [name, handler] of checkHandlers(definition, given, taken)) {
    if (definition.kinds.get(name)?.batch === undefined) handlers.set(name, inContext(handler, context));
    else batchHandlers.set(name, batchInContext(handler, context));
  }
  return { handlers, batchHandlers };
}

function checkHandlers(
  { name: queue, kinds }: Definition,
  handlers: unknown,
  taken?: readonly string[],
): readonly (readonly [kind: string, handler: (given: unknown) => unknown])[] {
  const names = [...kinds.keys()];
  if (typeof handlers !== 'object' || handlers === null) {
    throw new InvalidInput(`work() takes a handler for each kind: { ${names[0]}: (unit) => … }`, { field: 'handlers' });
  }
  const given = Object.entries(handlers);
  for (const [name, handler] of given) {
    if (!names.includes(name)) {
      const near = suggest(name, names);
      const advice = near === undefined ? `the kinds are ${names.join(', ')}` : `did you mean "${near}"?`;
      throw new InvalidInput(`queue "${queue}" has no kind "${name}"; ${advice}`, { field: `handlers.${name}` });
    }
    if (typeof handler !== 'function') {
      throw new InvalidInput(`the handler of kind "${name}" must be a function`, { field: `handlers.${name}` });
    }
  }
  const missing = (taken ?? names).find((kind) => !Object.hasOwn(handlers, kind));
  if (missing !== undefined) {
    throw new InvalidInput(
      `queue "${queue}" has no handler for kind "${missing}"; a worker takes every kind, since the jobs of a key run in order, unless its option kinds names some`,
      { field: `handlers.${missing}` },
    );
  }
  return given;
}

function inContext(handler: Handler, { engine, events, traces }: HandlerContext): Handler {
  const known: Handler = (unit) => {
    if (events.has('started')) events.emit('started', { unit });
    return currentTask.run(unit.job, engine, handler, unit);
  };
  return traces === undefined ? known : traced(known, traces);
}

function batchInContext(handler: BatchHandler, { engine, events, traces }: HandlerContext): BatchHandler {
  const known: BatchHandler = (units) => {
    if (events.has('started')) for (const unit of units) events.emit('started', { unit });
    const [first] = units;
    return first === undefined ? undefined : currentTask.run(first.job, engine, handler, units);
  };
  return traces === undefined ? known : tracedBatch(known, traces);
}
