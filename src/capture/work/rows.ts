import { InvalidInput } from '../../base/errors.ts';
import { findLost, whyLost } from '../../base/unfaithful.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { Build, ProjectedRow } from '../declare/options.ts';
import type { RowsToWrite } from '../postgres/target/statements.ts';

export interface RowsToBuild {
  readonly keys: readonly string[];
  /** The column of the key. */
  readonly key: string;
  /** The columns that are written; a row may have other properties. */
  readonly columns: ReadonlySet<string>;
}

/**
 * Calls `build` and checks its rows: at most one for each key that it was called with, and none for another key; and no value
 * of which nothing would be stored.
 */
export async function buildRows(
  build: Build,
  tx: Transaction,
  { keys, key: column, columns }: RowsToBuild,
): Promise<RowsToWrite> {
  const rows = await build(keys, tx);
  const asked = new Set(keys);
  const found = new Set<string>();
  for (const row of rows) {
    const value = row[column];
    const key = String(value);
    if (value === undefined || value === null || !asked.has(key)) {
      throw refusal(`build returned a row whose ${column} is ${key}, which was not asked for`);
    }
    if (found.has(key)) throw refusal(`build returned two rows for ${key}; it may return one for each entity`);
    found.add(key);
  }
  const { json, isWhole } = toJson(rows);
  if (!isWhole) refuseLost(rows, column, columns);
  return { json, found };
}

function toJson(rows: readonly ProjectedRow[]): { json: string; isWhole: boolean } {
  let isWhole = true;
  const json = JSON.stringify(rows, function (this: object, key, value: unknown) {
    // `value` is what toJSON() of the bytes has made, whose text Postgres would store as if these were the bytes.
    const given: unknown = Reflect.get(this, key);
    if (given instanceof Uint8Array) return toHex(given);
    if (typeof value === 'bigint') return value.toString();
    if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
    if (typeof value === 'function' || typeof value === 'symbol' || whyLost(given) !== undefined) isWhole = false;
    return value;
  });
  return { json, isWhole };
}

function refuseLost(rows: readonly ProjectedRow[], key: string, columns: ReadonlySet<string>): void {
  for (const row of rows) {
    for (const name of columns) {
      const value = row[name];
      const isCode = typeof value === 'function' || typeof value === 'symbol';
      const why = isCode ? `${name} is a ${typeof value}` : findLost(value, name);
      if (why !== undefined)
        throw refusal(`build returned a row for ${String(row[key])} that cannot be stored: ${why}`);
    }
  }
}

function refusal(message: string): InvalidInput {
  return new InvalidInput(message, { field: 'build' });
}

/** Bytes as Postgres reads and writes them, also in JSON. */
function toHex({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return `\\x${Buffer.from(buffer, byteOffset, byteLength).toString('hex')}`;
}
