import { type Head, type RequestStanding, standingOf } from './head.ts';
import type { RunningCall } from './running-call.ts';

/** A head that was read, and its meaning for this attempt. */
export interface HeadView {
  readonly pk: string;
  readonly head: Head;
  readonly stale: ReadonlySet<string>;
  /** How long until a lease has certainly run out, if nothing changes. */
  readonly staleInMs: number;
  readonly standing: RequestStanding;
}

/** The meaning of a head for this call. */
export function viewOf({ parts, request, nonce, waiter }: RunningCall, pk: string, head: Head): HeadView {
  const stale = new Set<string>();
  let staleInMs = Infinity;
  for (const holder of head.holders) {
    if (holder.nonce === nonce || holder.leaseMs === Infinity) continue;
    const leftMs = parts.grants.staleInMs(pk, holder);
    if (leftMs <= 0) stale.add(holder.nonce);
    else staleInMs = Math.min(staleInMs, leftMs);
  }
  const ticket = waiter?.tickets.get(pk);
  const standing = standingOf(head, { nonce, capacity: request.capacity, ticket }, stale);
  return { pk, head, stale, staleInMs, standing };
}
