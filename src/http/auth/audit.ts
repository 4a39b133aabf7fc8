import type { Logger } from '../../base/logger.ts';
import { isReadOnly } from '../../engine/postgres/index.ts';
import type { AuditEntry, AuditStore } from '../store/audit.ts';
import type { Principal } from './permission.ts';
import { type Rate, RateLimiter } from './rate.ts';

/** Longer bodies are stored in part: the audit records actions, and is no copy of every payload. */
const MOST_DETAILS = 4000;
const PRUNE_MS = 3_600_000;
/** One row stands for the frequent actions of a caller on one object for an hour. */
const OFTEN: Rate = { burst: 1, perSecond: 1 / 3600 };
/**
 * The recorded refusals of one caller, and of all strangers: a caller must not fill the audit, or the disk, with refused
 * requests.
 */
const REFUSALS = { burst: 100, perSecond: 1 / 10 } as const;

/** The origin of a request. */
export interface RequestOrigin {
  readonly remote: string | undefined;
  readonly userAgent: string | undefined;
}

export interface Action extends RequestOrigin {
  readonly who: Principal;
  readonly permission: string;
  readonly target: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** Records actions. No action begins before its row is committed. */
export class Audit {
  readonly #store: AuditStore;
  readonly #keepMs: number;
  readonly #logger: Logger;
  readonly #refusals = new RateLimiter(REFUSALS);
  readonly #often = new RateLimiter(OFTEN);
  #prunedAt = -Infinity;

  constructor(store: AuditStore, keepMs: number, logger: Logger) {
    this.#store = store;
    this.#keepMs = keepMs;
    this.#logger = logger;
  }

  /** Records a refusal, too, unless the caller is refused too often. */
  async refused(action: Action, status: number, error: string): Promise<void> {
    if (!this.#refusals.tryTake(`caller ${action.who.name}`)) return;
    await this.#note(entryOf(action), status, error);
  }

  /** Called before the cookie is sent. */
  async loggedIn({ who, ...origin }: RequestOrigin & { readonly who: Principal }): Promise<void> {
    const target = `session of ${who.name}`;
    await this.#note(entryOf({ who, ...origin, permission: 'login', target, body: {} }), 200, undefined);
  }

  /** Without the given name: people type passwords there. */
  async notLoggedIn(origin: RequestOrigin, status: number, error: string): Promise<void> {
    if (!this.#refusals.tryTake('strangers')) return;
    await this.#note({ ...origin, who: 'somebody', action: 'login', target: 'session', details: '{}' }, status, error);
  }

  /** @returns the result of `fn`, which does not begin before the row is committed */
  async record<T>(
    action: Action,
    fn: () => Promise<T>,
    outcomeOf: (error: unknown) => readonly [number, string],
  ): Promise<T> {
    const id = await this.#begin(entryOf(action));
    try {
      const answer = await fn();
      await this.#end(id, 200, undefined);
      return answer;
    } catch (error) {
      await this.#end(id, ...outcomeOf(error));
      throw error;
    }
  }

  /**
   * As `record()`, for actions that callers repeat all the time: the first of an hour is recorded. Its row is committed after the
   * action and before the answer, so that the answers of an hour have one.
   */
  async recordOften<T>(
    action: Action,
    fn: () => Promise<T>,
    outcomeOf: (error: unknown) => readonly [number, string],
  ): Promise<T> {
    const answer = await fn().catch(async (error: unknown) => {
      await this.refused(action, ...outcomeOf(error));
      throw error;
    });
    const { who, permission, target } = action;
    const key = JSON.stringify([who.by, who.name, permission, target]);
    if (this.#often.has(key)) await this.#end(await this.#begin(entryOf(action)), 200, undefined);
    this.#often.tryTake(key);
    return answer;
  }

  /**
   * What is no action. A database that takes no writes has no row for it, and allows no action either: there people may look, and
   * the log has the line.
   */
  async #note(entry: AuditEntry, status: number, error: string | undefined): Promise<void> {
    try {
      await this.#end(await this.#begin(entry), status, error);
    } catch (cause) {
      if (!isReadOnly(cause)) throw cause;
      const { who, remote, action, target } = entry;
      this.#logger.warn(
        { who, remote, action, target, status },
        'http: this is not in the audit, whose database takes no writes',
      );
    }
  }

  #begin(entry: AuditEntry): Promise<string> {
    this.#prune();
    return this.#store.begin({
      ...entry,
      userAgent: entry.userAgent?.slice(0, 300),
      target: entry.target.slice(0, 500),
    });
  }

  /** The action is done, and its caller must get the answer, even if the second half of the row cannot be written. */
  async #end(id: string, status: number, error: string | undefined): Promise<void> {
    await this.#store.end(id, status, error).catch((cause: unknown) => {
      this.#logger.error({ err: cause, audit: id }, 'http: the outcome of an action could not be recorded');
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

function entryOf({ who, remote, userAgent, permission, target, body }: Action): AuditEntry {
  const details = JSON.stringify(body);
  return {
    who: `${who.name} (${who.by})`,
    remote,
    userAgent,
    action: permission,
    target,
    details: details.length > MOST_DETAILS ? JSON.stringify({ shortened: details.slice(0, MOST_DETAILS) }) : details,
  };
}
