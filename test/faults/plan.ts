import type { Fault } from './fault.ts';

/** Everything that a schedule does, drawn only from its seed. */
export interface Plan {
  readonly seed: number;
  /** Its special features, in a few words. */
  readonly title: string;
  readonly faults: readonly Fault[];
  /** True: the schedule restarts its server, so it has one of its own. Else its database is on the shared server. */
  readonly hasOwnServer: boolean;
}

/** A rule that a history breaks. */
export interface Violation {
  readonly rule: string;
  /** The job, key or lock that the violation is about. */
  readonly about: string;
  /** Its events, in the order of time. */
  readonly story: readonly string[];
}
