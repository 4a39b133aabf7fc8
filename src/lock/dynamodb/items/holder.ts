import {
  type Attribute,
  type Expression,
  type Item,
  num,
  readBig,
  readMap,
  readNumber,
  readText,
  text,
} from '../../../engine/dynamodb/index.ts';
import type { HeadHolder, WaitsFor } from '../head.ts';
import { readPlaces, writePlaces } from './key.ts';

/** The capacity of readers, whose number is not limited by a capacity. */
export const MOST_CAPACITY = 2_147_483_647;

/** The fields of a holder that tell its attributes in the head. */
export type Who = Pick<HeadHolder, 'nonce' | 'capacity'>;

/** The attributes of a holder. */
interface Slot {
  readonly holder: string;
  /** Only for holders that are not exclusive; the token of an exclusive holder is the fence. */
  readonly token: string;
  readonly beat: string;
  readonly waitsFor: string;
}

const ALONE: Slot = { holder: 'h', token: 't', beat: 'b', waitsFor: 'w' };
const SHARED = 'h:';

/**
 * The names of a holder's attributes. Each of several holders has attributes of its own, named after its nonce. So a request can
 * add or remove a holder without knowing the others. An exclusive holder always has the same attributes, and its entry begins with
 * the nonce: an attribute name that is new to the service costs it (DynamoDB Local) a tenth of the time of the request.
 */
export function slotOf({ nonce, capacity }: Who): Slot {
  if (capacity === 1) return ALONE;
  return { holder: `${SHARED}${nonce}`, token: `t:${nonce}`, beat: `b:${nonce}`, waitsFor: `w:${nonce}` };
}

/** All holders, in the order of their tokens. */
export function readHolders(item: Item, fence: bigint): readonly HeadHolder[] {
  const alone = readText(item, ALONE.holder);
  if (alone !== undefined) {
    const end = alone.indexOf(' ');
    return [{ ...readHolder(item, alone.slice(0, end), alone.slice(end), ALONE), token: fence }];
  }
  return Object.keys(item)
    .filter((name) => name.startsWith(SHARED))
    .map((name) => {
      const nonce = name.slice(SHARED.length);
      return readHolder(item, nonce, readText(item, name) ?? '[]', slotOf({ nonce, capacity: MOST_CAPACITY }));
    })
    .sort((a, b) => (a.token < b.token ? -1 : 1));
}

function readHolder(item: Item, nonce: string, entry: string, slot: Slot): HeadHolder {
  const [capacity = 1, leaseMs = 0, pid = 0, grantedAt = 0, host = '']: (string | number)[] = JSON.parse(entry);
  const beat = readText(item, slot.beat) ?? '';
  const [, beatAt] = beat.split(' ');
  return {
    nonce,
    token: readBig(item, slot.token),
    capacity: Number(capacity),
    leaseMs: leaseMs === 0 ? Infinity : Number(leaseMs),
    host: String(host),
    pid: Number(pid),
    grantedAt: Number(grantedAt),
    beatAt: Number(beatAt ?? grantedAt),
    beat,
    waitsFor: readWaitsFor(readMap(item, slot.waitsFor), nonce),
  };
}

/** The part of a holder that never changes, as one text, since a map of five entries is five times the work for the service. */
export function holderEntry(holder: Omit<HeadHolder, 'token'>): Attribute {
  const { nonce, capacity, leaseMs, host, pid, grantedAt } = holder;
  const entry = JSON.stringify([capacity, leaseMs === Infinity ? 0 : Math.round(leaseMs), pid, grantedAt, host]);
  return text(capacity === 1 ? `${aloneAs(nonce)}${entry}` : entry);
}

/** The beginning of the entry of an exclusive holder. */
function aloneAs(nonce: string): string {
  return `${nonce} `;
}

/** @param holder  the nonce of the holder that waits, since the next exclusive holder has the same attribute, but does not wait */
export function waitsForEntry({ nonce, places, isSettled }: WaitsFor, holder: string): Attribute {
  return { M: { h: text(holder), o: text(nonce), l: writePlaces(places), s: num(isSettled ? 1 : 0) } };
}

function readWaitsFor(entry: Item | undefined, holder: string): WaitsFor | undefined {
  if (entry === undefined || readText(entry, 'h') !== holder) return undefined;
  return { nonce: readText(entry, 'o') ?? '', places: readPlaces(entry, 'l'), isSettled: readNumber(entry, 's') === 1 };
}

/** Attributes that a holder may have in addition to its entry. */
export interface Trace {
  readonly hasBeaten: boolean;
  readonly hasWaited: boolean;
}

/** The trace of holders of other processes, which may have written attributes after the head was read. */
export const ANY_TRACE: Trace = { hasBeaten: true, hasWaited: true };

/**
 * Removes a holder with all its attributes, so that the next holder is not taken for it. It names no other attributes, since
 * each name costs the service a little.
 */
export function removeHolder(request: Expression, who: Who, trace: Trace, taken?: ReadonlySet<string>): void {
  const { holder, token, beat, waitsFor } = slotOf(who);
  if (taken?.has(holder) !== true) request.remove(holder);
  if (who.capacity !== 1) request.remove(token);
  if (trace.hasBeaten) request.remove(beat);
  if (trace.hasWaited) request.remove(waitsFor);
}

/** Adds the condition that the holder still holds the lock. A nonce is never used again. */
export function whileHeld(request: Expression, who: Who): Expression {
  const holder = request.name(slotOf(who).holder);
  if (who.capacity !== 1) return request.when(`attribute_exists(${holder})`);
  return request.when(`begins_with(${holder}, ${request.value(text(aloneAs(who.nonce)))})`);
}
