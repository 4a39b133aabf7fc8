const MOST = 200;

interface SharedAnswer {
  readonly answer: Promise<unknown>;
  readonly until: number;
}

/** Answers of a moment ago, for callers that ask the same: a wall of dashboards asks as often as one. A change through this API makes all of them old. */
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
    // A failure is not shared: the next caller asks again.
    answer.catch(() => {
      if (this.#kept.get(key) === kept) this.#kept.delete(key);
    });
    return answer;
  }

  clear(): void {
    this.#kept.clear();
  }
}
