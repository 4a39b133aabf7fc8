import type { Draw } from '../../../../support/random.ts';
import { BATCH_SIZE } from '../../declaration.ts';
import type { Job, QueueHistory } from '../../history.ts';
import { Addition } from './addition.ts';

/** Bugs with keys that stop at an error, and with batch handlers. */
export const STOP_BUGS = [
  'a key goes on past an error',
  'a key goes on before a job that runs again',
  'an earlier job that is retried goes past a later one in error',
  'a batch is too large',
  'a batch has a key twice',
] as const;

/** The history with added keys that stop, and calls of batch handlers. */
export function withStops(history: QueueHistory, draw: Draw, bug: string | undefined): QueueHistory {
  const more = new Stops(history, draw, bug);
  more.skip();
  more.retry();
  more.retryBoth();
  more.callTogether();
  return more.history();
}

class Stops extends Addition {
  readonly #bug: string | undefined;

  constructor(before: QueueHistory, draw: Draw, bug: string | undefined) {
    super(before, draw, 4_000_000);
    this.#bug = bug;
  }

  /** A worker that has lost the key may begin a job late, if it claimed the job before the error was written. */
  skip(): void {
    const [failed, later] = this.#booked('skipped', 'error');
    const ended = this.#fail(failed);
    const skipped = ended + this.draw.int(10, 60);
    this.rest(failed, 'error', 'error', 'skip by hand', skipped);
    const isEarly = this.#bug === 'a key goes on past an error';
    this.runAll([later], { begunAt: isEarly ? ended + 2 : skipped + this.draw.int(0, 40), claimedMs: isEarly ? 1 : 3 });
  }

  retry(): void {
    const [failed, later] = this.#booked('retried', 'complete');
    const ended = this.#fail(failed);
    const again = ended + this.draw.int(10, 60);
    this.rest(failed, 'error', 'new', 'retry by hand', again);
    const over = this.run(failed, again + 20);
    this.run(
      later,
      this.#bug === 'a key goes on before a job that runs again' ? again + 10 : over + this.draw.int(0, 20),
    );
  }

  /** The earlier job was skipped, and is retried while the later job stops the key. Once the later one is retried, the order holds. */
  retryBoth(): void {
    const [first, second] = this.#booked('both retried', 'complete');
    const skipped = this.#fail(first) + this.draw.int(10, 60);
    this.rest(first, 'error', 'error', 'skip by hand', skipped);
    const ended = this.#fail(second, skipped + 10);
    const again = ended + this.draw.int(10, 60);
    this.rest(first, 'error', 'new', 'retry by hand', again);
    const back = again + this.draw.int(60, 90);
    this.rest(second, 'error', 'new', 'retry by hand', back);
    const isEarly = this.#bug === 'an earlier job that is retried goes past a later one in error';
    const over = this.run(first, isEarly ? again + 2 : back + 20);
    this.run(second, Math.max(over, back) + 20);
  }

  callTogether(): void {
    const n = this.#bug === 'a batch is too large' ? BATCH_SIZE + 1 : this.draw.int(1, BATCH_SIZE);
    const isTwice = this.#bug === 'a batch has a key twice';
    for (const nth of Array.from({ length: Math.max(n, isTwice ? 2 : 1) }).keys()) {
      const key = isTwice ? 'twice' : this.draw.pick(null, `batched ${nth}`);
      const job = this.add('batched', 1000, key);
      this.ask([job]);
      this.runAll([job], { begunAt: 1010 + nth, call: 'a call' });
    }
  }

  #booked(key: string, status: string): [Job, Job] {
    const [failed, later] = [this.put({ ...this.job('book', 1000, key), status }), this.add('book', 1001, key)];
    this.ask([failed]);
    this.ask([later]);
    return [failed, later];
  }

  #fail(job: Job, begunAt = 1010): number {
    return this.runAll([job], { begunAt, how: 'NoRetry', to: 'error', reason: 'no retry' });
  }
}
