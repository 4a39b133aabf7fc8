import type { SessionStore } from '../store/sessions.ts';

/** The largest age of this process's list of sessions that other processes have ended. */
const FRESH_MS = 5000;

/**
 * The sessions that ended before their time. If other processes accept their cookies, too, each process reads the list from the
 * database: at most one statement in five seconds, and only while requests with cookies arrive.
 */
export class EndedSessions {
  readonly #store: SessionStore | undefined;
  /** By id; the value is the time at which its cookie would have ended. */
  readonly #own = new Map<string, number>();
  #others: ReadonlySet<string> = new Set();
  #readAt = -Infinity;
  #reading: Promise<void> | undefined;

  /** @param store  undefined: cookies are valid only in this process */
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
