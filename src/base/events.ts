/** Called when a listener throws or rejects: the program learns of it, and never the code that emitted. */
export type ListenerErrorHandler = (error: unknown, event: string) => void;

type Listener<T> = (payload: T) => unknown;

/** A listener, stored under the name of its event, which determines the type of its payload. */
interface Entry {
  hear(payload: unknown): unknown;
}

/**
 * Typed events, for logs and metrics: `new Events<{ claimed: Claimed; failed: Failed }>()`.
 * Listeners run at once, in the order in which they were added. If a listener throws, or returns a promise that rejects, the
 * emitter and the other listeners are not affected. The error is reported to `onListenerError`, by default as a process warning.
 */
export class Events<M extends object> {
  readonly #listeners = new Map<string, readonly Entry[]>();
  readonly #onListenerError: ListenerErrorHandler;

  constructor(onListenerError: ListenerErrorHandler = warn) {
    this.#onListenerError = onListenerError;
  }

  /** Adds a listener. @returns a function that removes it; a second call of that function does nothing */
  on<K extends keyof M & string>(event: K, listener: Listener<M[K]>): () => void {
    // A listener added twice is called twice, and each call of on() removes its own.
    const entry: Entry = { hear: (payload: M[K]) => listener(payload) };
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), entry]);
    return () => this.#remove(event, entry);
  }

  /** Adds a listener for only the next event of this name. @returns a function that removes it before that */
  once<K extends keyof M & string>(event: K, listener: Listener<M[K]>): () => void {
    const remove = this.on(event, (payload) => {
      remove();
      return listener(payload);
    });
    return remove;
  }

  /** Calls the listeners of the event. Costs one map look-up when there are none. Never throws. */
  emit<K extends keyof M & string>(event: K, payload: M[K]): void {
    const entries = this.#listeners.get(event);
    if (entries === undefined) return;
    for (const entry of entries) this.#call(event, entry, payload);
  }

  /** Whether the event has a listener: check it before you make an expensive payload. */
  has(event: keyof M & string): boolean {
    return this.#listeners.has(event);
  }

  #call(event: string, entry: Entry, payload: unknown): void {
    try {
      const result = entry.hear(payload);
      if (result instanceof Promise) result.catch((error: unknown) => this.#report(error, event));
    } catch (error) {
      this.#report(error, event);
    }
  }

  #report(error: unknown, event: string): void {
    try {
      this.#onListenerError(error, event);
    } catch (second) {
      warn(second, event);
    }
  }

  #remove(event: string, entry: Entry): void {
    const rest = (this.#listeners.get(event) ?? []).filter((other) => other !== entry);
    if (rest.length === 0) this.#listeners.delete(event);
    else this.#listeners.set(event, rest);
  }
}

function warn(error: unknown, event: string): void {
  const detail = error instanceof Error ? (error.stack ?? error.message) : String(error);
  process.emitWarning(`a listener of "${event}" failed: ${detail}`, { type: 'PawlListenerWarning' });
}
