import type { PostgresActorOperator } from './postgres/operator.ts';
import type { PostgresActorReader } from './postgres/reader.ts';
import type { PostgresActorStore } from './postgres/store.ts';
import type { TurnStore, WorkPorts } from './work/ports.ts';

/** The statements of producers and operators. */
type CallerStore = Pick<PostgresActorStore, 'register' | 'create' | 'incr' | 'send' | 'openPage' | 'resolvePage'>;

/** Ends a subscription. */
export interface EndsListening {
  stop(): Promise<void>;
}

/** The parts of actors that differ between engines. */
export interface ActorBackend {
  readonly store: TurnStore & CallerStore;
  readonly reader: Pick<PostgresActorReader, Exclude<keyof PostgresActorReader, 'engine'>>;
  readonly operator: Pick<PostgresActorOperator, Exclude<keyof PostgresActorOperator, 'listen'>> & {
    /** Calls back with each question that is answered; `onReconnect`: any question may have been answered. */
    listen(channel: string, handler: (message: string) => void, onReconnect: () => void): Promise<EndsListening>;
  };
  /** Delivers notifications of pages. */
  readonly notices: Pick<PostgresActorReader, 'takeNotices' | 'noteDelivery'>;
  /** The number of connections that bodies with hold: 'transaction' share. */
  readonly connections: number;
  /** The ports of a dispatcher. */
  ports(leaseMs: number): WorkPorts;
  /** The ports of turns by hand. */
  byHand(leaseMs: number): WorkPorts;
}
