import {
  type Attribute,
  Expression,
  type Item,
  num,
  type RequestTexts,
  readBig,
  readNumber,
  readText,
  text,
} from '../../../engine/dynamodb/index.ts';
import { EMPTY, type Head, type HeadHolder, type HeadPast, PAST } from '../head.ts';
import { ANY_TRACE, holderEntry, MOST_CAPACITY, readHolders, removeHolder, slotOf } from './holder.ts';

/**
 * The attributes of a head. The names are short because DynamoDB charges by the byte. A missing attribute means the same as
 * in a new head, so that the request for a free lock need not write it.
 */
export const A = {
  last: 'q',
  next: 's',
  fence: 'f',
  load: 'n',
  /** The smallest capacity among the holders that are not exclusive; it may be too small after one of them has left. */
  capacity: 'c',
  ranAt: 'r',
  taker: 'k',
  past: (token: bigint): string => `p${token % BigInt(PAST)}`,
} as const;

/** Decodes a row; a missing row means the same as a new head. */
export function readHead(item: Item | undefined): Head {
  if (item === undefined) return EMPTY;
  return {
    last: readNumber(item, A.last),
    next: readNumber(item, A.next, 1),
    fence: readBig(item, A.fence),
    load: readNumber(item, A.load),
    holders: readHolders(item, readBig(item, A.fence)),
    past: Array.from({ length: PAST }, (_, slot) => readPast(item, `p${slot}`))
      .filter((each) => each !== undefined)
      .sort((a, b) => (a.token > b.token ? -1 : 1)),
    ranAt: A.ranAt in item ? readNumber(item, A.ranAt) : undefined,
    taker: readText(item, A.taker),
  };
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

/**
 * The request that turns one head into the next one, on condition that nothing was decided meanwhile and that no removed
 * holder has renewed.
 */
export function rewrite(before: Head, after: Head): RequestTexts {
  const request = new Expression();
  whenStill(request, A.fence, before.fence, 0n);
  whenStill(request, A.load, before.load, 0);
  whenStill(request, A.next, before.next, 1);
  // New tickets do not change that state, so the last ticket needs a condition of its own.
  if (after.last !== before.last || passesQueue(before, after)) whenStill(request, A.last, before.last, 0);
  request.set(A.load, num(after.load));
  if (after.fence !== before.fence) request.set(A.fence, num(after.fence));
  if (after.next !== before.next) request.set(A.next, num(after.next));
  if (after.last !== before.last) request.set(A.last, num(after.last));
  request.set(A.capacity, num(Math.min(...after.holders.map((each) => each.capacity), MOST_CAPACITY)));
  if (after.taker !== undefined && after.taker !== before.taker) request.set(A.taker, text(after.taker));
  const added = after.holders.filter((holder) => !has(before, holder));
  for (const holder of added) add(request, holder);
  const taken = new Set(added.map((holder) => slotOf(holder).holder));
  for (const holder of before.holders) if (!has(after, holder)) putOut(request, holder, taken);
  const slots = new Map<string, HeadPast>();
  for (const past of after.past) if (!slots.has(A.past(past.token))) slots.set(A.past(past.token), past);
  for (const [slot, past] of slots) {
    if (!before.past.some((each) => each.token === past.token)) request.set(slot, pastEntry(past));
  }
  return request.write();
}

/** Whether the lock is granted without a ticket, which requires that there are still no waiters. */
function passesQueue(before: Head, after: Head): boolean {
  return after.fence !== before.fence && after.next === before.next;
}

/** @param absent  the meaning of a missing attribute */
function whenStill(request: Expression, name: string, value: number | bigint, absent: number | bigint): void {
  const place = request.name(name);
  const isValue = `${place} = ${request.value(num(value))}`;
  request.when(value === absent ? `attribute_not_exists(${place}) OR ${isValue}` : isValue);
}

function has(head: Head, { nonce }: HeadHolder): boolean {
  return head.holders.some((holder) => holder.nonce === nonce);
}

function add(request: Expression, holder: HeadHolder): void {
  request.set(slotOf(holder).holder, holderEntry(holder));
  if (holder.capacity !== 1) request.set(slotOf(holder).token, num(holder.token));
}

/** @param taken  attributes that belong to another holder from now on */
function putOut(request: Expression, holder: HeadHolder, taken: ReadonlySet<string>): void {
  const { beat } = slotOf(holder);
  if (holder.beat === '') request.whenAbsent(beat);
  else request.whenIs(beat, text(holder.beat));
  removeHolder(request, holder, ANY_TRACE, taken);
}
