const MOST = 200;

interface SharedAnswer {
  readonly answer: Promise<unknown>;
  readonly until: number;
}

/**
 * Recent answers, shared by callers with the same request: many dashboards cost the same as one. A change through this API
 * discards all of them.
 */
export class SharedAnswers {
  readonly #kept = new Map<string, SharedAnswer>();

  get(key: string, freshMs: number, ask: () => Promise<unknown>): Promise<unknown> {
    const old = this.#kept.get(key);
    if (old !== undefined && old.until > performance.now()) return old.answer;
    const answer = ask();
    const kept = { answer, until: performance.now() + freshMs };
    this.#kept.delete(key);
    this.#kept.set(key, kept);
    if (this.#kept.size > MOST) this.#kept.delete(this.#kept.keys().next().value ?? '');
    // A failure is not shared: the next caller tries again.
    answer.catch(() => {
      if (this.#kept.get(key) === kept) this.#kept.delete(key);
    });
    return answer;
  }

  clear(): void {
    this.#kept.clear();
  }
}
