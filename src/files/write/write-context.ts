import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { GuardedContent } from '../guarded-content.ts';
import type { ParsedOptions } from '../options.ts';
import type { FileStore } from '../store.ts';

/** The parts of {@link Files} that writing needs. */
export interface WriteContext {
  readonly engine: PostgresEngine;
  readonly store: FileStore;
  readonly guarded: GuardedContent;
  readonly options: ParsedOptions;
}

/** Lets the collector delete the object. If this fails, the collector does so after the row's deadline. */
export async function abandon({ store, engine }: WriteContext, object: string): Promise<void> {
  await store.abandon(object).catch((error: unknown) => {
    engine.options.logger.debug({ err: error, object }, 'an abandoned upload waits for its deadline');
  });
}
