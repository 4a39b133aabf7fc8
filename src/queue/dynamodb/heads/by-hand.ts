/** Changes of the head of a shard by hand: pauses, and jobs that are cancelled before their claim, or brought back. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { added, F, type ShardHead, standingOf } from './head.ts';
import { bandOfPiece, JOBS, sequenceOf } from './place.ts';
import { isIn, joined, plain, runsOf, type Spot, spansWithout, writeSpans } from './spans.ts';

/** Pauses the shard, or ends the pause. It raises the fence, so no claim that was decided before is carried out after it. */
export function pauseSet(head: ShardHead, pausedAt: number | undefined): Change {
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.paused]: pausedAt ?? null },
  };
}

/** The time at which the shard was paused, in milliseconds since 1970. */
export function pausedAt({ fields }: ShardHead): number | undefined {
  const at = fields[F.paused];
  return at === undefined ? undefined : Number(at);
}

/** Takes a job out of the line before it is claimed. @returns undefined if it is not in the line any more */
export function cancelledInLine(head: ShardHead, { piece, index }: Spot): Change | undefined {
  const band = bandOfPiece(piece);
  if (sequenceOf(piece) * JOBS + index < (head.next[band] ?? JOBS)) return undefined;
  const cancelled = [...head.cancelled, { piece, index, n: 1 }];
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.cancelled]: writeSpans(joined(cancelled).map(plain)) },
  };
}

/** Takes a job out of the jobs that were given back. @returns undefined if it is not among them */
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
 * Takes out a job that no worker has, if it still waits where it was when its record was written. Otherwise a worker may have had the job since, and
 * may have written another record.
 * @param seen  the head when the record was written @param isUntried  takes the job out only if no attempt at it has begun
 * @returns undefined if the job is not there any more
 */
export function cancelledInHead(head: ShardHead, spot: Spot, seen: ShardHead, isUntried: boolean): Change | undefined {
  const before = head.back.flatMap(({ spans }) => spans).find((span) => isIn([span], spot));
  if (isUntried && before !== undefined && before.attempts > 0) return undefined;
  if (waitingPlace(head, spot) !== waitingPlace(seen, spot)) return undefined;
  return withdrawn(head, spot) ?? (isIn(head.cancelled, spot) ? undefined : cancelledInLine(head, spot));
}

/** Where the job waits. Names of jobs that were given back are never used again, so an equal name means that the job has not moved. */
function waitingPlace(head: ShardHead, spot: Spot): string {
  return head.back.find(({ spans }) => isIn(spans, spot))?.name ?? standingOf(head, spot);
}

/**
 * Changes a job that waits. No claim that was decided before is carried out after it. If the job has a time, it waits in the head until that time.
 * @param name  the name under which the job goes back; never used again @returns undefined if the job is not there any more
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

/** Puts a job that was cancelled before its claim back into the line. @returns undefined if the line has passed it */
export function restoredInLine(head: ShardHead, spot: Spot): Change | undefined {
  if (!isIn(head.cancelled, spot)) return undefined;
  const left = head.cancelled.flatMap((one) => runsOf(one, [{ ...spot, n: 1 }]));
  return {
    expect: { [F.fence]: head.fields[F.fence] ?? null },
    set: { [F.fence]: head.fence + 1, [F.cancelled]: left.length === 0 ? null : writeSpans(left.map(plain)) },
  };
}

/**
 * Brings back a job that has ended: into the line, or else under a name of its own, never used again. In the second case, change the row of the job
 * in the same transaction, so that a removal of old jobs sees that the job is back.
 * @returns undefined if the line has passed the job meanwhile
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
