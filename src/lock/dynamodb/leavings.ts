/** What is known of a name that this process released. */
interface Leaving {
  /** Its last token here: that of its head, if nobody was granted the lock since. */
  fence: bigint;
  /** How often in a row nobody was. */
  met: number;
  /** How often that must have been to count on it. */
  wanted: number;
}

const MOST = 1000;
const WANTED_FIRST = 2;
const WANTED_LAST = 1024;

/**
 * The heads as this process left them. Whoever is alone with a lock may take it on condition that nothing was decided since,
 * which costs the service less than asking whether it is free. To be wrong costs a further request, unless the lock is held;
 * so it is tried only after it would have been right several times in a row, and each time that it was not, twice as often:
 * ten further requests for a thousand acquisitions of a name at the very most, and none where there is a crowd.
 */
export class Leavings {
  readonly #names = new Map<string, Leaving>();

  /** The fence that the head can be expected to have; undefined when there is no telling. */
  expected(pk: string): bigint | undefined {
    const leaving = this.#names.get(pk);
    return leaving !== undefined && leaving.met >= leaving.wanted ? leaving.fence : undefined;
  }

  /** It was granted at once. @param fence  what the head had before */
  met(pk: string, fence: bigint): void {
    const leaving = this.#names.get(pk);
    if (leaving !== undefined) leaving.met = leaving.fence === fence ? leaving.met + 1 : 0;
  }

  /** It was not free. @param isExpected  or at least not as expected */
  missed(pk: string, isExpected: boolean): void {
    const leaving = this.#names.get(pk);
    if (leaving === undefined) return;
    leaving.met = 0;
    if (isExpected) leaving.wanted = Math.min(leaving.wanted * 2, WANTED_LAST);
  }

  /** It was held here alone, and given up with this token. */
  left(pk: string, token: bigint): void {
    const { met = 0, wanted = WANTED_FIRST } = this.#names.get(pk) ?? {};
    this.#names.delete(pk);
    this.#names.set(pk, { fence: token, met, wanted });
    const [oldest] = this.#names.keys();
    if (this.#names.size > MOST && oldest !== undefined) this.#names.delete(oldest);
  }
}
