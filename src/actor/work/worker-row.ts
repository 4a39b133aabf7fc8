import { hostname } from 'node:os';
import type { ActorDefinition } from '../definition.ts';
import type { WorkerRow } from '../store.ts';

/** The row by which a process lists itself. @param takes  whether it claims due actors; a turn by hand does not */
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
