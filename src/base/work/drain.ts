import { Budget } from '../time/budget.ts';
import { within } from '../time/clock.ts';

/** How a stop ends handlers whose time is up. */
export interface DrainOptions<T> {
  /** How long handlers may go on. */
  readonly time: Budget;
  /** How much longer they may go on once they were told to end. */
  readonly graceMs: number;
  readonly abort: (handlers: readonly T[]) => void;
  /** Called with handlers that have not ended: nothing that they do later counts. */
  readonly abandon: (handlers: readonly T[]) => void;
  /** Resolves when the outcomes of the others are written. */
  readonly written: () => Promise<unknown>;
}

/** The least time for a handler that has just learned that the stop which it awaits is nearly over. */
const MOMENT_MS = 1000;

/**
 * The ends of handlers, for a stop that waits for them. If a handler waits for this stop, it would wait for its own end. So it
 * waits only for the handlers that do not wait for the stop, and ends after them.
 */
export class Drain<T> {
  readonly #running: () => Iterable<T>;
  readonly #isQuiet: () => boolean;
  /** Handlers that wait for the stop. */
  readonly #inside = new Set<T>();
  readonly #whenOthersEnded: (() => void)[] = [];
  #waiting: { readonly isDone: () => boolean; readonly resolve: () => void }[] = [];
  #othersEnded = false;

  /** @param isQuiet  whether no ended handler is under way in another way */
  constructor(running: () => Iterable<T>, isQuiet: () => boolean = () => true) {
    this.#running = running;
    this.#isQuiet = isQuiet;
  }

  /** For a running handler: resolves when all handlers have ended that do not wait here, too. */
  waitInside(handler: T): Promise<void> {
    this.#inside.add(handler);
    this.recordEnd();
    return this.#othersEnded ? Promise.resolve() : new Promise((resolve) => this.#whenOthersEnded.push(resolve));
  }

  /** Called when a handler has ended. */
  recordEnd(): void {
    if (this.#waiting.length === 0) return;
    const done = this.#waiting.filter(({ isDone }) => isDone());
    if (done.length === 0) return;
    this.#waiting = this.#waiting.filter((waiting) => !done.includes(waiting));
    for (const { resolve } of done) resolve();
  }

  /** Waits for all handlers, tells those whose time is up to end, and abandons those that do not. */
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
