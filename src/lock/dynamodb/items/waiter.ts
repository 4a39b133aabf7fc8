import {
  type Attribute,
  Expression,
  type Item,
  num,
  type RequestTexts,
  readNumber,
  readText,
  TTL,
  text,
} from '../../../engine/dynamodb/index.ts';
import { type QueuedAt, readPlaces, ticketIn, writePlaces } from './key.ts';

/** The row of a place in a queue. It gives the order and makes the waiter visible; it decides nothing. */
export interface WaiterRow {
  readonly ticket: number;
  readonly nonce: string;
  readonly capacity: number;
  readonly leaseMs: number;
  readonly host: string;
  readonly pid: number;
  readonly since: number;
  readonly beats: number;
  /** The place was given up, or its waiter is dead. It is passed over when its turn comes. */
  readonly isGone: boolean;
  /** For a set: its places in the other queues. */
  readonly others: readonly QueuedAt[];
}

/** A new place. */
export type NewWaiter = Omit<WaiterRow, 'ticket' | 'beats' | 'isGone'>;

/** DynamoDB may remove the row a day after its last renewal, when it is long out of date. */
const KEEP_S = 86_400;

const W = { nonce: 'o', beats: 'b', gone: 'g' } as const;

/** Takes the place, unless others gave it up as dead before it was taken. It may be repeated. */
export function takePlace(waiter: NewWaiter, now: number): RequestTexts {
  const { nonce, capacity, leaseMs, host, pid, since, others } = waiter;
  const request = new Expression();
  request
    .set(W.nonce, text(nonce))
    .set('c', num(capacity))
    .set('l', num(Math.round(leaseMs)));
  request.set('w', text(host)).set('p', num(pid)).set('a', num(since)).set(W.beats, num(0)).set(TTL, ttl(now));
  if (others.length > 0) request.set('m', writePlaces(others));
  const [place, gone] = [request.name(W.nonce), request.name(W.gone)];
  const isMine = `${place} = ${request.value(text(nonce))} AND attribute_not_exists(${gone})`;
  return request.when(`(attribute_not_exists(${place}) AND attribute_not_exists(${gone})) OR (${isMine})`).write();
}

/** Renews the place. Does not revive a place that was given up. */
export function renewPlace(nonce: string, now: number): RequestTexts {
  const request = new Expression();
  const beats = request.name(W.beats);
  return request
    .setTo(W.beats, `${beats} + ${request.value(num(1))}`)
    .set(TTL, ttl(now))
    .whenIs(W.nonce, text(nonce))
    .whenAbsent(W.gone)
    .write();
}

/** Gives up a place, even if it was never taken, so that it cannot be taken late. */
export function leavePlace(nonce: string, now: number): RequestTexts {
  const request = new Expression();
  const place = request.name(W.nonce);
  return request
    .set(W.gone, num(1))
    .set(TTL, ttl(now))
    .when(`attribute_not_exists(${place}) OR ${place} = ${request.value(text(nonce))}`)
    .write();
}

/** Marks a place as passed over, if its row is unchanged since it was read, or, if there was no row, is still missing. */
export function buryPlace(seen: WaiterRow | undefined, now: number): RequestTexts {
  const request = new Expression().set(W.gone, num(1)).set(TTL, ttl(now));
  if (seen === undefined) return request.whenAbsent(W.nonce).write();
  return request.whenIs(W.nonce, text(seen.nonce)).whenIs(W.beats, num(seen.beats)).write();
}

/** @returns undefined for a row that is no waiter */
export function readWaiter(item: Item): WaiterRow | undefined {
  const ticket = ticketIn(readText(item, 'sk'));
  if (ticket === undefined) return undefined;
  return {
    ticket,
    nonce: readText(item, W.nonce) ?? '',
    capacity: readNumber(item, 'c', 1),
    leaseMs: readNumber(item, 'l'),
    host: readText(item, 'w') ?? '',
    pid: readNumber(item, 'p'),
    since: readNumber(item, 'a'),
    beats: readNumber(item, W.beats),
    isGone: W.gone in item,
    others: readPlaces(item, 'm'),
  };
}

function ttl(now: number): Attribute {
  return num(Math.ceil(now / 1000) + KEEP_S);
}
