import type { PostgresEngine } from '../engine/postgres/index.ts';
import type { CaptureStore } from './postgres.ts';
import type { Page, SweepStore } from './postgres-sweep.ts';
import type { Progress } from './progress.ts';
import type { Projector } from './projector.ts';

/** What comparing found. */
export interface Drift {
  /** Entities compared, and rows of which there is no entity. */
  readonly checked: number;
  /** Entities whose row is not what it should be, although nothing says that they changed. */
  readonly drifted: number;
  /** The keys of some of them. */
  readonly keys: readonly string[];
}

interface Parts {
  readonly store: CaptureStore;
  readonly sweeps: SweepStore;
  readonly projector: Projector;
}

interface Settings {
  readonly batch: number;
  readonly repair: boolean;
  readonly onProgress: (progress: Progress) => void;
  readonly signal: AbortSignal | undefined;
}

/** Of the drifted keys, so many are told. */
const TOLD = 100;

/**
 * Everything of a page is read from one snapshot: the entities, their rows, and what is known to be dirty. In one snapshot a
 * row that differs without being dirty is drift, however fast things change.
 */
export async function reconcile(engine: PostgresEngine, parts: Parts, settings: Settings): Promise<Drift> {
  let [checked, drifted] = [0, 0];
  const keys: string[] = [];
  for (const phase of ['root', 'target'] as const) {
    let after: string | null = null;
    do {
      settings.signal?.throwIfAborted();
      const { page, drift }: { page: Page; drift: readonly string[] } = await comparePage(
        engine,
        parts,
        { phase, after },
        settings.batch,
      );
      if (settings.repair && drift.length > 0) await engine.transaction((tx) => parts.store.mark(tx, drift));
      checked += page.keys.length;
      drifted += drift.length;
      keys.push(...drift.slice(0, TOLD - keys.length));
      settings.onProgress({ phase, done: checked, total: 0 });
      after = page.last;
    } while (after !== null);
  }
  return { checked, drifted, keys };
}

function comparePage(
  engine: PostgresEngine,
  { store, sweeps, projector }: Parts,
  place: { phase: 'root' | 'target'; after: string | null },
  size: number,
): Promise<{ page: Page; drift: readonly string[] }> {
  return engine.transaction(
    async (tx) => {
      const page = await sweeps.page(tx, place, size);
      if (page.keys.length === 0) return { page, drift: [] };
      const differing = await projector.differing(tx, page.keys);
      const dirty = differing.length === 0 ? new Set<string>() : await store.dirtyAmong(tx, differing);
      return { page, drift: differing.filter((key) => !dirty.has(key)) };
    },
    { isolation: 'repeatable read' },
  );
}
