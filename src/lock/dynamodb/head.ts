/**
 * The head of a lock: the one row that decides. Here is what it says and which moves it has, as pure functions; nothing here
 * speaks to a database.
 *
 * - `next` is the ticket whose turn it is. Tickets below it have had their turn, or were passed over for good.
 * - Nobody is granted the lock but by a write that holds only for the state it was decided on, or, when nobody waits, only
 *   while nobody holds it.
 * - That a state never comes again is seen from three numbers: `fence` rises with each grant; between two grants `load` only
 *   falls, and `next` only rises. Renewals, and tickets that are taken, leave them as they are.
 * - `fence` is the last token. It never goes down, whatever becomes of holders and waiters.
 */
export interface Head {
  /** The last ticket that was taken. */
  readonly last: number;
  readonly next: number;
  readonly fence: bigint;
  /** What the holders weigh together, as it stands in the row. */
  readonly load: number;
  readonly holders: readonly HeadHolder[];
  /** The last few who held it. */
  readonly past: readonly HeadPast[];
  /** When the last run counted by `oncePer` began, by the clock of the service. */
  readonly ranAt: number | undefined;
  /** Who took the last ticket. */
  readonly taker: string | undefined;
}

/** Somebody who holds the lock. */
export interface HeadHolder {
  readonly nonce: string;
  readonly token: bigint;
  readonly capacity: number;
  readonly leaseMs: number;
  readonly host: string;
  readonly pid: number;
  /** By the clock of the service, for people. */
  readonly grantedAt: number;
  readonly beatAt: number;
  /** Another one with each renewal: what those who suspect it watch. Empty before the first. */
  readonly beat: string;
  readonly waitsFor: WaitsFor | undefined;
}

/** For what a holder waits meanwhile, nested in what it holds. */
export interface WaitsFor {
  readonly nonce: string;
  readonly places: readonly { readonly pk: string; readonly ticket: number }[];
  /** It has looked for a circle, and found none: whoever closes one later gives way. */
  readonly isSettled: boolean;
}

/** Somebody who held it. */
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

/** How many of them are kept: with these the row stays below a kilobyte, which is one write unit. */
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

/** What one who holds it alone weighs: more than all others together. */
const ALONE = 1_000_000;

/** What a holder weighs: so one number says whether somebody holds it, alone or beside how many. */
export function weightOf(capacity: number): number {
  return capacity === 1 ? ALONE : 1;
}

/** Whether nothing was decided between the two. */
export function isSameState(a: Head, b: Head): boolean {
  return a.fence === b.fence && a.load === b.load && a.next === b.next;
}

/** Who wants it, and how. */
export interface Wish {
  readonly nonce: string;
  readonly capacity: number;
  /** Its place in the queue, if it has one. */
  readonly ticket: number | undefined;
}

/** How a wish stands. `lost`: its place was given up as dead, and it needs another one. */
export type Standing = 'held' | 'lost' | 'free' | 'waits';

/** @param stale  nonces of holders whose lease has certainly run out */
export function standingOf(head: Head, { nonce, capacity, ticket }: Wish, stale: ReadonlySet<string>): Standing {
  if (head.holders.some((holder) => holder.nonce === nonce)) return 'held';
  if (ticket !== undefined && ticket < head.next) return 'lost';
  const isTurn = ticket === undefined ? head.next > head.last : ticket === head.next;
  return isTurn && hasRoom(head, capacity, stale) ? 'free' : 'waits';
}

/**
 * How many may hold it at once, whatever the capacity: each has some 200 bytes in the head, every write is paid for by its
 * size, and a row has at most 400 KB. Further readers wait.
 */
export const MOST_HOLDERS = 500;

/** Whether one more may hold it, counting itself: no more than the smallest capacity among them. */
export function hasRoom(head: Head, capacity: number, stale: ReadonlySet<string>): boolean {
  const living = head.holders.filter((holder) => !stale.has(holder.nonce));
  return (
    living.length === 0 || living.length < Math.min(capacity, MOST_HOLDERS, ...living.map((holder) => holder.capacity))
  );
}

/** The head with the lock granted. To be written on condition that it is still of that version. */
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

/** The head without those of its holders. */
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

/** What stays of a holder. */
export function toPast(
  { token, capacity, host, pid, grantedAt, beatAt, leaseMs }: HeadHolder,
  outcome: HeadPast['outcome'],
  reason: string | undefined,
  at: number,
): HeadPast {
  const endedAt = outcome === 'expired' ? Math.min(beatAt + leaseMs, at) : at;
  return { token, capacity, host, pid, grantedAt, endedAt, outcome, reason };
}
