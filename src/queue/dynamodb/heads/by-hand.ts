/** What people change in the head of a shard: pauses, and jobs that are cancelled before their claim, or brought back. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { added, F, type ShardHead, standingOf } from './head.ts';
import { bandOfPiece, JOBS, sequenceOf } from './place.ts';
import { isIn, joined, plain, runsOf, type Spot, spansWithout, writeSpans } from './spans.ts';

/** Pauses the shard, or ends that. It raises the fence, so that no claim that was decided before is carried out after. */
export function pauseSet(head: ShardHead, pausedAt: number | undefined): Change {
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.paused]: pausedAt ?? null },
  };
}

/** When the shard was paused, in milliseconds since 1970. */
export function pausedAt({ fields }: ShardHead): number | undefined {
  const at = fields[F.paused];
  return at === undefined ? undefined : Number(at);
}

/** Takes a job out of the line before it is claimed. @returns undefined when it is not in the line any more */
export function cancelledInLine(head: ShardHead, { piece, index }: Spot): Change | undefined {
  const band = bandOfPiece(piece);
  if (sequenceOf(piece) * JOBS + index < (head.next[band] ?? JOBS)) return undefined;
  const cancelled = [...head.cancelled, { piece, index, n: 1 }];
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.cancelled]: writeSpans(joined(cancelled).map(plain)) },
  };
}

/** Takes a job out of what was given back. @returns undefined when it is not there */
export function withdrawn(head: ShardHead, { piece, index }: Spot): Change | undefined {
  const entry = head.back.find(({ spans }) => isIn(spans, { piece, index }));
  if (entry === undefined) return undefined;
  const left = spansWithout(entry.spans, (spot) => spot.piece === piece && spot.index === index);
  return {
    expect: { [entry.name]: head.fields[entry.name] ?? null },
    set: { [entry.name]: left.length === 0 ? null : writeSpans(left) },
  };
}

/**
 * Takes a job out that no worker has, where it was found to wait when its record was written: a worker that has had it since may have written another.
 * @param isUntried  only if no attempt at it has begun @returns undefined when it is not there any more
 */
export function cancelledInHead(head: ShardHead, spot: Spot, seen: ShardHead, isUntried: boolean): Change | undefined {
  const before = head.back.flatMap(({ spans }) => spans).find((span) => isIn([span], spot));
  if (isUntried && before !== undefined && before.attempts > 0) return undefined;
  if (waitingPlace(head, spot) !== waitingPlace(seen, spot)) return undefined;
  return withdrawn(head, spot) ?? (isIn(head.cancelled, spot) ? undefined : cancelledInLine(head, spot));
}

/** Names of what was given back are never used again. */
function waitingPlace(head: ShardHead, spot: Spot): string {
  return head.back.find(({ spans }) => isIn(spans, spot))?.name ?? standingOf(head, spot);
}

/**
 * A job that waits is changed: no claim that was decided before is carried out after. With a time it waits in the head until then.
 * @param name  under which it goes back; never used again @returns undefined when it is not there any more
 */
export function changedInHead(
  head: ShardHead,
  spot: Spot,
  standing: 'line' | 'back' | 'delayed',
  name: string,
  dueAt: number | undefined,
): Change | undefined {
  const fence = { expect: { [F.fence]: head.fields[F.fence] ?? null }, set: { [F.fence]: head.fence + 1 } };
  if (dueAt === undefined) return fence;
  const span = { ...spot, n: 1, attempts: 0, dueAt };
  if (standing === 'delayed') return { ...fence, set: { ...fence.set, [name]: writeSpans([span]) } };
  if (standing === 'line') {
    const out = cancelledInLine(head, spot);
    return out && { ...out, set: { ...out.set, [name]: writeSpans([span]) } };
  }
  const out = withdrawn(head, spot);
  const before = head.back.flatMap(({ spans }) => spans).find((one) => isIn([one], spot));
  if (out === undefined || before === undefined) return undefined;
  const again = writeSpans([{ ...span, attempts: before.attempts }]);
  return { expect: { ...fence.expect, ...out.expect }, set: { ...fence.set, ...out.set, [name]: again } };
}

/** Puts a job that was cancelled before its claim back into the line. @returns undefined when the line has passed it */
export function restoredInLine(head: ShardHead, spot: Spot): Change | undefined {
  if (!isIn(head.cancelled, spot)) return undefined;
  const left = head.cancelled.flatMap((one) => runsOf(one, [{ ...spot, n: 1 }]));
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.cancelled]: left.length === 0 ? null : writeSpans(left.map(plain)) },
  };
}

/**
 * Brings a job back that has ended: into the line, or else under a name of its own, never used again. Then its row has to be changed in the same
 * transaction, so that its removal sees it.
 * @returns undefined when the line has passed it meanwhile
 */
export function backInHead(
  head: ShardHead,
  spot: Spot,
  name: string,
  dueAt: number,
): { readonly change: Change; readonly isInLine: boolean } | undefined {
  if (dueAt > 0 || !isIn(head.cancelled, spot)) {
    return { change: added({ name, spans: [{ ...spot, n: 1, attempts: 0, dueAt }] }), isInLine: false };
  }
  const change = restoredInLine(head, spot);
  return change && { change, isInLine: true };
}
