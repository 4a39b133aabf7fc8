import { InvalidInput } from '../../base/errors.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { Build, ProjectedRow } from '../declare/options.ts';
import type { RowsToWrite } from '../postgres/target/statements.ts';

/**
 * Calls `build` and checks its rows: at most one for each key that it was called with, and none for another key.
 * @param key  the column of the key
 */
export async function buildRows(
  build: Build,
  tx: Transaction,
  { key: column, keys }: { key: string; keys: readonly string[] },
): Promise<RowsToWrite> {
  const rows = await build(keys, tx);
  const asked = new Set(keys);
  const found = new Set<string>();
  for (const row of rows) {
    const value = row[column];
    const key = String(value);
    if (value === undefined || value === null || !asked.has(key)) {
      throw new InvalidInput(`build returned a row whose ${column} is ${key}, which was not asked for`, {
        field: 'build',
      });
    }
    if (found.has(key))
      throw new InvalidInput(`build returned two rows for ${key}; it may return one for each entity`, {
        field: 'build',
      });
    found.add(key);
  }
  return { json: toJson(rows), found };
}

function toJson(rows: readonly ProjectedRow[]): string {
  return JSON.stringify(rows, function (this: object, key, value: unknown) {
    // `value` is what toJSON() of the bytes has made, whose text Postgres would store as if these were the bytes.
    const given: unknown = Reflect.get(this, key);
    if (given instanceof Uint8Array) return toHex(given);
    if (typeof value === 'bigint') return value.toString();
    if (typeof value === 'number' && !Number.isFinite(value)) return String(value);
    return value;
  });
}

/** Bytes as Postgres reads and writes them, also in JSON. */
function toHex({ buffer, byteOffset, byteLength }: Uint8Array): string {
  return `\\x${Buffer.from(buffer, byteOffset, byteLength).toString('hex')}`;
}
