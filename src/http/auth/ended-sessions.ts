import type { SessionStore } from '../store/sessions.ts';

/** How old the picture of what other processes have ended may be. */
const FRESH_MS = 5000;

/**
 * The sessions that somebody has ended before their time. Where their cookies hold for other processes, too, those read of it in
 * the database: one statement within five seconds in which somebody comes with a cookie.
 */
export class EndedSessions {
  readonly #store: SessionStore | undefined;
  /** By id; until when its cookie would have been good. */
  readonly #own = new Map<string, number>();
  #others: ReadonlySet<string> = new Set();
  #readAt = -Infinity;
  #reading: Promise<void> | undefined;

  /** @param store  undefined: cookies hold in this process alone */
  constructor(store: SessionStore | undefined) {
    this.#store = store;
  }

  async has(id: string): Promise<boolean> {
    if (this.#own.has(id)) return true;
    if (this.#store === undefined) return false;
    if (performance.now() - this.#readAt >= FRESH_MS) {
      this.#reading ??= this.#read(this.#store).finally(() => {
        this.#reading = undefined;
      });
      await this.#reading;
    }
    return this.#others.has(id);
  }

  async add(id: string, until: number): Promise<void> {
    for (const [old, end] of this.#own) if (end <= Date.now()) this.#own.delete(old);
    this.#own.set(id, until);
    await this.#store?.end(id, new Date(until));
  }

  async #read(store: SessionStore): Promise<void> {
    const begun = performance.now();
    this.#others = new Set(await store.ended());
    this.#readAt = begun;
  }
}
