import { hostname } from 'node:os';
import type { ActorDefinition } from '../definition.ts';
import type { ActorClaim, WorkerRow } from '../store.ts';

/** How a process lists itself. @param takes  whether it takes what is due; a turn by hand does not */
export function workerRow(
  types: ReadonlyMap<number, ActorDefinition>,
  { concurrency, leaseMs }: Pick<WorkerRow, 'concurrency' | 'leaseMs'>,
  takes: boolean,
): WorkerRow {
  const knows = takes
    ? Object.fromEntries(
        [...types].map(([id, { states, version }]) => [
          String(id),
          { ...Object.fromEntries([...states.keys()].map((name) => [name, 1])), $version: version },
        ]),
      )
    : {};
  return {
    host: hostname(),
    pid: process.pid,
    concurrency,
    leaseMs,
    types: takes ? [...types.keys()] : [],
    knows,
    wantsNotify: takes,
  };
}

/** Why no turn can be run, in words. */
export function unknownReason({ id, state, version }: ActorClaim, definition: ActorDefinition | undefined): string {
  const name = definition?.name ?? 'actor';
  if (definition?.states.has(state) === true) {
    return `${name} ${id} has fields of version ${version}, but no running program knows more than version ${definition.version}; start one that does`;
  }
  return `${name} ${id} is in state "${state}", which no running program knows; start one that does, or move the actor by hand`;
}
