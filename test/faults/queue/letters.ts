import type { Draw } from '../../support/random.ts';
import type { KindName, Orders } from './declaration.ts';

/** Entries of a ledger have no letters, because their keys stop. A job that replaces a payload names no kind of letters. */
const WITHOUT: readonly KindName[] = ['book', 'replaced'];

/** Whether a job names the kind of its dead letter itself: usually a job whose orders are to fail for good. */
export function namesLetter(
  draw: Draw,
  { kind, orders: { how } }: { readonly kind: KindName; readonly orders: Orders },
): boolean {
  const isFailing = how === 'refuse' || how === 'discard' || kind === 'fragile';
  return draw.chance(isFailing ? 0.6 : 0.08) && !WITHOUT.includes(kind);
}
