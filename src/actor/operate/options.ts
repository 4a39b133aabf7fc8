import type { Duration } from '../../base/time/duration.ts';
import type { OpenTransaction } from '../../engine/postgres/index.ts';
import type { ActorSummary } from '../record.ts';
import type { ActorTarget } from '../target.ts';

export interface ListOptions {
  readonly type?: string | undefined;
  readonly state?: string | undefined;
  readonly status?: ActorSummary['status'] | undefined;
  readonly parent?: ActorTarget<never> | undefined;
  /** With `type`: actors whose fields have all of these values. Only fields that the type declares in `index`. */
  readonly where?: Readonly<Record<string, string | number | boolean>> | undefined;
  /** Include final actors. Default false, unless `status` is `'final'`. */
  readonly final?: boolean | undefined;
  /** Only actors with a smaller id than this: the last id of the previous page. */
  readonly before?: string | undefined;
  /** 1 to 10,000; default 100. */
  readonly limit?: number | undefined;
}

export interface HistoryOptions {
  /** Only rows with a smaller epoch than this: the oldest of the previous list. */
  readonly before?: number | undefined;
  /** 1 to 10,000; default 1000. */
  readonly limit?: number | undefined;
}

export interface PagesOptions {
  /** Include resolved pages. Default false. */
  readonly resolved?: boolean | undefined;
  /** Only pages about this actor. */
  readonly actor?: ActorTarget<never> | undefined;
  /** Only pages with a smaller id than this: the last id of the previous list. */
  readonly before?: string | undefined;
  /** 1 to 10,000; default 100. */
  readonly limit?: number | undefined;
}

/** An actor, a whole type, or one state of a type. */
export type PauseTarget =
  | ActorTarget<never>
  | { readonly type: string; readonly state?: string | undefined; readonly id?: never };

export interface WaitOptions {
  readonly state?: string | undefined;
  readonly status?: ActorSummary['status'] | undefined;
  /** Default `'30s'`. */
  readonly timeout?: Duration | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface TxOptions {
  /** Your own transaction, of any known library. Default: a transaction of its own. */
  readonly tx?: OpenTransaction | undefined;
}

/** Why an actor is moved. */
export interface MoveOptions {
  /** The reason, for the actor's history. 1 to 500 characters. */
  readonly reason: string;
}

export interface IncrOptions extends TxOptions {
  /** Default 1. */
  readonly n?: number | undefined;
}
