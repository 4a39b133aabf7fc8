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
  /** Calls back when something came for actors of these types, or when a page has to be delivered. */
  listen(types: readonly number[], handlers: NewsHandlers): Promise<HandoffSubscription>;
  /** Calls back with each actor that is handed over on this channel. */
  listenForHandoffs(channel: string, handlers: HandoffHandlers): Promise<HandoffSubscription>;
  readonly engine: {
    readonly isStopped: boolean;
    readonly options: { readonly logger: Logger };
    address(): Promise<string>;
    /** True of each ConnectionFailed, and of what else may succeed a moment later. */
    isTransient(error: unknown): boolean;
  };
}

/** The part of a worker that its keeper needs. */
export interface LeaseHolder extends Holder {
  readonly wantsNotify: boolean;
}

/** Gets the results of a rescue. */
export interface RescueListener {
  /** Actors of a lost worker can be claimed again. */
  rescued(): void;
  /** Actors of these types are due that have to run alone. */
  suspected(types: readonly number[]): void;
}

/** Keeps the leases of workers. */
export interface KeeperPort {
  readonly hasLease: boolean;
  readonly problem: string | undefined;
  /** @param watcher  the worker that is notified of the rescue's results; without it, the keeper only keeps the lease */
  add(worker: LeaseHolder, watcher?: RescueListener): void;
  remove(worker: LeaseHolder): Promise<void>;
}

/** Writes turns whose commit changes more than their own row. */
export interface TurnWriter {
  /**
   * Commits the turn and all its effects, in one transaction. @param idleMs  how long that transaction may be idle
   * @throws LeaseLost, RowLocked
   */
  commit(worker: number, result: TurnResult, idleMs: number): Promise<CommitAnswer>;
  /** Runs a body while its row is locked, in the transaction that commits its outcome. */
  hold(turn: AnyTurn, body: () => Promise<TurnResult>, timeoutMs: number): Promise<TurnResult>;
}

/** The parts that run turns in one process. */
export interface WorkPorts {
  readonly store: TurnStore;
  readonly keeper: KeeperPort;
  readonly writer: TurnWriter;
}
