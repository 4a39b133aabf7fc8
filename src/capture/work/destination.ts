import { Conflict } from '../../base/errors.ts';
import type { Transaction } from '../../engine/postgres/index.ts';
import type { Build } from '../declare/options.ts';
import { type RowsToWrite, type TargetStatements, writeRows } from '../postgres/target/statements.ts';
import { buildRows } from './rows.ts';

/** A row of the target, and whether its entity is gone. */
export interface TargetRow {
  readonly key: string;
  readonly stray: boolean;
}

/**
 * The table of a projection. `tx` is the transaction of the claim and the acknowledgement, in the captured database. The
 * caller has locked the keys that it writes.
 */
export interface Destination {
  /** Writes the rows of the entities as they are now, and removes the rows of entities that are gone. */
  write(tx: Transaction, keys: readonly string[]): Promise<void>;
  /** The keys whose row differs from the row that would be written now. */
  differing(tx: Transaction, keys: readonly string[]): Promise<string[]>;
  /** Rows in the order of their keys, after one of them. */
  page(tx: Transaction, after: string | null, limit: number): Promise<readonly TargetRow[]>;
  /** True: one snapshot shows both entities and rows. If not, they are compared under the locks of the keys. */
  readonly isInReach: boolean;
}

/** A table in the captured database: everything happens in one transaction. */
export class OwnTable implements Destination {
  readonly isInReach = true;
  readonly #statements: TargetStatements;
  readonly #key: string;
  /** Undefined if a query makes the rows. */
  readonly #build: Build | undefined;

  constructor(statements: TargetStatements, key: string, build: Build | undefined) {
    this.#statements = statements;
    this.#key = key;
    this.#build = build;
  }

  async write(tx: Transaction, keys: readonly string[]): Promise<void> {
    const made = await this.#make(tx, keys);
    if (made === undefined) {
      if (this.#statements.project !== undefined) await tx.query(this.#statements.project, [keys]);
      return;
    }
    await writeRows(tx, this.#statements, made, { keys, isAll: true });
  }

  async differing(tx: Transaction, keys: readonly string[]): Promise<string[]> {
    const made = await this.#make(tx, keys);
    const values = made === undefined ? [keys] : [made.json, keys];
    const rows = await tx.query<{ key: string }>(this.#statements.differing, values);
    return rows.map(({ key }) => key);
  }

  page(tx: Transaction, after: string | null, limit: number): Promise<readonly TargetRow[]> {
    return tx.query<TargetRow>(this.#statements.strays, [after, limit]);
  }

  async #make(tx: Transaction, keys: readonly string[]): Promise<RowsToWrite | undefined> {
    if (this.#build === undefined) return undefined;
    return buildRows(this.#build, tx, { keys, key: this.#key, columns: this.#statements.columns });
  }
}

/**
 * One of the two databases is not in the state that the other has stored about it. No entity caused this error, and nothing is
 * written.
 */
export class WentBack extends Conflict {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'Conflict';
  }
}
