import { ConnectionFailed } from '../base/errors.ts';
import { faults } from '../base/fault.ts';
import { isTransient, type PostgresEngine, type Transaction } from '../engine/postgres/index.ts';
import { type Destination, type TargetRow, WentBack } from './destination.ts';
import {
  type CopyStatements,
  drawVersion,
  isOutOfService,
  lastVersion,
  readPlainly,
  takeKeys,
} from './postgres-copy.ts';
import { type TargetStatements, writeRows } from './postgres-target.ts';
import type { Build } from './projection-options.ts';
import { buildRows, type MadeRows, without } from './rows.ts';

export interface CopyParts {
  /** The database that has the copy. */
  readonly to: PostgresEngine;
  /** The name of the line over there. */
  readonly copy: string;
  readonly target: TargetStatements;
  readonly statements: CopyStatements;
  readonly key: string;
  /** Undefined where a query makes the rows. */
  readonly build: Build | undefined;
}

/** How long a transaction over there may take; that of the captured database, which waits for it, is ended later than that. */
const WRITE_MS = 20_000;
/** A connection that has not answered by then is dead. */
const ANSWER_MS = 25_000;

/**
 * A table in another database. Rows are committed there before the changes are acknowledged here, so what a crash in between
 * leaves is delivered again. Each row has a version that rises with the reading of its entity: what comes late changes nothing.
 */
export class CopyTable implements Destination {
  readonly isInReach = false;
  readonly #parts: CopyParts;

  constructor(parts: CopyParts) {
    this.#parts = parts;
  }

  async write(tx: Transaction, keys: readonly string[]): Promise<void> {
    const { to, copy, target } = this.#parts;
    const version = await drawVersion(tx);
    const made = await this.#make(tx, keys);
    if (faults.armed) await faults.reach('capture.before_copy');
    await this.#there(() =>
      to.transaction(
        async (other) => {
          const taken = await takeKeys(other, { copy, version, keys, timeoutMs: WRITE_MS });
          if (taken.newest !== null && BigInt(taken.newest) > BigInt(await lastVersion(tx))) throw new WentBack();
          const isAll = taken.keys.length === keys.length;
          await writeRows(other, target, made.json, without(made, taken.keys), isAll ? undefined : taken.keys);
        },
        { isolation: 'read committed', deadlineMs: ANSWER_MS },
      ),
    );
    if (faults.armed) await faults.reach('capture.after_copy');
  }

  async differing(tx: Transaction, keys: readonly string[]): Promise<string[]> {
    await readPlainly(tx);
    const { json } = await this.#make(tx, keys);
    const rows = await this.#there(() =>
      this.#parts.to.query<{ key: string }>(this.#parts.target.differing, [json, keys]),
    );
    return rows.map(({ key }) => key);
  }

  async page(tx: Transaction, after: string | null, limit: number): Promise<readonly TargetRow[]> {
    const { to, statements } = this.#parts;
    const rows = await this.#there(() => to.query<{ key: string }>(statements.page, [after, limit]));
    const strays = await tx.query<{ key: string }>(statements.strays, [rows.map(({ key }) => key)]);
    const gone = new Set(strays.map(({ key }) => key));
    return rows.map(({ key }) => ({ key, stray: gone.has(key) }));
  }

  async #make(tx: Transaction, keys: readonly string[]): Promise<MadeRows> {
    const { build, statements, key } = this.#parts;
    if (build !== undefined) return buildRows(build, tx, { key, keys });
    const [row] = await tx.query<{ json: string; found: string[] }>(statements.make, [keys]);
    return { json: row?.json ?? '[]', found: new Set(row?.found) };
  }

  /** What has nothing to do with the rows is a reason to come again, and not to set entities aside. */
  async #there<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (isTransient(error) || !isOutOfService(error)) throw error;
      const why = error instanceof Error ? error.message : String(error);
      throw new ConnectionFailed(`the other database cannot be written at the moment: ${why}`, { cause: error });
    }
  }
}
