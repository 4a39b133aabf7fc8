/**
 * The head of a lock: the one row that decides. This file has its state and its moves as pure functions; it sends no requests.
 *
 * - `next` is the ticket whose turn it is. Tickets below it have had their turn, or were passed over and never come back.
 * - Every grant is a conditional write. It requires the state on which it was decided, or, if there are no waiters, only
 *   that there is no holder.
 * - Three numbers show that no state occurs twice: `fence` rises with each grant, and between two grants `load` only
 *   falls and `next` only rises. Renewals and new tickets do not change them.
 * - `fence` is the last token. It never decreases, whatever happens to holders and waiters.
 */
export interface Head {
  /** The last ticket that was taken. */
  readonly last: number;
  readonly next: number;
  readonly fence: bigint;
  /** The total weight of the holders, as stored in the row. */
  readonly load: number;
  readonly holders: readonly HeadHolder[];
  /** The last few holders of the past. */
  readonly past: readonly HeadPast[];
  /** The start of the last run that `oncePer` counted, by the clock of the service. */
  readonly ranAt: number | undefined;
  /** The claim that took the last ticket. */
  readonly taker: string | undefined;
}

/** A holder of the lock. */
export interface HeadHolder {
  readonly nonce: string;
  readonly token: bigint;
  readonly capacity: number;
  readonly leaseMs: number;
  readonly host: string;
  readonly pid: number;
  /** The time of the grant by the clock of the service, for people. */
  readonly grantedAt: number;
  readonly beatAt: number;
  /**
   * A text that changes with each renewal; others watch it to see whether the holder is alive. Empty before the first
   * renewal.
   */
  readonly beat: string;
  readonly waitsFor: WaitsFor | undefined;
}

/** The nested request of a holder: the lock or set of locks for which it waits meanwhile. */
export interface WaitsFor {
  readonly nonce: string;
  readonly places: readonly { readonly pk: string; readonly ticket: number }[];
  /** The request has searched for a circle and found none. A request that closes a circle later gives way. */
  readonly isSettled: boolean;
}

/** A holder of the past. */
export interface HeadPast {
  readonly token: bigint;
  readonly capacity: number;
  readonly host: string;
  readonly pid: number;
  readonly grantedAt: number;
  readonly endedAt: number;
  readonly outcome: 'released' | 'broken' | 'expired';
  readonly reason: string | undefined;
}

/** How many past holders the row keeps. With these it stays below a kilobyte, which is one write unit. */
export const PAST = 4;

export const EMPTY: Head = {
  last: 0,
  next: 1,
  fence: 0n,
  load: 0,
  holders: [],
  past: [],
  ranAt: undefined,
  taker: undefined,
};

/** The weight of an exclusive holder: more than all others together. */
const ALONE = 1_000_000;

/** The weight of a holder. The sum of all weights tells whether a holder is exclusive, and otherwise how many holders there are. */
export function weightOf(capacity: number): number {
  return capacity === 1 ? ALONE : 1;
}

/** Whether nothing was decided between the two states. */
export function isSameState(a: Head, b: Head): boolean {
  return a.fence === b.fence && a.load === b.load && a.next === b.next;
}

/** A request for the lock. */
export interface Wish {
  readonly nonce: string;
  readonly capacity: number;
  /** Its place in the queue, if it has one. */
  readonly ticket: number | undefined;
}

/** The standing of a request. `lost`: other clients declared it dead and gave up its place, so it needs another place. */
export type RequestStanding = 'held' | 'lost' | 'free' | 'waits';

/** @param stale  nonces of holders whose lease has certainly run out */
export function standingOf(head: Head, { nonce, capacity, ticket }: Wish, stale: ReadonlySet<string>): RequestStanding {
  if (head.holders.some((holder) => holder.nonce === nonce)) return 'held';
  if (ticket !== undefined && ticket < head.next) return 'lost';
  const isTurn = ticket === undefined ? head.next > head.last : ticket === head.next;
  return isTurn && hasRoom(head, capacity, stale) ? 'free' : 'waits';
}

/**
 * The most holders at a time, whatever the capacity: each takes some 200 bytes in the head, a write is charged by the size of
 * the row, and a row has at most 400 KB. Further readers wait.
 */
export const MOST_HOLDERS = 500;

/** Whether there is room for one more holder: the number of holders must not exceed the smallest capacity among them. */
export function hasRoom(head: Head, capacity: number, stale: ReadonlySet<string>): boolean {
  const living = head.holders.filter((holder) => !stale.has(holder.nonce));
  return (
    living.length === 0 || living.length < Math.min(capacity, MOST_HOLDERS, ...living.map((holder) => holder.capacity))
  );
}

/** The head after a grant. Write it on condition that the row still has the state before. */
export function granted(
  head: Head,
  holder: HeadHolder,
  ticket: number | undefined,
  stale: ReadonlySet<string>,
  at: number,
): Head {
  const without = ended(head, (each) => stale.has(each.nonce), 'expired', undefined, at);
  return {
    ...without,
    fence: holder.token,
    next: ticket === undefined ? head.next : ticket + 1,
    load: loadOf([...without.holders, holder]),
    holders: [...without.holders, holder],
  };
}

/**
 * How many holders one write removes at most. The condition of the write names each of them, and DynamoDB allows a condition 4 KB and
 * 300 operators: it refused a condition with 120 dead readers.
 */
export const MOST_ENDED = 50;

/** Selects the holders that the next write removes, if one write cannot remove all of them; undefined if it can. */
export function firstToEnd(
  head: Head,
  which: (holder: HeadHolder) => boolean,
): ((holder: HeadHolder) => boolean) | undefined {
  const gone = head.holders.filter(which);
  if (gone.length <= MOST_ENDED) return undefined;
  const first = new Set(gone.slice(0, MOST_ENDED).map(({ nonce }) => nonce));
  return ({ nonce }) => first.has(nonce);
}

/** The head without these holders, at most {@link MOST_ENDED}. */
export function ended(
  head: Head,
  which: (holder: HeadHolder) => boolean,
  outcome: HeadPast['outcome'],
  reason: string | undefined,
  at: number,
): Head {
  const gone = head.holders.filter(which).sort((a, b) => (a.token > b.token ? -1 : 1));
  if (gone.length === 0) return head;
  const holders = head.holders.filter((holder) => !which(holder));
  return {
    ...head,
    load: loadOf(holders),
    holders,
    past: [...gone.map((holder) => toPast(holder, outcome, reason, at)), ...head.past].slice(0, PAST),
  };
}

/** The head with the tickets below `next` passed over. */
export function passed(head: Head, next: number): Head {
  return { ...head, next };
}

function loadOf(holders: readonly HeadHolder[]): number {
  return holders.reduce((sum, { capacity }) => sum + weightOf(capacity), 0);
}

/** The record of a past holder. */
export function toPast(
  { token, capacity, host, pid, grantedAt, beatAt, leaseMs }: HeadHolder,
  outcome: HeadPast['outcome'],
  reason: string | undefined,
  at: number,
): HeadPast {
  const endedAt = outcome === 'expired' ? Math.min(beatAt + leaseMs, at) : at;
  return { token, capacity, host, pid, grantedAt, endedAt, outcome, reason };
}
