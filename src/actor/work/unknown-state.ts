import type { ActorDefinition } from '../definition.ts';
import type { ActorClaim } from '../store.ts';
import type { WorkerParts } from './worker-parts.ts';

/** Gives back an actor whose state or fields only a newer version of the program knows, and emits `unknown`. */
export async function reportUnknownState(
  { store, types, events }: WorkerParts,
  claim: ActorClaim,
  worker: number,
): Promise<void> {
  const { id: actor, type, state, epoch, version } = claim;
  const reason = unknownReason(claim, types.get(type));
  const held = await store.reportUnknown({ actor, epoch, worker }, type, state, version, reason);
  events.emit('unknown', { actor: String(actor), state, held });
}

/** In words, why no turn can run. */
export function unknownReason({ id, state, version }: ActorClaim, definition: ActorDefinition | undefined): string {
  const name = definition?.name ?? 'actor';
  if (definition?.states.has(state) === true) {
    return `${name} ${id} has fields of version ${version}, but no running program knows more than version ${definition.version}; start one that does`;
  }
  return `${name} ${id} is in state "${state}", which no running program knows; start one that does, or move the actor by hand`;
}
