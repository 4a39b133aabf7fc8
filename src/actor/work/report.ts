import type { LeaseLost } from '../../base/errors.ts';
import type { Events } from '../../base/events.ts';
import type { TurnCommit } from '../store.ts';
import { COMMIT_REFUSED, type TurnResult } from './run/turn-result.ts';

/** The events of a dispatcher, for logs, metrics and tests. */
export interface DispatcherEvents {
  /** A turn was committed. */
  turn: {
    readonly actor: string;
    readonly kind: 'to' | 'stay' | 'done' | 'failed' | 'released';
    readonly from: string;
    readonly to: string;
  };
  /** A turn failed; it is tried again. */
  failed: { readonly actor: string; readonly state: string; readonly attempt: number; readonly error: unknown };
  /** Turns came too late and changed nothing: other workers own these actors. */
  stale: { readonly actors: readonly string[] };
  /** An actor is in a state, or has fields, that this program does not know. */
  unknown: { readonly actor: string; readonly state: string; readonly held: boolean };
  /** The lease is lost, and the signals of all turns are aborted. The dispatcher registers anew. */
  lost: { readonly reason: LeaseLost };
  /** The database could not be reached, or refused a statement; the dispatcher keeps trying. */
  error: { readonly error: unknown };
}

/** Emits committed turns. @param error  the error of a turn that failed */
export function reportCommitted(events: Events<DispatcherEvents>, commit: TurnCommit, error: unknown): void {
  if (commit.reason === COMMIT_REFUSED) reportFailed(events, { settled: commit, error });
  if (!events.has('turn')) return;
  const { id, kind, from, to = from } = commit;
  events.emit('turn', { actor: String(id), kind, from, to });
}

export function reportFailed(
  events: Events<DispatcherEvents>,
  { settled, error }: Pick<TurnResult, 'settled' | 'error'>,
): void {
  const { id, from: state, attempt } = settled;
  events.emit('failed', { actor: String(id), state, attempt, error });
}
