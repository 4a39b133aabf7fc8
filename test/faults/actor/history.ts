import type { Complaint } from '../queue/history.ts';

/** The notes of a process about its turns. */
export type WorkerEvent =
  | {
      readonly do: 'begin';
      readonly actor: string;
      readonly epoch: number;
      readonly visit: number;
      readonly state: string;
    }
  | { readonly do: 'ending'; readonly actor: string; readonly epoch: number; readonly to: string }
  | { readonly do: 'once ran' | 'once kept'; readonly actor: string; readonly visit: number; readonly epoch: number };

/** The notes of a producer. Its own transactions with `raise` and `send` leave a row that shows their outcome. */
export type ProducerEvent =
  | { readonly do: 'ask'; readonly operation: number }
  | { readonly do: 'told'; readonly operation: number; readonly id: string }
  | { readonly do: 'done' };

/** A turn that began, as its process noted. */
export interface Begun {
  readonly actor: string;
  readonly epoch: number;
  readonly state: string;
}

/** The outcome of a turn, as its process noted it before the commit. */
export interface Ending {
  readonly actor: string;
  readonly epoch: number;
  readonly to: string;
}

/** A side effect of `once`: a turn ran it, or saw that its result was kept. */
export interface Once {
  readonly actor: string;
  readonly visit: number;
  readonly epoch: number;
  readonly how: 'ran' | 'kept';
}

export interface Instance {
  readonly id: string;
  readonly type: string;
  readonly state: string;
  readonly parent: string | null;
  readonly epoch: number;
  readonly isFinal: boolean;
  readonly result: unknown;
  /** The number of items, by its fields. */
  readonly items: number;
}

export interface Move {
  readonly actor: string;
  readonly epoch: number;
  readonly from: string | null;
  readonly to: string;
  readonly reason: string;
  readonly committedAt: number;
}

/** A row of a turn, written with its commit or under its guard. */
export interface Effect {
  readonly actor: string;
  readonly epoch: number;
  readonly state: string;
  readonly kind: 'effect' | 'message' | 'guarded';
  readonly n: number;
  readonly committedAt: number;
}

/** A raise or a message: sent certainly, or perhaps. */
export interface ActorRequest {
  readonly actor: string;
  readonly what: 'raise' | 'send';
  /** The number of a message. */
  readonly n: number;
  readonly isCertain: boolean;
}

/** The data of the checker, read when all work has ended. */
export interface ActorHistory {
  readonly begun: readonly Begun[];
  readonly endings: readonly Ending[];
  readonly onces: readonly Once[];
  readonly instances: readonly Instance[];
  readonly moves: readonly Move[];
  readonly effects: readonly Effect[];
  readonly asked: readonly ActorRequest[];
  /** Orders whose answer arrived, or that left a row. */
  readonly orders: readonly string[];
  readonly complaints: readonly Complaint[];
}
