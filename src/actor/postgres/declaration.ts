import type { ActorDefinition } from '../definition.ts';

/** A type of actors, in the form that the database keeps. */
export function declarationOf(definition: ActorDefinition): object {
  return {
    name: definition.name,
    semaphores: definition.semaphores,
    always: [...definition.always.keys()],
    interrupts: interruptsOf(definition),
    indexes: definition.indexes,
    machine: definition.machine,
    version: definition.version,
    history: Number.isFinite(definition.historyMs) ? definition.historyMs / 1000 : null,
    fieldHistory: definition.fieldHistoryMs === undefined ? null : definition.fieldHistoryMs / 1000,
    backoff: backoffNumbers(definition),
  };
}

/** Semaphores that interrupt a running turn. */
function interruptsOf({ states }: ActorDefinition): string[] {
  return [...new Set([...states.values()].flatMap(({ interrupts }) => interrupts))].sort();
}

function backoffNumbers({ backoff: { kind, min, max, factor, jitter } }: ActorDefinition): number[] {
  return [min, max, kind === 'exponential' ? factor : kind === 'linear' ? 0 : 1, jitter];
}
