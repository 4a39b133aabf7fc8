import type { Violation } from '../../plan.ts';
import type { Decision, LockHistory } from '../history.ts';
import { violation } from './story.ts';

// A decision may not see a place that was renewed within this time before it.
const UNSEEN_MS = 500;

interface Place {
  readonly ticket: number;
  readonly capacity: number;
  /** Each renewal of the place: its time, and the new expiry. */
  readonly kept: { readonly at: number; readonly until: number }[];
  /** The transaction that removed it. */
  goneIn: string | undefined;
}

interface Holder {
  readonly token: string;
  readonly capacity: number;
}

/**
 * By the record of the database: no client is granted a lock that other clients hold, or for which they waited before it, and tokens rise. An
 * earlier living waiter counts as a holder. The holders together must not exceed the smallest capacity among them.
 */
export function checkDecisions(history: LockHistory): Violation[] {
  const names = new Set(history.decisions.map(({ name }) => name));
  return [...names].flatMap((name) => checkName(history, name));
}

function checkName(history: LockHistory, name: string): Violation[] {
  const found: Violation[] = [];
  const places = new Map<string, Place>();
  const holders: Holder[] = [];
  const ends = new Map(history.ended.filter((end) => end.name === name).map((end) => [end.token, end.at]));
  let last = 0n;
  for (const decision of history.decisions) {
    if (decision.name !== name) continue;
    if (decision.what !== 'grant') {
      notePlace(places, decision);
      continue;
    }
    const token = decision.token ?? '0';
    if (BigInt(token) <= last) {
      found.push(violation(history, 'tokens rise', `"${name}": ${token} after ${last}`, name, decision.at));
    }
    last = BigInt(token);
    const before = [
      ...holders.filter((holder) => holder.token !== token && (ends.get(holder.token) ?? Infinity) > decision.at),
      ...waitingBefore(places, decision),
    ];
    const admitted = Math.min(decision.capacity, ...before.map(({ capacity }) => capacity));
    if (before.length >= admitted) {
      const whom = before
        .map((each) => ('token' in each ? `holder ${each.token}` : `waiter ${each.ticket}`))
        .join(', ');
      const rule = before.some((each) => 'token' in each)
        ? 'no client is granted a lock that another holds'
        : 'no client passes another in the queue';
      found.push(violation(history, rule, `"${name}": ${token} was granted together with ${whom}`, name, decision.at));
    }
    holders.push({ token, capacity: decision.capacity });
  }
  return found;
}

function notePlace(
  places: Map<string, Place>,
  { what, nonce, ticket, capacity, at, expiresAt, transaction }: Decision,
): void {
  const place = places.get(nonce);
  if (what === 'place') {
    places.set(nonce, { ticket: ticket ?? 0, capacity, kept: [{ at, until: expiresAt }], goneIn: undefined });
  } else if (what === 'kept') place?.kept.push({ at, until: expiresAt });
  else if (place !== undefined) place.goneIn = transaction;
}

function waitingBefore(places: ReadonlyMap<string, Place>, grant: Decision): Place[] {
  const own = places.get(grant.nonce);
  // The transaction of a grant also gives up the place, before or after the grant.
  const hasPlace = own !== undefined && (own.goneIn === undefined || own.goneIn === grant.transaction);
  const ticket = hasPlace ? own.ticket : Infinity;
  return [...places].flatMap(([nonce, place]) => {
    const isAlive = place.kept.some((kept) => kept.at <= grant.at - UNSEEN_MS && kept.until > grant.at);
    return nonce !== grant.nonce && place.goneIn === undefined && place.ticket < ticket && isAlive ? [place] : [];
  });
}
