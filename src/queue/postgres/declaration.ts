import { isOneEver } from '../declare/unique.ts';
import type { Definition } from '../definition.ts';

/** A queue and its kinds, as `pawl.queue_register()` takes them. */
export function declarationOf(definition: Definition): object {
  return {
    name: definition.name,
    shards: definition.shards,
    keyed: definition.keyed,
    blocks: definition.blocksKeys,
    attempts: definition.attempts,
    perGroup: definition.perGroup ?? null,
    rate: definition.rate ?? null,
    history: Number.isFinite(definition.historyMs) ? definition.historyMs / 1000 : null,
    kinds: [...definition.kinds.values()].map((kind) => ({
      name: kind.name,
      unique: isOneEver(kind.unique),
      rule: isOneEver(kind.unique) ? null : (kind.unique ?? null),
      debounce: kind.debounce === undefined ? null : kind.debounce.waitMs / 1000,
      debounceMax: kind.debounce === undefined ? null : kind.debounce.maxMs / 1000,
      coalesce: kind.coalesce,
      after: kind.after,
      afterError: kind.afterError,
      attempts: kind.attempts === definition.attempts ? null : kind.attempts,
      needsKey: kind.needsKey,
      onError: kind.onError ?? null,
    })),
  };
}
