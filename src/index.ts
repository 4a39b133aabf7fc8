/**
 * The front door: capabilities and errors. Engines are subpaths of their own (`pawl/postgres`), so that no program loads a
 * driver that it does not use.
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
export { createFiles, type Files, type FileVersion } from './files/index.ts';
export { createLocks, type Lock, type Locks } from './lock/index.ts';
export { createQueue, createQueueAdmin, type Job, type Queue, type Unit, type Worker } from './queue/index.ts';
