const MOST = 1000;

/** Notes about claims. The note of an abandoned claim stays, so beyond a thousand the oldest note is dropped. */
export class NewestFew<T> {
  readonly #notes = new Map<string, T>();

  get(nonce: string): T | undefined {
    return this.#notes.get(nonce);
  }

  set(nonce: string, note: T): void {
    this.#notes.set(nonce, note);
    if (this.#notes.size <= MOST) return;
    const [oldest] = this.#notes.keys();
    if (oldest !== undefined) this.#notes.delete(oldest);
  }

  delete(nonce: string): void {
    this.#notes.delete(nonce);
  }
}
