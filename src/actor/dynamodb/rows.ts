/** The keys of the rows of actors. */
import { digits, type Item, type Key } from '../../engine/dynamodb/index.ts';

/** The partition of rows that belong to no actor: types and counters. */
export const ACTORS = 'actors';
export const WORKERS = 'actors:workers';
export const NOTES = 'actors:notes';
/** The counter of the ids of actors. */
export const IDS: Key = { pk: ACTORS, sk: 'ids' };

export function typeOf(name: string): Key {
  return { pk: ACTORS, sk: `${TYPES.first}${name}` };
}

export const TYPES = { first: 't#', last: 't#\u{10ffff}' } as const;

/** The partition of an actor. */
export function actorKey(actor: number): string {
  return `actor:${actor}`;
}

export function headOf(actor: number): Key {
  return { pk: actorKey(actor), sk: HEAD };
}

/** The head sorts right before the inbox, so that one query reads both, the head first. */
export const HEAD = 'head';
export const INBOX = { first: 'in#', last: 'in#~' } as const;

export function inboxOf(actor: number, name: string): Key {
  return { pk: actorKey(actor), sk: `${INBOX.first}${name}` };
}

/** The number of the last message that was sent. */
export function boxOf(actor: number): Key {
  return { pk: actorKey(actor), sk: 'box' };
}

export function messageOf(actor: number, message: number): Key {
  return { pk: actorKey(actor), sk: `${MESSAGES.first}${digits(message, 15)}` };
}

/** The row of a question: its sender waits for the answer to the message. */
export function questionOf(actor: number, message: number): Key {
  return { pk: actorKey(actor), sk: `q#${digits(message, 15)}` };
}

export const MESSAGES = { first: 'm#', last: 'm#~' } as const;

export function effectOf(actor: number, visit: number, key: string): Key {
  return { pk: actorKey(actor), sk: `e#${digits(visit, 12)}#${key}` };
}

export function childOf(actor: number, child: number): Key {
  return { pk: actorKey(actor), sk: `${CHILDREN.first}${digits(child, 16)}` };
}

export const CHILDREN = { first: 'c#', last: 'c#~' } as const;

/** A transition, by a turn or by hand. */
export function transitionOf(actor: number, epoch: number): Key {
  return { pk: actorKey(actor), sk: transitionsFrom(epoch) };
}

export function transitionsFrom(epoch: number): string {
  return `h#${digits(epoch, 15)}`;
}

/** The row that names the one actor of a type and key. */
export function keyOf(type: number, key: string): Key {
  return { pk: `actors:key:${type}:${key}`, sk: HEAD };
}

/** The line in which workers look for due actors of a type. @param shard  undefined: the line of actors that run alone */
export function lineOf(type: number, shard: number | undefined): string {
  return shard === undefined ? `actors:alone:${type}` : `actors:line:${type}:${shard}`;
}

export function lineFrom(at: number): string {
  return `w#${digits(at, 15)}`;
}

/** The note of a worker that is about to claim actors. */
export function noteOf(worker: number, name: string): Key {
  return { pk: NOTES, sk: `n#${digits(worker, 16)}#${name}` };
}

export function sortKey(item: Item): string {
  const { sk } = item;
  return sk !== undefined && 'S' in sk ? sk.S : '';
}

/** Pages, and their notifications. */
export const PAGES = 'actors:pages';
export const OPEN_PAGES = { first: 'o#', last: 'o#\u{10ffff}' } as const;
export const RESOLVED_PAGES = { first: 'p#', last: 'p#~' } as const;
export const NOTICES = { first: 'n#', last: 'n#~' } as const;

export function openPageOf(tag: string): Key {
  return { pk: PAGES, sk: `${OPEN_PAGES.first}${tag}` };
}

/** A resolved page. */
export function pageOf(id: number): Key {
  return { pk: PAGES, sk: `${RESOLVED_PAGES.first}${digits(id, 15)}` };
}

export function noticeOf(at: number, name: string): Key {
  return { pk: PAGES, sk: `${NOTICES.first}${digits(at, 15)}#${name}` };
}

/** The line in which workers look for actors of a type that are in a state for longer than declared. */
export function lateLineOf(type: number, shard: number): string {
  return `actors:late:${type}:${shard}`;
}

/** The row of an actor that is held because no program knew its state. */
export function heldOf(type: number, actor: number, epoch: number): Key {
  return { pk: heldKey(type), sk: `${HELD.first}${digits(actor, 16)}#${epoch}` };
}

export function heldKey(type: number): string {
  return `actors:held:${type}`;
}

/** The row of an actor that is held because its state is paused. */
export function pausedOf(type: number, actor: number, name: string): Key {
  return { pk: pausedKey(type), sk: `${HELD.first}${digits(actor, 16)}#${name}` };
}

export function pausedKey(type: number): string {
  return `actors:paused:${type}`;
}

/** The line in which workers look for final actors of a type whose history is over. */
export function overLineOf(type: number, shard: number): string {
  return `actors:over:${type}:${shard}`;
}

/** The row that lists an actor. */
export function listOf(type: number, actor: number, shards: number): Key {
  return { pk: listLineOf(type, actor % shards), sk: digits(actor, 16) };
}

export function listLineOf(type: number, shard: number): string {
  return `${ACTORS}:list:${type}:${shard}`;
}

export const HELD = { first: 'h#', last: 'h#~' } as const;
