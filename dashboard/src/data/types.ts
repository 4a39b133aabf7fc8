import type { JobTransition } from './types.gen.ts';

/** What the API answers: see scripts/dashboard-types.mjs. */
export type * from './types.gen.ts';

/** A part of a list, and where the next one begins. */
export interface List<T> {
  readonly items: readonly T[];
  readonly after: string | null;
}

/** A move of a job, or of an actor. */
export interface Move extends Pick<JobTransition, 'at' | 'attempt' | 'reason' | 'error'> {
  readonly from: string | null;
  readonly to: string;
  readonly worker?: string | null;
}
