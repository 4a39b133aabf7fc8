import { now } from '../../base/time/clock.ts';
import type { Key } from './client.ts';
import { digits, fieldsOf } from './fields.ts';
import type { RowRequests, TableRows } from './rows.ts';

/** The clocks of a watcher and of the worker may differ in speed by a tenth. */
const SLACK = 1.1;
/** How long a row that was read shows that its worker lives. It is longer than the time between two reads of all rows. */
const FRESH_MS = 10_000;
const FORGET_MS = 26 * 3_600_000;
const MOST_WORKERS = 1000;

/** The row of a worker: `b` is its heartbeat, `l` its lease in ms. */
export function workerOf(pk: string, worker: number): Key {
  return { pk, sk: `w#${digits(worker, 16)}` };
}

interface Sign {
  readonly state: string;
  readonly since: number;
}

/**
 * Which workers are alive. A worker without a row is dead. If the heartbeat of a row has not changed for a lease and a tenth, by
 * this machine's own monotonic clock, the row is removed, on condition that it still has not changed. Clocks of two machines are
 * never compared.
 */
export class Liveness {
  readonly #rows: TableRows<RowRequests>;
  readonly #pk: string;
  readonly #signs = new Map<string, Sign>();
  /** The workers whose row existed, and when it was read. */
  readonly #seen = new Map<number, number>();

  /** @param pk  the partition of the workers' rows */
  constructor(rows: TableRows<RowRequests>, pk: string) {
    this.#rows = rows;
    this.#pk = pk;
  }

  /** Whether the worker has a row. @param when  `lately`: a row that was read in the last ten seconds is enough */
  async isAlive(worker: number, when: 'now' | 'lately' = 'lately'): Promise<boolean> {
    const seen = when === 'now' ? undefined : this.#seen.get(worker);
    if (seen !== undefined && now() - seen < FRESH_MS) return true;
    const item = await this.#rows.get(workerOf(this.#pk, worker));
    if (item === undefined) this.#seen.delete(worker);
    else this.#seen.set(worker, now());
    return item !== undefined;
  }

  /** Call this when this process learns that the worker lives, or when it has ended the worker. */
  note(worker: number, isAlive: boolean): void {
    if (isAlive) this.#seen.set(worker, now());
    else this.#seen.delete(worker);
  }

  /**
   * Removes the rows of dead workers. One request for all.
   * @returns how many it has removed, and after how many milliseconds the next one may be found dead
   */
  async removeDead(): Promise<{ readonly removed: number; readonly nextMs: number }> {
    let [removed, nextMs] = [0, Infinity];
    const items = await this.#rows.range(this.#pk, 'w#', 'w#~', MOST_WORKERS);
    if (items.length < MOST_WORKERS) this.#seen.clear();
    for (const item of items) {
      const fields = fieldsOf(item);
      const worker = Number(item['sk'] !== undefined && 'S' in item['sk'] ? item['sk'].S.slice(2) : 0);
      const beat = String(fields['b'] ?? 0);
      const leftMs = this.unchangedFor(`w ${worker}`, beat, Number(fields['l'] ?? 0) * SLACK);
      if (leftMs > 0) {
        this.#seen.set(worker, now());
        nextMs = Math.min(nextMs, leftMs);
        continue;
      }
      const condition = { ConditionExpression: 'b = :0', ExpressionAttributeValues: { ':0': { N: beat } } };
      const { isDone } = await this.#rows.engine.remove(workerOf(this.#pk, worker), condition, this.#rows.limits);
      if (!isDone) continue;
      this.#seen.delete(worker);
      removed += 1;
    }
    return { removed, nextMs };
  }

  /** How much longer a state that was just read has to stay unchanged, to be unchanged for `ms`; 0 if it has been. */
  unchangedFor(what: string, state: string, ms: number): number {
    const sign = this.#signs.get(what);
    if (sign?.state === state) return Math.max(0, sign.since + ms - now());
    this.#signs.delete(what);
    this.#signs.set(what, { state, since: now() });
    for (const [old, { since }] of this.#signs) {
      if (now() - since < FORGET_MS && this.#signs.size < 20_000) break;
      this.#signs.delete(old);
    }
    return ms;
  }
}
