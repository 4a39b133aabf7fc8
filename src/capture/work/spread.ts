import { BOTH, type Transaction } from '../../engine/postgres/index.ts';
import type { Build } from '../declare/options.ts';
import { type CopyStatements, readMade, readPlainly, readStrays } from '../postgres/copy.ts';
import { type RowsToWrite, type TargetStatements, writeRows } from '../postgres/target/statements.ts';
import type { Destination, TargetRow } from './destination.ts';
import { buildRows } from './rows.ts';

export interface SpreadParts {
  readonly target: TargetStatements;
  readonly statements: CopyStatements;
  readonly key: string;
  /** Undefined if a query makes the rows. */
  readonly build: Build | undefined;
}

/**
 * A table whose rows Citus spreads over nodes, next to the captured tables. Rows are made here and written there in separate
 * statements: Citus accepts no statement with a part that writes, and few that read tables of both kinds.
 *
 * The rows and the acknowledgement are committed in two phases. If a node crashes between the phases, Citus undoes or completes
 * both, within the minute that its next check may take. Until then the keys' rows are locked there: a repeated delivery waits,
 * and then writes the current state.
 */
export class SpreadTable implements Destination {
  /** Each node has snapshots of its own. */
  readonly isInReach = false;
  readonly #parts: SpreadParts;

  constructor(parts: SpreadParts) {
    this.#parts = parts;
  }

  async write(tx: Transaction, keys: readonly string[]): Promise<void> {
    const made = await this.#make(tx, keys);
    await tx.query(BOTH);
    await writeRows(tx, this.#parts.target, made, { keys, isAll: true });
  }

  async differing(tx: Transaction, keys: readonly string[]): Promise<string[]> {
    const { json } = await this.#make(tx, keys);
    return keysOf(await tx.query<{ key: string }>(this.#parts.target.differing, [json, keys]));
  }

  async page(tx: Transaction, after: string | null, limit: number): Promise<readonly TargetRow[]> {
    const { statements } = this.#parts;
    const keys = keysOf(await tx.query<{ key: string }>(statements.page, [after, limit]));
    return readStrays(tx, statements, keys);
  }

  async #make(tx: Transaction, keys: readonly string[]): Promise<RowsToWrite> {
    const { build, statements, key, target } = this.#parts;
    if (build !== undefined) return buildRows(build, tx, { keys, key, columns: target.columns });
    await readPlainly(tx);
    return readMade(tx, statements, keys);
  }
}

function keysOf(rows: readonly { readonly key: string }[]): string[] {
  return rows.map(({ key }) => key);
}
