import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { GuardedContent } from '../guarded-content.ts';
import type { ParsedOptions } from '../options.ts';
import type { FileStore } from '../store.ts';

/** What writing is done with. */
export interface WriteContext {
  readonly engine: PostgresEngine;
  readonly store: FileStore;
  readonly guarded: GuardedContent;
  readonly options: ParsedOptions;
}

/** Tells the collector. If even that fails, the row's deadline does it. */
export async function abandon({ store, engine }: WriteContext, object: string): Promise<void> {
  await store.abandon(object).catch((error: unknown) => {
    engine.options.logger.debug({ err: error, object }, 'an abandoned upload waits for its deadline');
  });
}
