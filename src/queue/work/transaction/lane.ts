import type { AnswerOptions, Session } from '../../../engine/postgres/index.ts';
import type { OpenClaim } from '../../postgres/texts.ts';
import type { ClaimAnswer } from '../../store.ts';
import type { AttemptResult } from '../run/attempt.ts';
import type { Unit } from '../run/unit.ts';

/** A connection of the transaction hold. */
export interface Lane {
  readonly session: Session;
  /** The time limit of the worker's own statements; statements of a handler have none. */
  readonly answer: AnswerOptions;
  /** Whether the statements for every job are prepared. */
  readonly takesBatches: boolean;
  /**
   * Behind a pooler each transaction may have another server process, so that each has to repeat the settings of the
   * connection.
   */
  readonly isPooled: boolean;
  /** Whether its transactions are to be committed in two phases: see `BOTH`. */
  readonly spansNodes: boolean;
  /** The worker that the server has on record for its transactions. */
  worker?: number | undefined;
  /** True: the server has answered a statement of the worker itself. */
  hasAnswered?: boolean;
  /** The current unit of the lane. */
  unconfirmed?: UnconfirmedUnit | undefined;
}

/** The work that the next message of a lane commits before it begins another transaction. */
export type PendingCommit =
  /** No transaction is open. */
  | { readonly kind: 'closed' }
  /** A transaction is open, with nothing left to write. */
  | { readonly kind: 'open' }
  /** Its job is complete, and has no key and no result: only a receipt has to be written. */
  | { readonly kind: 'complete'; readonly claim: OpenClaim }
  /** Any other outcome of its unit. */
  | { readonly kind: 'outcome'; readonly sql: string };

export const CLOSED: PendingCommit = { kind: 'closed' };
export const OPEN: PendingCommit = { kind: 'open' };

/** A unit that a lane holds in its open transaction. */
export interface HeldUnit {
  readonly unit: Unit;
  /** The answer of its claim. */
  readonly answer: ClaimAnswer;
  readonly queue: number;
  readonly shard: number;
  readonly worker: number;
}

/** A unit whose outcome the server has not confirmed yet. */
export interface UnconfirmedUnit {
  readonly held: HeldUnit;
  /** When its handler began, by the monotonic clock; milliseconds. */
  readonly since: number;
  /** For how long the handler ran; undefined while it does. */
  ranMs: number | undefined;
  outcome: AttemptResult | undefined;
  /** True: its outcome was sent, and the server may have committed it. */
  isSent: boolean;
}
