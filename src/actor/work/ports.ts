import type { HandoffSubscription } from '../../base/handoff/handoff.ts';
import type { Logger } from '../../base/logger.ts';
import type { LeaseHolder as Holder } from '../../base/work/lease-keeper.ts';
import type { HandoffHandlers, NewsHandlers } from '../postgres/listening.ts';
import type { PostgresActorStore } from '../postgres/store.ts';
import type { CommitAnswer } from '../store.ts';
import type { AnyTurn, TurnResult } from './run/turn-result.ts';

/** The statements of turns and workers, on any engine. */
export interface TurnStore
  extends Pick<
    PostgresActorStore,
    | 'allocate'
    | 'recall'
    | 'remember'
    | 'messages'
    | 'children'
    | 'guard'
    | 'claim'
    | 'claimAlone'
    | 'claimOne'
    | 'commitAndOffer'
    | 'reportUnknown'
    | 'addWorker'
    | 'setWants'
    | 'endWorker'
    | 'recallClaims'
    | 'leave'
    | 'wake'
    | 'raised'
    | 'offer'
    | 'withdraw'
  > {
  /** Calls back when something came for actors of these types, or there is a page to deliver. */
  listen(types: readonly number[], handlers: NewsHandlers): Promise<HandoffSubscription>;
  /** Calls back with each actor that is handed over by way of this channel. */
  listenForHandoffs(channel: string, handlers: HandoffHandlers): Promise<HandoffSubscription>;
  readonly engine: {
    readonly isStopped: boolean;
    readonly options: { readonly logger: Logger };
    address(): Promise<string>;
    isTransient(error: unknown): boolean;
  };
}

/** A worker, as its keeper sees it. */
export interface LeaseHolder extends Holder {
  readonly wantsNotify: boolean;
}

/** Learns what a rescue has found. */
export interface RescueListener {
  /** Actors of a lost worker are free again. */
  rescued(): void;
  /** Of these types an actor is due that is to be run alone. */
  suspected(types: readonly number[]): void;
}

/** Keeps the leases of workers. */
export interface KeeperPort {
  readonly hasLease: boolean;
  readonly problem: string | undefined;
  /** @param watcher  looks after others, too, and is told what that found; without it a worker only keeps its lease */
  add(worker: LeaseHolder, watcher?: RescueListener): void;
  remove(worker: LeaseHolder): Promise<void>;
}

/** How turns are written that do more than move their own row. */
export interface TurnWriter {
  /**
   * The turn and everything it asked for, in one transaction. @param idleMs  how long that may stand still
   * @throws LeaseLost, RowLocked
   */
  commit(worker: number, result: TurnResult, idleMs: number): Promise<CommitAnswer>;
  /** Runs a body while its row is locked, in the transaction that commits its outcome. */
  hold(turn: AnyTurn, body: () => Promise<TurnResult>, timeoutMs: number): Promise<TurnResult>;
}

/** What runs turns in one process. */
export interface WorkPorts {
  readonly store: TurnStore;
  readonly keeper: KeeperPort;
  readonly writer: TurnWriter;
}
