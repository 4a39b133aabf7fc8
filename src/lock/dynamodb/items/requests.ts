import { Expression, num, type RequestTexts, text } from '../../../engine/dynamodb/index.ts';
import { type HeadHolder, type HeadPast, MOST_HOLDERS, weightOf } from '../head.ts';
import { A, pastEntry } from './head.ts';
import { holderEntry, removeHolder, slotOf, type Trace, type Who, whileHeld } from './holder.ts';

/**
 * Takes a lock that is free or may be shared, and has no waiters: one request, whose condition and token the service
 * evaluates.
 * @param dueAt  the last run that `oncePer` counted must have begun before this
 */
export function takeFree(holder: Omit<HeadHolder, 'token'>, dueAt: number | undefined): RequestTexts {
  const { capacity } = holder;
  const request = new Expression();
  const [zero, one] = [request.value(num(0)), request.value(num(1))];
  const [load, fence] = [request.name(A.load), request.name(A.fence)];
  const [last, next] = [request.name(A.last), request.name(A.next)];
  const token = `if_not_exists(${fence}, ${zero}) + ${one}`;
  request.setTo(A.fence, token).set(slotOf(holder).holder, holderEntry(holder));
  let hasRoom = `${load} = ${zero}`;
  if (capacity === 1) request.set(A.load, num(weightOf(capacity)));
  else {
    const [least, most] = [request.name(A.capacity), request.value(num(capacity))];
    const room = request.value(num(Math.min(capacity, MOST_HOLDERS)));
    hasRoom = `(${hasRoom} OR (${least} = ${most} AND ${load} < ${room}))`;
    request.setTo(A.load, `if_not_exists(${load}, ${zero}) + ${one}`).setTo(A.capacity, most);
    request.setTo(slotOf(holder).token, token);
    // An exclusive holder needs no such condition.
    request.whenAbsent(slotOf(holder).token);
  }
  request.when(
    `attribute_not_exists(${load}) OR (${hasRoom} AND (attribute_not_exists(${last}) OR ${next} > ${last}))`,
  );
  if (dueAt !== undefined) {
    const ranAt = request.name(A.ranAt);
    request.when(`attribute_not_exists(${ranAt}) OR ${ranAt} <= ${request.value(num(dueAt))}`);
  }
  return request.write();
}

/**
 * Renews a lease. Never creates a row, and changes nothing if the lock was lost. @param beat  a text that is new to the row
 */
export function renew(who: Who, beat: string): RequestTexts {
  return whileHeld(new Expression().set(slotOf(who).beat, text(beat)), who).write();
}

/**
 * Removes the lease of a grant. The beat changes with it. Otherwise a client that has seen the lease run out could still remove
 * the holder. If the lock was granted to the same claim again meanwhile, the token differs.
 */
export function makePermanent(holder: Omit<HeadHolder, 'leaseMs'>, beat: string): RequestTexts {
  const { holder: entry, token, beat: sign } = slotOf(holder);
  const request = new Expression().set(entry, holderEntry({ ...holder, leaseMs: Infinity })).set(sign, text(beat));
  request.whenIs(holder.capacity === 1 ? A.fence : token, num(holder.token));
  return whileHeld(request, holder).write();
}

/** Releases a lock and adds it to the past holders. @param ranAt  counts the run for `oncePer` */
export function release(nonce: string, past: HeadPast, trace: Trace, ranAt: number | undefined): RequestTexts {
  const { token, capacity } = past;
  const who = { nonce, capacity };
  const request = new Expression();
  if (capacity === 1) request.set(A.load, num(0));
  else request.setTo(A.load, `${request.name(A.load)} - ${request.value(num(weightOf(capacity)))}`);
  request.set(A.past(token), pastEntry(past));
  if (ranAt !== undefined) request.set(A.ranAt, num(ranAt));
  removeHolder(request, who, trace);
  return whileHeld(request, who).write();
}

/** Takes the next ticket. A repetition is refused until another claim has taken a ticket. */
export function takeTicket(nonce: string): RequestTexts {
  const request = new Expression();
  const [zero, one, taker] = [request.value(num(0)), request.value(num(1)), request.name(A.taker)];
  const orZero = (name: string): string => `if_not_exists(${request.name(name)}, ${zero})`;
  return request
    .setTo(A.last, `${orZero(A.last)} + ${one}`)
    .set(A.taker, text(nonce))
    .setTo(A.next, `if_not_exists(${request.name(A.next)}, ${one})`)
    .setTo(A.load, orZero(A.load))
    .when(`attribute_not_exists(${taker}) OR ${taker} <> ${request.value(text(nonce))}`)
    .write();
}
