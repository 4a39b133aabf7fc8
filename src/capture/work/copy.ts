import { Conflict, ConnectionFailed } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { now } from '../../base/time/clock.ts';
import { BOTH, isTransient, type PostgresEngine, type Transaction } from '../../engine/postgres/index.ts';
import type { Build } from '../declare/options.ts';
import {
  type CopyStatements,
  type Draw,
  drawVersion,
  isOutOfService,
  logPosition,
  readMade,
  readPlainly,
  readStrays,
  takeKeys,
} from '../postgres/copy.ts';
import { beginEpoch, reach } from '../postgres/epoch.ts';
import { type RowsToWrite, type TargetStatements, writeRows } from '../postgres/target/statements.ts';
import { type Destination, type TargetRow, WentBack } from './destination.ts';
import { buildRows } from './rows.ts';

export interface CopyParts {
  /** The database that has the copy. */
  readonly to: PostgresEngine;
  readonly line: number;
  readonly target: TargetStatements;
  readonly statements: CopyStatements;
  readonly key: string;
  /** Citus spreads its rows, and the records about them, over several nodes. */
  readonly isDistributed: boolean;
  /** Undefined if a query makes the rows. */
  readonly build: Build | undefined;
}

/**
 * How long a transaction in the other database may take. The one in the captured database waits for it, and has a longer
 * limit.
 */
const WRITE_MS = 20_000;
/** A connection without an answer after this time is dead. */
const ANSWER_MS = 25_000;
/**
 * How often the log position is stored. After a restart of the server, everything since the last stored position is delivered
 * again.
 */
const REACH_MS = 1000;
const ALL = { seesAll: true };
/** A delivery gives up after this many new epochs in a row: then each of two servers takes the copy for its own. */
const ROUNDS = 3;

/** Rows that were made in the captured database, and a log position behind everything that they show. */
interface Made extends RowsToWrite {
  readonly position: string;
}

/**
 * A table in another database. Rows are committed there before the changes are acknowledged here, so after a crash in between
 * the changes are delivered again. Each row has a version, which rises with each reading of its entity: a late write with a
 * lower version changes nothing. If either database may have gone back in time, an epoch begins (postgres/epoch.ts) before
 * anything else is delivered.
 */
export class CopyTable implements Destination {
  readonly isInReach = false;
  readonly #parts: CopyParts;
  #reachedAt = -Infinity;

  constructor(parts: CopyParts) {
    this.#parts = parts;
  }

  async write(tx: Transaction, keys: readonly string[]): Promise<void> {
    for (let round = 0; round < ROUNDS; round += 1) {
      const draw = await this.#draw(tx);
      const made = await this.#make(tx, keys);
      if (faults.armed) await faults.reach('capture.before_copy');
      if (await this.#deliver(draw, made, keys)) return this.#delivered(tx);
      await this.#look(tx, draw);
    }
    throw new WentBack('the owner of the copy keeps changing: two servers treat the copy as their own');
  }

  async differing(tx: Transaction, keys: readonly string[]): Promise<string[]> {
    await readPlainly(tx);
    const { json } = await this.#make(tx, keys);
    const rows = await this.#there(() =>
      this.#parts.to.transaction(
        (other) => other.query<{ key: string }>(this.#parts.target.differing, [json, keys]),
        ALL,
      ),
    );
    return rows.map(({ key }) => key);
  }

  async page(tx: Transaction, after: string | null, limit: number): Promise<readonly TargetRow[]> {
    const { to, statements } = this.#parts;
    const rows = await this.#there(() =>
      to.transaction((other) => other.query<{ key: string }>(statements.page, [after, limit]), ALL),
    );
    return readStrays(
      tx,
      statements,
      rows.map(({ key }) => key),
    );
  }

  async #draw(tx: Transaction): Promise<Draw> {
    const { line } = this.#parts;
    const draw = await drawVersion(tx, line);
    if (draw.isKnown) return draw;
    await this.#look(tx, draw);
    return drawVersion(tx, line);
  }

  /** @throws WentBack  the copy belongs to another database */
  async #look(tx: Transaction, { epoch }: Draw): Promise<void> {
    const { to, line } = this.#parts;
    await this.#there(() => beginEpoch(tx, to, { line, epoch, timeoutMs: WRITE_MS })).catch((error: unknown) => {
      throw error instanceof Conflict ? new WentBack(error.message, { cause: error }) : error;
    });
  }

  /** @returns true if the rows were taken; false if another epoch has begun, or the other database may have lost writes */
  #deliver(draw: Draw, made: Made, keys: readonly string[]): Promise<boolean> {
    const { to, target, isDistributed } = this.#parts;
    return this.#there(() =>
      to.transaction(
        async (other) => {
          const taken = await takeKeys(other, { draw, position: made.position, keys, timeoutMs: WRITE_MS });
          if (!taken.isCurrent) return false;
          if (isDistributed) await other.query(BOTH);
          await writeRows(other, target, made, { keys: taken.keys, isAll: taken.keys.length === keys.length });
          return true;
        },
        { isolation: 'read committed', deadlineMs: ANSWER_MS, seesAll: true },
      ),
    );
  }

  async #delivered(tx: Transaction): Promise<void> {
    if (faults.armed) await faults.reach('capture.after_copy');
    if (now() - this.#reachedAt < REACH_MS) return;
    this.#reachedAt = now();
    await reach(tx, this.#parts.line); // one round trip, once a second
  }

  /**
   * A query returns the rows together with the position. If a program makes the rows, reading the position is one more round
   * trip.
   */
  async #make(tx: Transaction, keys: readonly string[]): Promise<Made> {
    const { build, statements, key, target } = this.#parts;
    if (build !== undefined) {
      const made = await buildRows(build, tx, { keys, key, columns: target.columns });
      return { ...made, position: await logPosition(tx) };
    }
    return readMade(tx, statements, keys);
  }

  /** If no row causes an error, the delivery is tried again, and no entity is set aside. */
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
