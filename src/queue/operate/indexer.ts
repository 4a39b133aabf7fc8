import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import type { PostgresQueueChores } from '../postgres/chores.ts';

/** How often the indexer searches for jobs that are not indexed yet. */
const LOOK_MS = 5000;
/** The pause after open transactions have blocked the next chunk. */
const WAIT_MS = 1000;
/** Chunks written in one transaction. */
const AT_ONCE = 8;
/** The indexer rests this many times as long as it worked: ready jobs come first. */
const REST = { quiet: 1, busy: 40 } as const;

/** Indexes jobs for the search by words, in the background: see sql/queue/read/search_index.sql. */
export class Indexer {
  readonly #chores: PostgresQueueChores;
  readonly #loop: Loop;

  constructor(chores: PostgresQueueChores, onError: (error: unknown) => void) {
    this.#chores = chores;
    this.#loop = startLoop({ name: 'queue.index', run: () => this.#step(), onError, unref: true });
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #step(): Promise<number> {
    const begin = performance.now();
    const { chunks, waits, quiet } = await this.#chores.index(AT_ONCE);
    if (probe.listening) probe.hit('queue.indexed', { chunks, waits });
    if (chunks === 0) return (waits ? WAIT_MS : LOOK_MS) * (0.75 + Math.random() / 2);
    return (performance.now() - begin) * (quiet ? REST.quiet : REST.busy);
  }
}
