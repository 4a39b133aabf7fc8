/** Ends jobs that have not begun by their time. One that is begun later anyway is ended by its worker, which knows its time. */
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

/** Rows that are read at a time: a claim waits for it. */
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

  /** Sends nothing as long as the head names no new row, and none that is known is due. */
  endDue(shard: number, head: ShardHead): Promise<{ readonly isMoved: boolean; readonly nextAt: number }> {
    return this.#due.moveDue(shard, head.expiries, async (due) => {
      let isMoved = false;
      for (const item of due) isMoved = (await this.#end(shard, item)) || isMoved;
      return isMoved;
    });
  }

  /** Twice it does the same: of each job it looks at how that stands. @returns false when its piece may still come */
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
    // Without a key or a delay, the head of the shard alone tells that a job is over.
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

  /** A job that has begun goes on, and one that was given more time has another row. */
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
