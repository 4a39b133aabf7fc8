/** What the holder of a key writes into its head: outcomes of jobs, and that it gives the key up. */
import type { Change } from '../../../engine/dynamodb/index.ts';
import { type KeyHead, type LeftJob, writtenOn } from './key-head.ts';

/** What became of a job that its holder had. */
export interface KeyOutcome {
  readonly id: number;
  /** `over`: complete, in error or cancelled. `back`: it has not begun, or counts as if it had not. */
  readonly to: 'over' | 'retry' | 'back';
  readonly dueAt: number;
}

export interface KeySettled {
  readonly change: Change;
  /** The poke goes back until then, 0 for at once; undefined: it is over, or the holder goes on. */
  readonly backUntil: number | undefined;
}

/**
 * Writes outcomes of the holder. @param givesUp  it has no other job of the key
 * @returns undefined when the key is not held under this epoch any more
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
