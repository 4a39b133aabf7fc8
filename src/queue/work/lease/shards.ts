import type { NextPoll } from '../../../base/work/claim-source.ts';
import type { ClaimAnswer } from '../../store.ts';
import { Scan } from '../scan.ts';

/** The shards of a queue, polled one after another: when all of them have brought nothing, a round is over. */
export class Shards {
  readonly #scans: readonly [Scan, ...Scan[]];
  /** The scan of the shard that is polled next. */
  #scan: Scan;
  readonly #onRoundEnd: () => void;

  /** @param onRoundEnd  all shards were polled, and none has anything */
  constructor(count: number, onRoundEnd: () => void) {
    this.#scan = new Scan(0);
    this.#scans = [this.#scan, ...Array.from({ length: count - 1 }, (_, shard) => new Scan(shard + 1))];
    this.#onRoundEnd = onRoundEnd;
  }

  /** The one that is polled, or polled next. */
  get scan(): Scan {
    return this.#scan;
  }

  /** None of them counts as empty any more. */
  wake(): void {
    for (const scan of this.#scans) scan.quiet = undefined;
  }

  restart(): void {
    for (const scan of this.#scans) scan.restart();
  }

  /** Reads what a poll has brought, and goes on to the next shard. @returns the time of its poll */
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
