import type { CaptureStore } from '../postgres/store.ts';
import type { SweepStore } from '../postgres/sweep.ts';
import type { Target } from '../postgres/target/target.ts';
import type { Destination } from './destination.ts';
import type { FailedEntity, Projector } from './projector.ts';
import type { Sweep } from './sweep.ts';

export interface ProjectionEvents {
  /** A batch was committed: the number of its entities, and how long the oldest change had waited. */
  readonly projected: { readonly keys: number; readonly lagMs: number };
  /** An entity could not be projected; it is tried again later, and the others go on. */
  readonly failed: FailedEntity;
  /** An error that no single entity causes, most likely of the database; the work is tried again. */
  readonly error: { readonly error: unknown };
}

/** What the worker needs once the capture is installed. @internal */
export interface ProjectionRuntime {
  readonly line: number;
  readonly capture: number;
  readonly target: Target;
  readonly destination: Destination;
  readonly store: CaptureStore;
  readonly sweeps: SweepStore;
  readonly sweep: Sweep;
  readonly projector: Projector;
  /** How many keys this process may lock at the same time. */
  readonly mostKeys: number;
}
