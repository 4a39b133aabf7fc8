import type { ActorHead, InboxRow } from './head.ts';

/** How many bytes of names one claim adds to a head: a thousand rows of an inbox. A head has at most 400 KB, and fields may nearly fill it. */
const MOST_BYTES = 14_000;
/** How many bytes of names a head holds at most, with those of earlier claims whose rows are not removed yet. */
const MOST_BYTES_IN_ALL = 3 * MOST_BYTES;

/**
 * The rows of an inbox that the next claim takes: the rows that the head names already, the rows that woke the actor, and as many others
 * as the head has room for. The claim names the rows that woke the actor in any case, and a named row counts as taken.
 */
export function absorbable(
  { absorbed }: Pick<ActorHead, 'absorbed'>,
  inbox: readonly InboxRow[],
  answered: readonly string[],
): { readonly rows: readonly InboxRow[]; readonly isCut: boolean } {
  const named = new Set([...absorbed, ...answered]);
  const first = inbox.filter(({ name }) => named.has(name));
  const others = inbox.filter(({ name }) => !named.has(name));
  let room = Math.min(MOST_BYTES, MOST_BYTES_IN_ALL - bytesOf(first));
  const end = others.findIndex((row) => (room -= bytesOf([row])) < 0);
  return end === -1 ? { rows: inbox, isCut: false } : { rows: [...first, ...others.slice(0, end)], isCut: true };
}

/** The size of these names in the head, with quotes and a comma each. */
function bytesOf(rows: readonly InboxRow[]): number {
  return rows.reduce((sum, { name }) => sum + name.length + 3, 0);
}
