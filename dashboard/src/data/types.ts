import type { JobTransition } from './types.gen.ts';

/** The types of the API's answers: see scripts/dashboard-types.mjs. */
export type * from './types.gen.ts';

/** One page of a list, and the cursor of the next page. */
export interface List<T> {
  readonly items: readonly T[];
  readonly after: string | null;
}

/** A transition of a job or of an actor. */
export interface Move extends Pick<JobTransition, 'at' | 'attempt' | 'reason' | 'error'> {
  readonly from: string | null;
  readonly to: string;
  readonly worker?: string | null;
}
