/** The changes by which the holder of a key settles jobs in its head, and gives the key up. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type KeyHead, type LeftJob, writtenOn } from './key-head.ts';

/** The outcome of a job that the holder had taken. */
export interface KeyOutcome {
  readonly id: number;
  /** `over`: complete, in error or cancelled. `back`: the job has not begun, or the attempt does not count. */
  readonly to: 'over' | 'retry' | 'back';
  readonly dueAt: number;
}

export interface KeySettled {
  readonly change: Change;
  /** The poke goes back until this time, 0: at once; undefined: the poke is over, or the holder goes on. */
  readonly backUntil: number | undefined;
}

/**
 * Writes outcomes of the holder. @param givesUp  the holder has no other job of the key
 * @returns undefined if the key is not held under this epoch any more
 */
export function keySettled(
  head: KeyHead,
  epoch: number,
  outcomes: readonly KeyOutcome[],
  givesUp: boolean,
): KeySettled | undefined {
  if (head.epoch !== epoch || head.holder === undefined) return undefined;
  const byId = new Map(outcomes.map((outcome) => [outcome.id, outcome]));
  const left = head.left.flatMap((job): LeftJob[] => {
    const outcome = byId.get(job.id);
    if (outcome === undefined) return [givesUp ? released(job) : job];
    if (outcome.to === 'over') return [];
    if (outcome.to === 'back') return [{ ...released(job), dueAt: outcome.dueAt }];
    return [{ ...job, dueAt: outcome.dueAt, isScheduled: false, isTaken: false }];
  });
  if (!givesUp) return { change: writtenOn(head, { left }), backUntil: undefined };
  const change = writtenOn(head, { left, holder: undefined, more: false });
  const first = left.find((job) => !job.isScheduled);
  return { change, backUntil: first?.dueAt ?? (head.more || left.length > 0 ? 0 : undefined) };
}

function released(job: LeftJob): LeftJob {
  return job.isTaken ? { ...job, attempt: job.attempt - 1, isScheduled: false, isTaken: false } : job;
}
