import type { Events } from '../../base/events.ts';
import type { ActorDefinition } from '../definition.ts';
import type { TurnOwner } from '../turn/turn-requests.ts';
import type { WorkPorts } from './ports.ts';
import type { DispatcherEvents } from './report.ts';

/** The parts of a worker. */
export interface WorkerParts extends WorkPorts {
  readonly owner: TurnOwner;
  /** The definitions that the worker runs, by their id. */
  readonly types: ReadonlyMap<number, ActorDefinition>;
  readonly events: Events<DispatcherEvents>;
  readonly settings: WorkerSettings;
}

export interface WorkerSettings {
  /** The number of bodies that run at the same time. */
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly pollMs: number;
}
