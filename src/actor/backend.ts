import type { PostgresActorOperator } from './postgres/operator.ts';
import type { PostgresActorReader } from './postgres/reader.ts';
import type { PostgresActorStore } from './postgres/store.ts';
import type { TurnStore, WorkPorts } from './work/ports.ts';

/** What producers and operators ask. */
type CallerStore = Pick<PostgresActorStore, 'register' | 'create' | 'incr' | 'send' | 'openPage' | 'resolvePage'>;

/** What ends a subscription. */
export interface EndsListening {
  stop(): Promise<void>;
}

/** Actors, as one engine has them. */
export interface ActorBackend {
  readonly store: TurnStore & CallerStore;
  readonly reader: Pick<PostgresActorReader, Exclude<keyof PostgresActorReader, 'engine'>>;
  readonly operator: Pick<PostgresActorOperator, Exclude<keyof PostgresActorOperator, 'listen'>> & {
    /** Calls back with each question that is answered; `onReconnect`: any of them may have been. */
    listen(channel: string, handler: (message: string) => void, onReconnect: () => void): Promise<EndsListening>;
  };
  /** Delivers notifications of pages. */
  readonly notices: Pick<PostgresActorReader, 'takeNotices' | 'noteDelivery'>;
  /** That bodies with hold: 'transaction' share. */
  readonly connections: number;
  /** Those of a dispatcher. */
  ports(leaseMs: number): WorkPorts;
  /** Those of turns by hand. */
  byHand(leaseMs: number): WorkPorts;
}
