import { HttpRefusal } from '../protocol/failure.ts';

/** How many requests a caller may make at once, and how many more each second. */
export interface Rate {
  readonly burst: number;
  readonly perSecond: number;
}

interface Bucket {
  left: number;
  at: number;
}

/**
 * The most callers that are remembered. The caller that was silent longest is forgotten first: its bucket is full again by then.
 */
const MOST = 10_000;

/** A bucket for each caller, in this process. */
export class RateLimiter {
  readonly #buckets = new Map<string, Bucket>();
  readonly #rate: Rate;

  constructor(rate: Rate) {
    this.#rate = rate;
  }

  /** @throws HttpRefusal  rate_limited, with the time for another attempt */
  take(who: string): void {
    const missing = this.#take(who);
    if (missing === 0) return;
    const waitS = Math.max(1, Math.ceil(missing / this.#rate.perSecond));
    throw new HttpRefusal('rate_limited', `too many requests; try again in ${waitS} s`, {
      'retry-after': String(waitS),
      ...this.headers(who),
    });
  }

  /** As `take()`, for work that is skipped and not refused. @returns whether the caller had a request left */
  tryTake(who: string): boolean {
    return this.#take(who) === 0;
  }

  /** Whether the caller has a request left. */
  has(who: string): boolean {
    return this.#left(who, performance.now()) >= 1;
  }

  #left(who: string, now: number): number {
    const { burst, perSecond } = this.#rate;
    const old = this.#buckets.get(who) ?? { left: burst, at: now };
    return Math.min(burst, old.left + ((now - old.at) / 1000) * perSecond);
  }

  /** @returns how much is missing until the next request; 0: a request was taken */
  #take(who: string): number {
    const now = performance.now();
    const has = this.#left(who, now);
    this.#buckets.delete(who);
    // A refused request takes nothing: a caller that is too fast gets as many answers as one that keeps to its rate.
    this.#buckets.set(who, { left: has >= 1 ? has - 1 : has, at: now });
    if (this.#buckets.size > MOST) this.#buckets.delete(this.#buckets.keys().next().value ?? '');
    return Math.max(1 - has, 0);
  }

  /**
   * The limit of a caller as headers: how many requests it allows, how many are left, and after how many seconds all are back.
   */
  headers(who: string): Readonly<Record<string, string>> {
    const { burst, perSecond } = this.#rate;
    const left = this.#buckets.get(who)?.left ?? burst;
    return {
      'ratelimit-limit': String(burst),
      'ratelimit-remaining': String(Math.floor(left)),
      'ratelimit-reset': String(Math.ceil((burst - left) / perSecond)),
    };
  }
}
