import type { NextPoll } from '../../../base/work/claim-source.ts';
import type { ClaimAnswer, Cursor } from '../../store.ts';
import { PickyScan, Scan } from '../scan.ts';

/** The shards of a queue, polled one after another. A round is over when each of them has brought nothing. */
export class Shards {
  readonly #scans: readonly [Scan, ...Scan[]];
  /** The scan of the shard that is polled next. */
  #scan: Scan;
  readonly #onRoundEnd: () => void;

  /**
   * @param onRoundEnd  called when all shards were polled, and none had a job
   * @param from  the first position for a worker that takes a part of the work
   */
  constructor(count: number, onRoundEnd: () => void, from?: Cursor) {
    const scanOf = (shard: number): Scan => (from === undefined ? new Scan(shard) : new PickyScan(shard, from));
    this.#scan = scanOf(0);
    this.#scans = [this.#scan, ...Array.from({ length: count - 1 }, (_, shard) => scanOf(shard + 1))];
    this.#onRoundEnd = onRoundEnd;
  }

  /** The scan that is polled now or next. */
  get scan(): Scan {
    return this.#scan;
  }

  /** From now on, no scan counts as empty. */
  wake(): void {
    for (const scan of this.#scans) scan.quiet = undefined;
  }

  restart(): void {
    for (const scan of this.#scans) scan.restart();
  }

  /** Reads the answer to a poll, and goes on to the next shard. @returns the time of its poll */
  next(answer: ClaimAnswer, limit: number): NextPoll {
    const verdict = this.#scan.read(answer, limit);
    const scans = this.#scans;
    this.#scan = scans[(this.#scan.shard + 1) % scans.length] ?? scans[0];
    if (answer.paused === true) {
      this.#onRoundEnd();
      return 'paused';
    }
    if (verdict === 'again') return 'more';
    if (scans.some(({ quiet }) => quiet === undefined)) return 'elsewhere';
    for (const other of scans) other.quiet = undefined;
    this.#onRoundEnd();
    return verdict === 'busy' ? 'contended' : Math.min(...scans.map((one) => one.due));
  }
}
