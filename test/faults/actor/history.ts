import type { Complaint } from '../queue/history.ts';

/** What a process notes of its turns. */
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

/** What a producer notes. `raise` and `send` in a transaction of its own leave a row there, which says their outcome. */
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

/** What a turn was to come to, as its process noted before it gave that back. */
export interface Ending {
  readonly actor: string;
  readonly epoch: number;
  readonly to: string;
}

/** A side effect that was to be kept: a turn ran it, or has seen that it is kept. */
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
  /** What its fields say: how many items it was to have. */
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

/** A row that a turn wrote, with its commit or under its guard. */
export interface Effect {
  readonly actor: string;
  readonly epoch: number;
  readonly state: string;
  readonly kind: 'effect' | 'message' | 'guarded';
  readonly n: number;
  readonly committedAt: number;
}

/** What was raised or sent: certainly, or perhaps. */
export interface ActorRequest {
  readonly actor: string;
  readonly what: 'raise' | 'send';
  /** Of a message. */
  readonly n: number;
  readonly isCertain: boolean;
}

/** All that the checker looks at, read when nothing moves any more. */
export interface ActorHistory {
  readonly begun: readonly Begun[];
  readonly endings: readonly Ending[];
  readonly onces: readonly Once[];
  readonly instances: readonly Instance[];
  readonly moves: readonly Move[];
  readonly effects: readonly Effect[];
  readonly asked: readonly ActorRequest[];
  /** Orders whose answer arrived, or that left their row. */
  readonly orders: readonly string[];
  readonly complaints: readonly Complaint[];
}
