import type { PostgresEngine, Transaction } from '../../engine/postgres/index.ts';
import type { CaptureStore } from '../postgres/store.ts';
import type { Page, Progress, SweepStore } from '../postgres/sweep.ts';
import type { Destination } from '../work/destination.ts';

/** The result of comparing entities with their rows. */
export interface ReconcileResult {
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

/** The result contains at most this many of the drifted keys. */
const MOST_KEYS = 100;

/** At most this many keys that differ are kept in memory until the log is searched for them. */
const MOST_SUSPECTS = 100_000;

/**
 * Goes through the pages, and only now and then searches the log for keys that differ, to find the dirty ones. No index finds a
 * key there, so each search reads all waiting changes. If one snapshot shows entities and rows, each search is for twice as
 * many keys as the one before.
 */
export async function reconcile(engine: PostgresEngine, parts: Parts, settings: Settings): Promise<ReconcileResult> {
  let [checked, drifted, room] = [0, 0, settings.batch];
  const keys: string[] = [];
  let suspects: string[] = [];
  const examine = async (): Promise<void> => {
    const drift = await findDrift(engine, parts, suspects, settings.batch);
    if (settings.repair && drift.length > 0) await engine.transaction((tx) => parts.store.mark(tx, drift));
    drifted += drift.length;
    keys.push(...drift.slice(0, MOST_KEYS - keys.length));
    suspects = [];
    if (parts.destination.isInReach) room = Math.min(room * 2, MOST_SUSPECTS);
  };
  for (const phase of ['root', 'target'] as const) {
    let after: string | null = null;
    do {
      settings.signal?.throwIfAborted();
      const { page, differing } = await comparePage(engine, parts, { phase, after }, settings.batch);
      checked += page.keys.length;
      suspects.push(...differing);
      if (suspects.length >= room) await examine();
      settings.onProgress({ phase, done: checked, total: 0 });
      after = page.last;
    } while (after !== null);
  }
  if (suspects.length > 0) await examine();
  return { checked, drifted, keys };
}

interface PagePosition {
  readonly phase: 'root' | 'target';
  readonly after: string | null;
}

interface PageComparison {
  readonly page: Page;
  readonly differing: readonly string[];
}

function comparePage(
  engine: PostgresEngine,
  { sweeps, destination }: Parts,
  place: PagePosition,
  size: number,
): Promise<PageComparison> {
  return engine.transaction(
    async (tx) => {
      const page = await sweeps.page(tx, place, size);
      return { page, differing: page.keys.length === 0 ? [] : await destination.differing(tx, page.keys) };
    },
    { isolation: 'repeatable read', seesAll: true },
  );
}

/** The keys that still differ although the log has no change of them. */
async function findDrift(
  engine: PostgresEngine,
  parts: Parts,
  keys: readonly string[],
  size: number,
): Promise<readonly string[]> {
  if (parts.destination.isInReach) return driftAtOnce(engine, parts, keys, size);
  const drift: string[] = [];
  for (const some of parted(keys, size)) drift.push(...(await driftLocked(parts, some)));
  return drift;
}

function parted(keys: readonly string[], size: number): (readonly string[])[] {
  return Array.from({ length: Math.ceil(keys.length / size) }, (_, nth) => keys.slice(nth * size, (nth + 1) * size));
}

/**
 * One snapshot shows entities, their rows, and the dirty keys. A row that differs in this snapshot and is not dirty is drift,
 * however fast the data changes.
 */
function driftAtOnce(
  engine: PostgresEngine,
  { store, destination }: Parts,
  keys: readonly string[],
  size: number,
): Promise<readonly string[]> {
  return engine.transaction(
    async (tx) => {
      const differing: string[] = [];
      for (const some of parted(keys, size)) differing.push(...(await destination.differing(tx, some)));
      return notDirty(tx, store, differing);
    },
    { isolation: 'repeatable read', seesAll: true },
  );
}

/**
 * No snapshot shows two databases. While this transaction has the locks of the keys, no worker delivers them. So an entity that
 * changed before it is read here is still dirty in the check that follows. If another worker has locked a key, it is writing
 * the row of that key, and the key is no drift.
 */
function driftLocked({ store, destination }: Parts, keys: readonly string[]): Promise<readonly string[]> {
  return store.transaction(async (tx) => {
    const mine = await store.lock(tx, keys);
    return notDirty(tx, store, mine.length === 0 ? [] : await destination.differing(tx, mine));
  });
}

async function notDirty(tx: Transaction, store: CaptureStore, keys: readonly string[]): Promise<readonly string[]> {
  const dirty = keys.length === 0 ? new Set<string>() : await store.dirtyAmong(tx, keys);
  return keys.filter((key) => !dirty.has(key));
}
