import { sleep } from '../../../base/time/clock.ts';
import type { CallOptions, RequestKey } from '../../store.ts';
import { type HeadHolder, passed } from '../head.ts';
import { lockKey, shortNonce } from '../items/key.ts';
import { NewestFew } from '../newest-few.ts';
import type { CallParts } from '../running-call.ts';

/** What a claim may have left in the table, as far as its process knows. */
interface Traces {
  /** Its places, by the key of the lock. */
  readonly tickets: ReadonlyMap<string, number>;
  /** The id with which it took its last ticket. */
  readonly taker: string;
}

/** A request that was given up is looked for once more after this time: a try waits for its answer no longer. */
const LATE_MS = 5000;
const NONE: ReadonlyMap<string, number> = new Map();

/** Gives up claims that wait no longer: their places, and locks that they were granted meanwhile. */
export class Withdrawals {
  readonly #parts: CallParts;
  /** Of claims whose withdrawal has not been answered: the next try has to know as much as the first one. */
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
   * It may be repeated. A request for a turn that is carried out later is refused. One without a place may be granted the lock, and is
   * looked for once more. @returns a holder that is in the way
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

  /** If this fails, the grant ends with its lease. */
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

  /** Ends when a state of the head has been read or written in which the claim holds nothing and its turn never comes. */
  async #leave(pk: string, nonce: string, traces: Traces, options: CallOptions): Promise<HeadHolder | undefined> {
    const { heads, grants, queue } = this.#parts;
    let isGivenUp = false;
    for (;;) {
      const head = await heads.readNow(pk, options);
      const mine = head.holders.find((holder) => holder.nonce === nonce);
      // A request for its turn that was given up may be carried out as late as between two steps of this.
      if (mine !== undefined) {
        await grants.drop(pk, mine, options);
        continue;
      }
      // A ticket whose answer was lost has to be given up, too; else the waiters behind it would have to find out that no
      // waiter has it.
      const ticket = traces.tickets.get(pk) ?? (head.taker === traces.taker ? head.last : undefined);
      const isOver = ticket === undefined || ticket < head.next;
      // A place that is given up is passed over by those before it.
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
