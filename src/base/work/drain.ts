import { Budget } from '../time/budget.ts';
import { within } from '../time/clock.ts';

/** What a stop does with handlers whose time is up. */
export interface DrainOptions<T> {
  /** For how long they may go on. */
  readonly time: Budget;
  /** For how long more once they were told to end. */
  readonly graceMs: number;
  readonly abort: (handlers: readonly T[]) => void;
  /** They have not ended, and nothing of what they do later counts. */
  readonly abandon: (handlers: readonly T[]) => void;
  /** The outcome of the others is written. */
  readonly written: () => Promise<unknown>;
}

/** At least, for a handler that has just heard that the stop which it waited for is as good as over. */
const MOMENT_MS = 1000;

/**
 * The ends of handlers, for a stop that waits for them. A handler that waits for this stop itself would wait for its own end: it
 * waits for those that do not, and ends after them.
 */
export class Drain<T> {
  readonly #running: () => Iterable<T>;
  readonly #isQuiet: () => boolean;
  /** Handlers that wait for the stop. */
  readonly #inside = new Set<T>();
  readonly #whenOthersEnded: (() => void)[] = [];
  #waiting: { readonly isDone: () => boolean; readonly resolve: () => void }[] = [];
  #othersEnded = false;

  /** @param isQuiet  whether what has ended is no longer under way in any other way */
  constructor(running: () => Iterable<T>, isQuiet: () => boolean = () => true) {
    this.#running = running;
    this.#isQuiet = isQuiet;
  }

  /** For a handler that runs: resolves when all have ended that do not wait like it. */
  waitInside(handler: T): Promise<void> {
    this.#inside.add(handler);
    this.recordEnd();
    return this.#othersEnded ? Promise.resolve() : new Promise((resolve) => this.#whenOthersEnded.push(resolve));
  }

  /** Something has ended. */
  recordEnd(): void {
    if (this.#waiting.length === 0) return;
    const done = this.#waiting.filter(({ isDone }) => isDone());
    if (done.length === 0) return;
    this.#waiting = this.#waiting.filter((waiting) => !done.includes(waiting));
    for (const { resolve } of done) resolve();
  }

  /** Waits for all of them, tells those to end whose time is up, and leaves behind what does not. */
  async run(options: DrainOptions<T>): Promise<void> {
    const { time, graceMs, written } = options;
    const end = new Budget(time.leftMs + graceMs);
    const all = (): T[] => [...this.#running()];
    await this.#wait(() => all().filter((handler) => !this.#inside.has(handler)), time.leftMs, end, options);
    if (this.#inside.size === 0) return;
    await within(Math.max(time.leftMs, MOMENT_MS), written());
    this.#othersEnded = true;
    for (const resolve of this.#whenOthersEnded.splice(0)) resolve();
    await this.#wait(all, Math.max(time.leftMs, MOMENT_MS), end, options);
  }

  async #wait(left: () => T[], ms: number, end: Budget, { abort, abandon }: DrainOptions<T>): Promise<void> {
    if (await within(ms, this.#ended(left))) return;
    abort(left());
    if (!(await end.wait(this.#ended(left)))) abandon(left());
  }

  #ended(left: () => T[]): Promise<void> {
    const isDone = (): boolean => left().length === 0 && this.#isQuiet();
    if (isDone()) return Promise.resolve();
    return new Promise((resolve) => this.#waiting.push({ isDone, resolve }));
  }
}
