import { type Loop, startLoop } from '../../base/loop.ts';
import { probe } from '../../base/probe.ts';
import type { PostgresQueueChores } from '../postgres/chores.ts';

/** How often it is looked for jobs that are not indexed yet. */
const LOOK_MS = 5000;
/** How soon after transactions were found in the way. */
const WAIT_MS = 1000;
/** Chunks written in one transaction. */
const AT_ONCE = 8;
/** How much longer than its work the indexer rests: while jobs are ready to run, they come first. */
const REST = { quiet: 1, busy: 40 } as const;

/** Prepares jobs for being searched by words, behind everybody's back: see sql/queue/search_index.sql. */
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
