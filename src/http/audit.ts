import type { Logger } from '../base/logger.ts';
import type { Principal } from './permission.ts';
import type { AuditStore } from './postgres-audit.ts';

/** Longer bodies are kept in part: the audit says what was done, and is no copy of every payload. */
const MOST_DETAILS = 4000;
const PRUNE_MS = 3_600_000;

export interface Action {
  readonly who: Principal;
  readonly remote: string | undefined;
  readonly userAgent: string | undefined;
  readonly permission: string;
  readonly target: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Writes down what is done. No action is begun before its row is committed. */
export class Audit {
  readonly #store: AuditStore;
  readonly #keepMs: number;
  readonly #logger: Logger;
  #prunedAt = -Infinity;

  constructor(store: AuditStore, keepMs: number, logger: Logger) {
    this.#store = store;
    this.#keepMs = keepMs;
    this.#logger = logger;
  }

  /** Somebody who was refused is written down, too. */
  async refused(action: Action, status: number, error: string): Promise<void> {
    await this.#store.end(await this.#begin(action), status, error);
  }

  /** @returns what `fn` gives, which has not begun unless the row is there */
  async record<T>(
    action: Action,
    fn: () => Promise<T>,
    outcomeOf: (error: unknown) => readonly [number, string],
  ): Promise<T> {
    const id = await this.#begin(action);
    try {
      const answer = await fn();
      await this.#end(id, 200, undefined);
      return answer;
    } catch (error) {
      await this.#end(id, ...outcomeOf(error));
      throw error;
    }
  }

  #begin({ who, remote, userAgent, permission, target, body }: Action): Promise<string> {
    this.#prune();
    const details = JSON.stringify(body);
    return this.#store.begin({
      who: `${who.name} (${who.by})`,
      remote,
      userAgent: userAgent?.slice(0, 300),
      action: permission,
      target: target.slice(0, 500),
      details: details.length > MOST_DETAILS ? JSON.stringify({ shortened: details.slice(0, MOST_DETAILS) }) : details,
    });
  }

  /** What was done is done, and its caller must hear so, even when the second half of the row cannot be written. */
  async #end(id: string, status: number, error: string | undefined): Promise<void> {
    await this.#store.end(id, status, error).catch((cause: unknown) => {
      this.#logger.error({ err: cause, audit: id }, 'http: the outcome of an action could not be written down');
    });
  }

  #prune(): void {
    if (performance.now() - this.#prunedAt < PRUNE_MS) return;
    this.#prunedAt = performance.now();
    this.#store.prune(this.#keepMs).catch((error: unknown) => {
      this.#logger.warn({ err: error }, 'http: old rows of the audit could not be removed');
    });
  }
}
