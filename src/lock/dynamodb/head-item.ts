import {
  type Attribute,
  Expression,
  type Item,
  num,
  readList,
  readMap,
  readNumber,
  readText,
  text,
  type Written,
} from '../../engine/dynamodb/index.ts';
import { EMPTY, type Head, type HeadHolder, type HeadPast, PAST, type WaitsFor } from './head.ts';

/**
 * The attributes of a head. Each holder has its own, named after its nonce, at the top: so one request can add or remove one
 * without knowing the others. The names are short because they are paid for; one that is not there says the same as in a
 * new head, so that the request for a free lock need not write it.
 */
export const A = {
  last: 'q',
  next: 's',
  fence: 'f',
  load: 'n',
  /** The smallest capacity among those who do not hold it alone; it may be too small once somebody has left. */
  capacity: 'c',
  ranAt: 'r',
  taker: 'k',
  /** Of those who do not hold it alone; the token of one who does is the fence. */
  token: (nonce: string): string => `t:${nonce}`,
  holder: (nonce: string): string => `h:${nonce}`,
  beat: (nonce: string): string => `b:${nonce}`,
  waitsFor: (nonce: string): string => `w:${nonce}`,
  past: (token: bigint): string => `p${token % BigInt(PAST)}`,
} as const;

const HOLDER = 'h:';

/** What a row says; a row that is not there yet says the same as a new one. */
export function readHead(item: Item | undefined): Head {
  if (item === undefined) return EMPTY;
  return {
    last: readNumber(item, A.last),
    next: readNumber(item, A.next, 1),
    fence: readBig(item, A.fence),
    load: readNumber(item, A.load),
    holders: Object.keys(item)
      .filter((name) => name.startsWith(HOLDER))
      .map((name) => readHolder(item, name.slice(HOLDER.length)))
      .sort((a, b) => (a.token < b.token ? -1 : 1)),
    past: Array.from({ length: PAST }, (_, slot) => readPast(item, `p${slot}`))
      .filter((each) => each !== undefined)
      .sort((a, b) => (a.token > b.token ? -1 : 1)),
    ranAt: A.ranAt in item ? readNumber(item, A.ranAt) : undefined,
    taker: readText(item, A.taker),
  };
}

function readHolder(item: Item, nonce: string): HeadHolder {
  const [capacity = 1, leaseMs = 0, pid = 0, grantedAt = 0, host = ''] = readFields(item, A.holder(nonce));
  const beat = readText(item, A.beat(nonce)) ?? '';
  const [, beatAt] = beat.split(' ');
  return {
    nonce,
    token: A.token(nonce) in item ? readBig(item, A.token(nonce)) : readBig(item, A.fence),
    capacity: Number(capacity),
    leaseMs: leaseMs === 0 ? Infinity : Number(leaseMs),
    host: String(host),
    pid: Number(pid),
    grantedAt: Number(grantedAt),
    beatAt: Number(beatAt ?? grantedAt),
    beat,
    waitsFor: readWaitsFor(readMap(item, A.waitsFor(nonce))),
  };
}

/** The part of a holder that never changes. One text: a map of five is five times the work for the service. */
export function holderEntry(
  holder: Pick<HeadHolder, 'capacity' | 'leaseMs' | 'host' | 'pid' | 'grantedAt'>,
): Attribute {
  const { capacity, leaseMs, host, pid, grantedAt } = holder;
  return text(JSON.stringify([capacity, leaseMs === Infinity ? 0 : Math.round(leaseMs), pid, grantedAt, host]));
}

export function pastEntry({ token, capacity, host, pid, grantedAt, endedAt, outcome, reason }: HeadPast): Attribute {
  const fields = [
    String(token),
    capacity,
    pid,
    grantedAt,
    endedAt,
    outcome,
    host,
    ...(reason === undefined ? [] : [reason]),
  ];
  return text(JSON.stringify(fields));
}

function readPast(item: Item, name: string): HeadPast | undefined {
  const fields = readFields(item, name);
  if (fields.length === 0) return undefined;
  const [token = '0', capacity = 1, pid = 0, grantedAt = 0, endedAt = 0, outcome, host = '', reason] = fields;
  return {
    token: BigInt(token),
    capacity: Number(capacity),
    host: String(host),
    pid: Number(pid),
    grantedAt: Number(grantedAt),
    endedAt: Number(endedAt),
    outcome: outcome === 'broken' || outcome === 'expired' ? outcome : 'released',
    reason: reason === undefined ? undefined : String(reason),
  };
}

function readFields(item: Item, name: string): readonly (string | number)[] {
  const written = readText(item, name);
  return written === undefined ? [] : JSON.parse(written);
}

export function waitsForEntry({ nonce, places, isSettled }: WaitsFor): Attribute {
  const list = places.map(({ pk, ticket }): Attribute => ({ M: { k: text(pk), t: num(ticket) } }));
  return { M: { o: text(nonce), l: { L: list }, s: num(isSettled ? 1 : 0) } };
}

function readWaitsFor(entry: Item | undefined): WaitsFor | undefined {
  if (entry === undefined) return undefined;
  const places = readList(entry, 'l').map((each) => {
    const place = 'M' in each ? each.M : {};
    return { pk: readText(place, 'k') ?? '', ticket: readNumber(place, 't') };
  });
  return { nonce: readText(entry, 'o') ?? '', places, isSettled: readNumber(entry, 's') === 1 };
}

/**
 * The request that turns one head into the next one, on condition that nothing was decided meanwhile, and that none of those
 * who are put out has renewed.
 */
export function rewrite(before: Head, after: Head): Written {
  const request = new Expression();
  whenStill(request, A.fence, before.fence, 0n);
  whenStill(request, A.load, before.load, 0);
  whenStill(request, A.next, before.next, 1);
  // Tickets are taken without regard to that.
  if (after.last !== before.last || passesQueue(before, after)) whenStill(request, A.last, before.last, 0);
  request.set(A.load, num(after.load));
  if (after.fence !== before.fence) request.set(A.fence, num(after.fence));
  if (after.next !== before.next) request.set(A.next, num(after.next));
  if (after.last !== before.last) request.set(A.last, num(after.last));
  request.set(A.capacity, num(Math.min(...after.holders.map((each) => each.capacity), MOST_CAPACITY)));
  if (after.taker !== undefined && after.taker !== before.taker) request.set(A.taker, text(after.taker));
  for (const holder of after.holders) if (!has(before, holder)) add(request, holder);
  for (const holder of before.holders) if (!has(after, holder)) putOut(request, holder);
  const slots = new Map<string, HeadPast>();
  for (const past of after.past) if (!slots.has(A.past(past.token))) slots.set(A.past(past.token), past);
  for (const [slot, past] of slots) {
    if (!before.past.some((each) => each.token === past.token)) request.set(slot, pastEntry(past));
  }
  return request.write();
}

/** It is granted without a ticket, as nobody waits: which must still be so. */
function passesQueue(before: Head, after: Head): boolean {
  return after.fence !== before.fence && after.next === before.next;
}

const MOST_CAPACITY = 2_147_483_647;

/** @param absent  what it says when it is not there */
function whenStill(request: Expression, name: string, value: number | bigint, absent: number | bigint): void {
  const place = request.name(name);
  const isValue = `${place} = ${request.value(num(value))}`;
  request.when(value === absent ? `attribute_not_exists(${place}) OR ${isValue}` : isValue);
}

function has(head: Head, { nonce }: HeadHolder): boolean {
  return head.holders.some((holder) => holder.nonce === nonce);
}

function add(request: Expression, holder: HeadHolder): void {
  request.set(A.holder(holder.nonce), holderEntry(holder));
  if (holder.capacity !== 1) request.set(A.token(holder.nonce), num(holder.token));
}

function putOut(request: Expression, holder: HeadHolder): void {
  const { nonce, beat } = holder;
  if (beat === '') request.whenAbsent(A.beat(nonce));
  else request.whenIs(A.beat(nonce), text(beat));
  removeHolder(request, nonce, traceOf(holder));
}

/** What may stand of a holder beside its entry. */
export interface Trace {
  readonly capacity: number;
  readonly hasBeaten: boolean;
  readonly hasWaited: boolean;
}

/** As a head shows it; what comes in between is not seen, so both are taken for granted. */
export function traceOf({ capacity }: HeadHolder): Trace {
  return { capacity, hasBeaten: true, hasWaited: true };
}

/** Removes a holder with all that stands of it, and nothing else: each name costs the service a little. */
export function removeHolder(request: Expression, nonce: string, { capacity, hasBeaten, hasWaited }: Trace): void {
  request.remove(A.holder(nonce));
  if (capacity !== 1) request.remove(A.token(nonce));
  if (hasBeaten) request.remove(A.beat(nonce));
  if (hasWaited) request.remove(A.waitsFor(nonce));
}

/** Only as long as it is held: a nonce never comes again. */
export function whileHeld(request: Expression, nonce: string): Expression {
  return request.when(`attribute_exists(${request.name(A.holder(nonce))})`);
}

function readBig(item: Item, name: string): bigint {
  const value = item[name];
  return value !== undefined && 'N' in value ? BigInt(value.N) : 0n;
}
