import type { Events } from '../../base/events.ts';
import { DirectHandoff } from '../../base/handoff/direct-handoff.ts';
import type { Definition } from '../definition.ts';
import { PostgresQueueStore } from '../postgres/store.ts';
import type { JobHandoff, QueueIds, TakenPart } from '../store.ts';
import type { BatchHandler } from './batch/unit-batch.ts';
import { Keeper } from './keeper.ts';
import type { Tally } from './once/tally.ts';
import type { PortedStore, WorkerPorts } from './ports.ts';
import type { WorkerEvents } from './report.ts';
import type { Handler } from './run/attempt.ts';
import { WorkerGroup } from './worker-group.ts';

/** Work options with all defaults. */
export interface WorkerSettings {
  readonly concurrency: number;
  readonly hold: 'lease' | 'transaction';
  readonly leaseMs: number;
  readonly pollMs: number;
  /** How many jobs to prefetch: a number, or as many as the rate of the last 50 ms allows. */
  readonly prefetch: number | 'auto';
  /** The part of the work that the worker takes; undefined: all of it. */
  readonly takes?: TakenPart | undefined;
}

/** The parts of a worker. */
export interface WorkerParts<S = PostgresQueueStore | PortedStore> {
  readonly store: S;
  readonly definition: Definition;
  readonly registered: QueueIds;
  readonly handlers: ReadonlyMap<string, Handler>;
  /** The handlers of kinds with `batch`. */
  readonly batchHandlers: ReadonlyMap<string, BatchHandler>;
  readonly settings: WorkerSettings;
  readonly events: Events<WorkerEvents>;
  /** Counts the outcomes of its handlers. */
  readonly tally: Tally;
}

/** The parts that a worker with hold: 'lease' needs in addition to the statements of its store. */
export function portsOf({ store, registered, settings }: WorkerParts): WorkerPorts {
  const { leaseMs } = settings;
  return store instanceof PostgresQueueStore
    ? portsOnPostgres(store, registered.queue, leaseMs)
    : store.ports(registered.queue, leaseMs);
}

function portsOnPostgres(store: PostgresQueueStore, queue: number, leaseMs: number): WorkerPorts {
  return {
    keeper: Keeper.for(store, leaseMs),
    group: WorkerGroup.of(store, queue),
    handoff: ({ id, ...worker }) =>
      new DirectHandoff<JobHandoff>({
        name: 'queue',
        store: {
          offer: (offer) => store.offer(queue, offer),
          withdraw: (one) => store.withdraw(queue, one),
          listenForHandoffs: (channel, handlers) => store.listenForHandoffs(channel, handlers),
        },
        worker: id,
        ...worker,
      }),
  };
}
