import type { Draw } from '../../support/random.ts';
import type { KindName, Orders } from './declaration.ts';

/** An entry of a ledger has none, since its key stops; what gives its payload to a job that waits says nothing about letters. */
const WITHOUT: readonly KindName[] = ['book', 'replaced'];

/** Whether a job names the kind of its dead letter itself: as a rule one that is told to fail for good. */
export function namesLetter(
  draw: Draw,
  { kind, orders: { how } }: { readonly kind: KindName; readonly orders: Orders },
): boolean {
  const isFailing = how === 'refuse' || how === 'discard' || kind === 'fragile';
  return draw.chance(isFailing ? 0.6 : 0.08) && !WITHOUT.includes(kind);
}
