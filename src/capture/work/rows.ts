import { InvalidInput } from '../../base/errors.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { Build, ProjectedRow } from '../declare/options.ts';

/** The rows of some entities, as the database reads them into the columns' own types. */
export interface MadeRows {
  /** A JSON array of objects. */
  readonly json: string;
  /** The keys that have a row. */
  readonly found: ReadonlySet<string>;
}

/** Of the keys those that have no row. */
export function without({ found }: MadeRows, keys: readonly string[]): string[] {
  return keys.filter((key) => !found.has(key));
}

/**
 * What `build` gives, checked: it may give a row for each key that it was asked for, and for no other.
 * @param key  the column of the key
 */
export async function buildRows(
  build: Build,
  tx: Transaction,
  { key: column, keys }: { key: string; keys: readonly string[] },
): Promise<MadeRows> {
  const rows = await build(keys, tx);
  const asked = new Set(keys);
  const found = new Set<string>();
  for (const row of rows) {
    const value = row[column];
    const key = String(value);
    if (value === undefined || value === null || !asked.has(key)) {
      throw new InvalidInput(`build gave a row whose ${column} is ${key}, which was not asked for`, { field: 'build' });
    }
    if (found.has(key))
      throw new InvalidInput(`build gave two rows for ${key}; it may give one for each entity`, { field: 'build' });
    found.add(key);
  }
  return { json: toJson(rows), found };
}

function toJson(rows: readonly ProjectedRow[]): string {
  return JSON.stringify(rows, (_key, value: unknown) => {
    if (typeof value === 'bigint') return value.toString();
    if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
    return value;
  });
}
