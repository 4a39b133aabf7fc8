import { isObjectName, type Listed } from './content.ts';
import type { Depot } from './depot.ts';
import type { FileStore } from './store.ts';
import type { Collector } from './sweep.ts';
import type { PastVersion } from './version.ts';

/** What a comparison of the store with the database found. */
export interface ReconcileReport {
  /** Names seen in the store. */
  readonly seen: number;
  /** Names in the store that no row knows: put there by others, or by a future that the database has lost. */
  readonly strangers: readonly string[];
  /** Those of them that were taken to quarantine by this call. */
  readonly quarantined: readonly string[];
  /** Versions whose bytes are not in the store, or have another length there. */
  readonly damaged: readonly DamagedVersion[];
}

export interface DamagedVersion {
  readonly id: string;
  readonly version: number;
  readonly object: string;
  readonly damage: 'missing' | 'size';
}

interface Options {
  readonly dryRun: boolean;
  readonly signal: AbortSignal | undefined;
}

/** The list names most; a report that names more helps nobody. */
const MOST_NAMED = 10_000;

/**
 * Compares everything in the store with everything in the database. A page of the store's list is taken first, then the rows
 * between its names: a row is committed before its object is written, so what is in the page and has no row is a stranger.
 * What seems to be missing is looked for once more by its name, since it may be younger than the page.
 */
export async function reconcile(
  store: FileStore,
  depot: Depot,
  collector: Collector,
  { dryRun, signal }: Options,
): Promise<ReconcileReport> {
  await depot.attach();
  // A database that does not know whether it is right must not move what it does not know.
  if (!dryRun) await collector.begin();
  const strangers: string[] = [];
  const quarantined: string[] = [];
  const damaged: DamagedVersion[] = [];
  let seen = 0;
  let after: string | undefined;
  const compare = async (page: readonly Listed[], upto: string | undefined): Promise<void> => {
    seen += page.length;
    const ours = page.filter(({ name }) => isObjectName(name));
    const known = await store.known(ours.map(({ name }) => name));
    for (const { name } of page) {
      if (known.has(name) || strangers.length >= MOST_NAMED) continue;
      strangers.push(name);
      if (dryRun) continue;
      await depot.call(`taking ${name} to quarantine`, (call) => depot.content.quarantine(name, call), signal);
      quarantined.push(name);
    }
    const sizes = new Map(ours.map(({ name, size }) => [name, size]));
    for (const row of await store.readable(after, upto)) {
      const damage = await damageOf(row, sizes.get(row.object), depot, store, signal);
      if (damage !== undefined && damaged.length < MOST_NAMED) damaged.push(named(row, damage));
    }
    after = upto;
  };
  const limit = signal ?? new AbortController().signal;
  for await (const page of depot.content.list({ signal: limit })) {
    limit.throwIfAborted();
    const last = page.findLast(({ name }) => isObjectName(name))?.name;
    if (last !== undefined) await compare(page, last);
    else if (page.length > 0) await compare(page, after ?? FIRST);
  }
  await compare([], undefined);
  return { seen, strangers, quarantined, damaged };
}

const FIRST = '00000000-0000-0000-0000-000000000000';

async function damageOf(
  row: PastVersion,
  listed: number | undefined,
  depot: Depot,
  store: FileStore,
  signal: AbortSignal | undefined,
): Promise<DamagedVersion['damage'] | undefined> {
  const { object, size } = row;
  if (listed === size) return undefined;
  const found = await depot.call(`looking for ${object}`, (call) => depot.content.size(object, call), signal);
  if (found === size) return undefined;
  if (found !== undefined) return 'size';
  // It may have been collected meanwhile.
  const now = await store.current(row.id, row.version);
  return now?.state === 'live' || now?.state === 'retired' ? 'missing' : undefined;
}

function named({ id, version, object }: PastVersion, damage: DamagedVersion['damage']): DamagedVersion {
  return { id, version, object, damage };
}
