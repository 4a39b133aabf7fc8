import type { Fields } from '../../../engine/dynamodb/index.ts';
import type { ActorRows } from '../database.ts';
import { type ActorHead, ALONE, F } from '../heads/head.ts';
import { P } from './page-row.ts';
import type { Pages } from './pages.ts';

const AT_ONCE = 100;

/**
 * Resolves pages that their process did not resolve before it died: pages of actors that are final, of states that the actor has left, of losses that
 * are over. Notifies suppressed pages whose cause is resolved. One query, and one read for each page about an actor, for at most a hundred pages.
 */
export async function sweepPages(rows: ActorRows, pages: Pages): Promise<void> {
  const open = await pages.openPages();
  const about = open.filter((page) => page[P.actor] !== undefined);
  // If there are more pages, begins at a random one, so that no page is always left out.
  const first = Math.floor(Math.random() * Math.max(1, about.length - AT_ONCE + 1));
  for (const page of about.slice(first, first + AT_ONCE)) {
    const head = await rows.head(Number(page[P.actor]));
    if (isOver(page, head)) await pages.resolve(String(page[P.tag]));
  }
  if (open.some((page) => page[P.notifiedAt] === undefined && page[P.root] !== undefined)) await pages.notifyHidden();
}

function isOver(page: Fields, head: ActorHead | undefined): boolean {
  if (head === undefined) return true;
  const [seenAt, actor, tag] = [Number(page[P.seenAt]), page[P.actor], page[P.tag]];
  if (Number(head.fields[F.finishedAt] ?? 0) > seenAt) return true;
  if (tag === `actor-deadline:${actor}`) return Number(head.fields[F.enteredAt] ?? 0) > seenAt;
  return tag === `actor-lost:${actor}` && head.lost <= ALONE && head.held === undefined;
}
