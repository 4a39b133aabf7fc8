/**
 * The front door: the capabilities, the errors, and the engine that most programs use. Each is a subpath, too, which loads nothing else:
 * `pawl/queue`, `pawl/postgres`, `pawl/errors`.
 */

export {
  type ActorDefinition,
  type Actors,
  actor,
  createActorAdmin,
  createActors,
  type Dispatcher,
  state,
  type Turn,
} from './actor/index.ts';
export * from './base/errors.ts';
export type { Duration } from './base/time/duration.ts';
export { type OpenTransaction, postgres } from './engine/postgres/index.ts';
export { createFiles, type Files, type FileVersion } from './files/index.ts';
export { createLocks, type Lock, type Locks } from './lock/index.ts';
export {
  cancelled,
  createQueue,
  createQueueAdmin,
  discard,
  type Job,
  type Queue,
  retryAfter,
  snooze,
  type Unit,
  type Worker,
} from './queue/index.ts';
