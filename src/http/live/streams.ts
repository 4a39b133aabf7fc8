import type { Permission, Principal } from '../auth/permission.ts';
import { HttpRefusal } from '../protocol/failure.ts';
import { isResponse } from '../protocol/reply.ts';

/** How long a caller that has lost its permission still gets events. */
const CHECK_MS = 60_000;
/** The longest delay of setTimeout. */
const LONGEST_MS = 2 ** 31 - 1;

export interface StreamLimits {
  readonly perCaller: number;
  readonly most: number;
}

/** The caller of a stream, and the check that admits it again. */
export interface Watcher {
  readonly who: Principal;
  readonly permission: Permission;
  /** Identifies the caller again, by the credentials of the request. */
  readonly identify: () => Promise<Principal | Response>;
}

interface Open extends Watcher {
  readonly end: () => void;
}

/**
 * The streams of this process: not too many of one caller, not too many in total. No stream outlives its permission: the end of a
 * token ends it at once, and the removal of a token or a permission within a minute.
 */
export class Streams {
  readonly #limits: StreamLimits;
  readonly #open = new Set<Open>();
  #timer: NodeJS.Timeout | undefined;

  constructor(limits: StreamLimits) {
    this.#limits = limits;
  }

  get count(): number {
    return this.#open.size;
  }

  /**
   * @param end  ends the stream
   * @returns a function to call when the stream has ended
   * @throws HttpRefusal  rate_limited: this caller has too many; busy: there are too many
   */
  add(watcher: Watcher, end: () => void): () => void {
    const { perCaller, most } = this.#limits;
    if (this.#open.size >= most)
      throw new HttpRefusal('busy', `${most} streams are open, which is the limit of this server`, {
        'retry-after': '10',
      });
    const { name, by, until = Infinity } = watcher.who;
    const his = [...this.#open].filter(({ who }) => who.name === name && who.by === by).length;
    if (his >= perCaller) {
      const message = `${name} has ${his} streams open, which is as many as one may have; close one`;
      throw new HttpRefusal('rate_limited', message, { 'retry-after': '10' });
    }
    const open = { ...watcher, end };
    this.#open.add(open);
    this.#timer ??= setInterval(() => this.checkAll(), CHECK_MS).unref();
    const over = until === Infinity ? undefined : setTimeout(end, Math.min(until - Date.now(), LONGEST_MS)).unref();
    return () => {
      clearTimeout(over);
      this.#open.delete(open);
      if (this.#open.size > 0) return;
      clearInterval(this.#timer);
      this.#timer = undefined;
    };
  }

  /** Ends the streams of callers that have lost their permission. */
  checkAll(): void {
    for (const open of this.#open) void check(open);
  }

  stop(): void {
    for (const { end } of this.#open) end();
  }
}

async function check({ who, permission, identify, end }: Open): Promise<void> {
  const now = await identify().catch((error: unknown) => {
    // If the identity provider does not answer now, the stream goes on until the next check.
    return error instanceof HttpRefusal && error.status < 500 ? undefined : who;
  });
  const isSame = now !== undefined && !isResponse(now) && now.name === who.name;
  if (!isSame || !now.permissions.has(permission)) end();
}
