import type { AnswerOptions, Session } from '../../../engine/postgres/index.ts';
import type { OpenClaim } from '../../postgres/texts.ts';
import type { ClaimAnswer } from '../../store.ts';
import type { Outcome } from '../attempt.ts';
import type { Unit } from '../unit.ts';

/** A connection of the transaction hold. */
export interface Lane {
  readonly session: Session;
  /** For what the worker sends itself; a handler's own statements may take as long as they like. */
  readonly answer: AnswerOptions;
  /** Whether what is sent for every job is prepared. */
  readonly takesBatches: boolean;
  /** Each of its transactions may be served by another process, so that each says what else the connection has said once. */
  readonly isPooled: boolean;
  /** Whose its transactions are, as far as the server knows. */
  worker?: number | undefined;
  /** The server has answered something that the worker itself asked for. */
  hasAnswered?: boolean;
  /** The unit that it has. */
  unconfirmed?: UnconfirmedUnit | undefined;
}

/** What the next message of a lane has to commit before it begins another transaction. */
export type PendingCommit =
  /** No transaction is open. */
  | { readonly kind: 'closed' }
  /** One is open, and has nothing more to say. */
  | { readonly kind: 'open' }
  /** Its job has completed, and has no key and no result: a receipt is all there is to write. */
  | { readonly kind: 'complete'; readonly claim: OpenClaim }
  /** Any other outcome of its unit. */
  | { readonly kind: 'outcome'; readonly sql: string };

export const CLOSED: PendingCommit = { kind: 'closed' };
export const OPEN: PendingCommit = { kind: 'open' };

/** A unit that a lane holds in its open transaction. */
export interface HeldUnit {
  readonly unit: Unit;
  /** With which it was claimed. */
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
  outcome: Outcome | undefined;
  /** It is on its way to the server, which may have committed it. */
  isSent: boolean;
}
