import type { Change } from '../../../engine/dynamodb/index.ts';
import { type ActorHead, F, unchanged } from './head.ts';

/** The judgement of a rescue. `isSuspected`: an actor of the dead process had been lost before, so the others are innocent. */
export interface Verdict {
  readonly isSuspected: boolean;
  readonly now: number;
  readonly error: string;
}

export interface Rescue {
  /** Undefined: another rescue has made the change, and may have died before it wrote the row. */
  readonly change: Change | undefined;
  /** The wake row to write after the change, before the note of the worker is removed. */
  readonly row: { readonly at: number; readonly epoch: number } | undefined;
}

/**
 * Takes an actor from a dead worker that runs it, or that was about to claim it at this epoch.
 * @returns undefined if the actor has nothing to do with that worker any more
 */
export function rescued(head: ActorHead, worker: number, before: number, verdict: Verdict): Rescue | undefined {
  if (head.worker === 0 && head.epoch === before) {
    return {
      change: {
        expect: { ...unchanged(head, [F.epoch, F.fence]), [F.worker]: null },
        set: { [F.fence]: head.fence + 1 },
      },
      row: undefined,
    };
  }
  if (head.worker === 0 && head.epoch === before + 2 && head.wakeAt !== undefined) {
    return { change: undefined, row: { at: head.wakeAt, epoch: head.epoch } };
  }
  if (head.worker !== worker || head.epoch !== before + 1) return undefined;
  const isInnocent = verdict.isSuspected && head.lost === 0;
  const wakeAt = isInnocent ? verdict.now : head.signal ? Math.min(head.retryAt, verdict.now) : head.retryAt;
  return {
    change: {
      expect: { [F.epoch]: head.epoch, [F.worker]: worker, [F.signal]: head.signal ? 1 : null },
      set: {
        [F.epoch]: head.epoch + 1,
        [F.worker]: null,
        [F.signal]: null,
        [F.floorAt]: null,
        [F.wakeAt]: wakeAt,
        [F.attempt]: isInnocent ? Math.max(head.attempt - 1, 0) : head.attempt,
        [F.lost]: isInnocent ? null : head.lost + 1,
        [F.error]: verdict.error,
      },
    },
    row: { at: wakeAt, epoch: head.epoch + 1 },
  };
}
