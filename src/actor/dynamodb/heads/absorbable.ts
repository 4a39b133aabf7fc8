import type { ActorHead, InboxRow } from './head.ts';

/** How many bytes of names one claim adds to a head: a thousand rows of an inbox. The head has 400 KB, most of which may be fields. */
const MOST_BYTES = 14_000;
/** The same with the names that an earlier claim has left there, since their rows are not removed yet. */
const MOST_BYTES_IN_ALL = 3 * MOST_BYTES;

/**
 * Those rows of an inbox that the next claim takes: what the head names already, what woke the actor, and as many of the others as there is
 * room for. What woke it is named by the claim in any case, and what is named counts as taken.
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

/** With quotes and a comma. */
function bytesOf(rows: readonly InboxRow[]): number {
  return rows.reduce((sum, { name }) => sum + name.length + 3, 0);
}
