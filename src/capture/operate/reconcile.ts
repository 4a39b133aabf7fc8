import type { PostgresEngine } from '../../engine/postgres/index.ts';
import type { CaptureStore } from '../postgres/store.ts';
import type { Page, Progress, SweepStore } from '../postgres/sweep.ts';
import type { Destination } from '../work/destination.ts';

/** The result of comparing entities with their rows. */
export interface Drift {
  /** How many entities were compared, plus rows without an entity. */
  readonly checked: number;
  /** Entities whose row differs although the log has no change of them that is still to be projected. */
  readonly drifted: number;
  /** The keys of some of them. */
  readonly keys: readonly string[];
}

interface Parts {
  readonly store: CaptureStore;
  readonly sweeps: SweepStore;
  readonly destination: Destination;
}

interface Settings {
  readonly batch: number;
  readonly repair: boolean;
  readonly onProgress: (progress: Progress) => void;
  readonly signal: AbortSignal | undefined;
}

/** At most so many of the drifted keys are returned. */
const MOST_KEYS = 100;

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
      keys.push(...drift.slice(0, MOST_KEYS - keys.length));
      settings.onProgress({ phase, done: checked, total: 0 });
      after = page.last;
    } while (after !== null);
  }
  return { checked, drifted, keys };
}

interface PagePosition {
  readonly phase: 'root' | 'target';
  readonly after: string | null;
}

interface PageComparison {
  readonly page: Page;
  readonly drift: readonly string[];
}

function comparePage(engine: PostgresEngine, parts: Parts, place: PagePosition, size: number): Promise<PageComparison> {
  return parts.destination.isInReach ? compareAtOnce(engine, parts, place, size) : compareLocked(parts, place, size);
}

/**
 * One snapshot shows the entities of a page, their rows, and the dirty keys. In one snapshot a row that differs without being
 * dirty is drift, however fast things change.
 */
function compareAtOnce(
  engine: PostgresEngine,
  { store, sweeps, destination }: Parts,
  place: PagePosition,
  size: number,
): Promise<PageComparison> {
  return engine.transaction(
    async (tx) => {
      const page = await sweeps.page(tx, place, size);
      if (page.keys.length === 0) return { page, drift: [] };
      const differing = await destination.differing(tx, page.keys);
      const dirty = differing.length === 0 ? new Set<string>() : await store.dirtyAmong(tx, differing);
      return { page, drift: differing.filter((key) => !dirty.has(key)) };
    },
    { isolation: 'repeatable read', seesAll: true },
  );
}

/**
 * No snapshot shows two databases. While this transaction has the locks of the keys, no worker delivers them: an entity that
 * changed before it is read here is still dirty in the check that follows. A key that another worker has locked is being
 * written; it is no drift.
 */
function compareLocked(
  { store, sweeps, destination }: Parts,
  place: PagePosition,
  size: number,
): Promise<PageComparison> {
  return store.transaction(async (tx) => {
    const page = await sweeps.page(tx, place, size);
    const mine = page.keys.length === 0 ? [] : await store.lock(tx, page.keys);
    const differing = mine.length === 0 ? [] : await destination.differing(tx, mine);
    const dirty = differing.length === 0 ? new Set<string>() : await store.dirtyAmong(tx, differing);
    return { page, drift: differing.filter((key) => !dirty.has(key)) };
  });
}
