import type { Fault } from './fault.ts';

/** All that a schedule does, drawn from its seed alone. */
export interface Plan {
  readonly seed: number;
  /** What is peculiar to it, in a few words. */
  readonly title: string;
  readonly faults: readonly Fault[];
  /** Whether the server is restarted: it then has a server of its own, else a database on the one that all share. */
  readonly hasOwnServer: boolean;
}

/** A rule that a history breaks. */
export interface Violation {
  readonly rule: string;
  /** Which job, key or lock. */
  readonly about: string;
  /** What happened to it, in the order of time. */
  readonly story: readonly string[];
}
