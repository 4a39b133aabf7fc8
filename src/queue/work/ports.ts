import type { HandoffPort, HandoffSubscription, Offer } from '../../base/handoff/handoff.ts';
import type { Logger } from '../../base/logger.ts';
import type { ConditionCheckItem } from '../../engine/dynamodb/index.ts';
import type { JobHandoff, QueueStore } from '../store.ts';
import type { LeaseHolder } from './keeper.ts';
import type { GroupMember } from './worker-group.ts';

/** Keeps the lease of a worker. */
export interface KeeperPort {
  readonly hasLease: boolean;
  readonly problem: string | undefined;
  add(worker: LeaseHolder): Promise<void>;
  remove(worker: LeaseHolder): Promise<void>;
  beatNow(): Promise<void>;
  /** Called when a job was enqueued that comes after others. */
  look(): void;
}

/** Wakes the workers of a queue in this process. */
export interface GroupPort {
  join(member: GroupMember): Promise<HandoffSubscription>;
  leave(member: GroupMember): Promise<void>;
  notePolled(member: GroupMember, isMore: boolean): void;
}

/** The parts that a worker needs in addition to the statements of its store. */
export interface WorkerPorts {
  readonly keeper: KeeperPort;
  readonly group: GroupPort;
  /** Milliseconds of work to claim ahead; undefined: as on Postgres. */
  readonly aheadMs?: number | undefined;
  handoff(worker: {
    readonly id: () => number | undefined;
    readonly isFree: () => boolean;
    readonly isAsleep: () => boolean;
    readonly onHandoff: (job: JobHandoff) => void;
    readonly onError: (error: unknown) => void;
  }): HandoffPort;
}

/** The statements of a worker with hold: 'lease'. */
export type LeaseStatements = Pick<
  QueueStore,
  | 'claim'
  | 'settle'
  | 'progress'
  | 'parents'
  | 'guard'
  | 'wake'
  | 'addWorker'
  | 'setWants'
  | 'recall'
  | 'leave'
  | 'removeWorker'
>;

/** A store on another engine than Postgres: it has its own ports. */
export interface PortedStore extends LeaseStatements {
  readonly engine: {
    readonly isStopped: boolean;
    readonly options: { readonly logger: Logger };
    address(): Promise<string>;
  };
  within(deadlineMs: number): PortedStore;
  ports(queue: number, leaseMs: number): WorkerPorts;
  guardItems(claim: number): readonly ConditionCheckItem[];
}

/** No hand-off: producers cannot notify a worker. */
export const NO_HANDOFF: HandoffPort = {
  start: () => {},
  nextOffer: (): Offer | undefined => undefined,
  cancelOffer: () => {},
  offerSoon: () => {},
  withdraw: () => {},
  isOverdue: () => false,
  recall: async (ask) => {
    await ask();
    return true;
  },
  noteNotification: () => {},
  reset: () => {},
  close: () => false,
  stop: () => Promise.resolve(),
};
