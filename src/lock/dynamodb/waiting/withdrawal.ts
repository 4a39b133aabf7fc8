import { sleep } from '../../../base/time/clock.ts';
import type { CallOptions, RequestKey } from '../../store.ts';
import { type HeadHolder, passed } from '../head.ts';
import { lockKey, shortNonce } from '../items/key.ts';
import { NewestFew } from '../newest-few.ts';
import type { CallParts } from '../running-call.ts';

/** The rows that a claim may have left in the table, as far as its process knows. */
interface Traces {
  /** Its tickets, by the key of the lock. */
  readonly tickets: ReadonlyMap<string, number>;
  /** The id with which the claim took its last ticket. */
  readonly taker: string;
}

/** A withdrawal is repeated after this time, since a given-up request may be carried out late. No try waits longer for its answer. */
const LATE_MS = 5000;
const NONE: ReadonlyMap<string, number> = new Map();

/** Gives up claims that wait no longer, with their places and the locks that they were granted meanwhile. */
export class Withdrawals {
  readonly #parts: CallParts;
  /** The traces of claims whose withdrawal has not been answered: the next try has to know as much as the first one. */
  readonly #unanswered = new NewestFew<Traces>();
  /** Claims whose last request had no answer. */
  readonly #doubtful = new NewestFew<true>();

  constructor(parts: CallParts) {
    this.#parts = parts;
  }

  /** Notes whether the last request of a claim may still be carried out. */
  noteDoubt(nonce: string, isDoubtful: boolean): void {
    if (isDoubtful) this.#doubtful.set(nonce, true);
    else this.#doubtful.delete(nonce);
  }

  /**
   * Withdraws a claim; it may be repeated. If a request of a claim with a place is carried out later, it is refused. A request without a
   * place may still be granted the lock, so the withdrawal is repeated later. @returns a holder that is in the way
   */
  async withdraw(key: RequestKey, options: CallOptions): Promise<HeadHolder | undefined> {
    const { nonce } = key;
    const { waiters, grants } = this.#parts;
    const { tickets = NONE } = waiters.get(nonce) ?? {};
    const traces = this.#unanswered.get(nonce) ?? { tickets, taker: waiters.takerOf(nonce) };
    this.#unanswered.set(nonce, traces);
    waiters.remove(nonce);
    grants.forget(nonce);
    const holder = await this.#leaveAll(key, traces, options);
    this.#unanswered.delete(nonce);
    if (this.#doubtful.get(nonce) === true) void this.#lookAgain(key, traces, options);
    this.#doubtful.delete(nonce);
    return holder;
  }

  /** Repeats a withdrawal later. If this fails, the grant ends with its lease. */
  async #lookAgain(key: RequestKey, traces: Traces, { timeoutMs }: CallOptions): Promise<void> {
    await sleep(LATE_MS, undefined, { unref: true });
    await this.#leaveAll(key, traces, { timeoutMs }).catch(() => {});
  }

  async #leaveAll(
    { space, names, nonce }: RequestKey,
    traces: Traces,
    options: CallOptions,
  ): Promise<HeadHolder | undefined> {
    const leaving = names.map((name) => this.#leave(lockKey(space, name), shortNonce(nonce), traces, options));
    const [holder] = (await Promise.all(leaving)).filter((each) => each !== undefined);
    return holder;
  }

  /** Ends once it has read or written a state of the head in which the claim holds nothing and its turn never comes. */
  async #leave(pk: string, nonce: string, traces: Traces, options: CallOptions): Promise<HeadHolder | undefined> {
    const { heads, grants, queue } = this.#parts;
    let isGivenUp = false;
    for (;;) {
      const head = await heads.readNow(pk, options);
      const mine = head.holders.find((holder) => holder.nonce === nonce);
      // A given-up request of the claim may be carried out late, even between two steps of this loop.
      if (mine !== undefined) {
        await grants.drop(pk, mine, options);
        continue;
      }
      // A ticket whose answer was lost has to be given up, too. Otherwise the waiters behind it would have to find out that
      // no waiter has it.
      const ticket = traces.tickets.get(pk) ?? (head.taker === traces.taker ? head.last : undefined);
      const isOver = ticket === undefined || ticket < head.next;
      // The waiters before a place that is given up pass it over.
      if (isOver || (isGivenUp && ticket > head.next)) return head.holders[0];
      if (!isGivenUp) await queue.giveUp(pk, ticket, nonce, options);
      else if (await heads.write([{ pk, before: head, after: passed(head, ticket + 1) }], options)) {
        queue.tidy(pk, [ticket]);
        return head.holders[0];
      }
      isGivenUp = true;
    }
  }
}
