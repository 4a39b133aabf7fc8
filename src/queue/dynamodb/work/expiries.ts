/** Ends jobs that have not begun by their `expiresAt`. If a worker claims such a job first, it ends the job, since it knows the time, too. */
import type { Item } from '../../../engine/dynamodb/index.ts';
import type { Definition } from '../../definition.ts';
import { type QueueRows, unlessMissing } from '../database.ts';
import { EXPIRIES, expiresAt, expiries, expiriesIn } from '../enqueue/expiry.ts';
import { type ShardHead, standingOf } from '../heads/head.ts';
import { jobNumber } from '../heads/place.ts';
import { attemptOf, findJob } from '../operate/standing.ts';
import { cancelWaiting } from '../operate/taking-out.ts';
import { pieceOf, readJobRow } from '../rows.ts';
import { DueRows, pieceIn, sortKeyOf } from './due-rows.ts';

/** Rows that are read at a time. Few, since a claim waits for them. */
const AT_ONCE = 10;
const MOST_TRIES = 20;

export class Expiries {
  readonly #rows: QueueRows;
  readonly #definition: Definition;
  readonly #due: DueRows;

  constructor(rows: QueueRows, definition: Definition) {
    this.#rows = rows;
    this.#definition = definition;
    this.#due = new DueRows(rows, EXPIRIES, AT_ONCE);
  }

  /** Sends nothing as long as the head has counted no new row, and no known row is due. */
  endDue(shard: number, head: ShardHead): Promise<{ readonly isMoved: boolean; readonly nextAt: number }> {
    return this.#due.moveDue(shard, head.expiries, async (due) => {
      let isMoved = false;
      for (const item of due) isMoved = (await this.#end(shard, item)) || isMoved;
      return isMoved;
    });
  }

  /** Ends the due jobs of a row. It reads the status of each job first, so it may be repeated. @returns false if the piece may still come */
  async #end(shard: number, item: Item): Promise<boolean> {
    const pk = this.#rows.shard(shard);
    const piece = pieceIn(item);
    const head = await this.#rows.head(shard);
    const found = await this.#rows.get(pieceOf(pk, piece));
    const standing = standingOf(head, { piece, index: 0 });
    if (found === undefined && (standing === 'line' || standing === 'missing')) return false;
    const row = found === undefined ? undefined : readJobRow(found);
    const now = this.#rows.engine.now();
    const all = row === undefined || row.n === 0 ? [] : expiriesIn(item);
    // If jobs have neither a key nor a delay, the head of the shard alone tells which of them are over.
    const isPlain = row?.dueAt === 0 && (row.keys === undefined || row.isLabelled);
    for (const { at, index: first, n } of all) {
      for (let index = first; at <= now && index < first + n; index += 1) {
        if (isPlain && standingOf(head, { piece, index }) === 'gone') continue;
        await this.#endJob(jobNumber(shard, piece, index));
      }
    }
    const later = all.filter(({ at }) => at > now);
    for (const { key, written } of expiries(pk, piece, later)) {
      await this.#rows.engine.update(key, written, 'NONE', this.#rows.limits);
    }
    await this.#rows.engine.remove({ pk, sk: sortKeyOf(item) }, {}, this.#rows.limits);
    return true;
  }

  /** Leaves a job that has begun, and a job that was given more time, which has another row. */
  async #endJob(id: number): Promise<void> {
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const job = await findJob(this.#rows, this.#definition, String(id)).catch(unlessMissing);
      const at = expiresAt(job?.own);
      if (job === undefined || at === undefined || at > this.#rows.engine.now()) return;
      if (job.status !== 'new' || attemptOf(job) > 0) return;
      const error = `it had not begun by ${new Date(at).toISOString()}`;
      if (await cancelWaiting(this.#rows, this.#definition, job, { reason: 'expired', error, isUntried: true })) return;
    }
  }
}
