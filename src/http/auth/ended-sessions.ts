import type { SessionStore } from '../store/sessions.ts';

/** How old this process's list of the sessions that others have ended may be. */
const FRESH_MS = 5000;

/**
 * The sessions that ended before their time. Where other processes accept their cookies, too, each process reads the list from the
 * database: at most one statement in five seconds, and only while requests with cookies arrive.
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
