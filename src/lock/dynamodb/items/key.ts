import {
  type Attribute,
  type Item,
  type Key,
  num,
  readList,
  readNumber,
  readText,
  text,
} from '../../../engine/dynamodb/index.ts';

/** The one row that decides about a lock. */
export const HEAD = 'head';

const DIGITS = 16;
const WAITER = 'wait#';

/** The partition key of every row of a lock. The length separates the namespace from the name. */
export function lockKey(space: string, name: string): string {
  return `${spacePrefix(space)}${name}`;
}

/** The beginning of the keys of all locks of a namespace. */
export function spacePrefix(space: string): string {
  return `lock:${space.length}:${space}:`;
}

/** @returns the name in the key of a lock of this namespace */
export function nameIn(pk: string, space: string): string {
  return pk.slice(spacePrefix(space).length);
}

/** The row that decides about the lock. */
export function headOf(pk: string): Key {
  return { pk, sk: HEAD };
}

/** The key of a waiter's row. The keys sort in the order of the tickets, since no ticket will ever have more digits. */
export function waiterOf(pk: string, ticket: number): Key {
  return { pk, sk: `${WAITER}${String(ticket).padStart(DIGITS, '0')}` };
}

/** @returns undefined for a row that is no waiter */
export function ticketIn(sk: string | undefined): number | undefined {
  return sk?.startsWith(WAITER) ? Number(sk.slice(WAITER.length)) : undefined;
}

/** A place in the queue of a lock. */
export interface QueuedAt {
  readonly pk: string;
  readonly ticket: number;
}

/** The attribute of places. */
export function writePlaces(places: readonly QueuedAt[]): Attribute {
  return { L: places.map(({ pk, ticket }): Attribute => ({ M: { k: text(pk), t: num(ticket) } })) };
}

/** @returns no places, if there is no such attribute */
export function readPlaces(item: Item, name: string): readonly QueuedAt[] {
  return readList(item, name).map((each) => {
    const place = 'M' in each ? each.M : {};
    return { pk: readText(place, 'k') ?? '', ticket: readNumber(place, 't') };
  });
}

/** A nonce that is shorter than the claim's own nonce, since it is part of attribute names, and DynamoDB charges by the byte. */
export function shortNonce(nonce: string): string {
  return Buffer.from(nonce.replaceAll('-', ''), 'hex').toString('base64url');
}
