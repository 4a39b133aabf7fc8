/** One thing that is not as it should be, and the statements that mend it. */
export interface Difference {
  /** `trigger`, `function`, `line`… */
  readonly kind: string;
  /** What it is about: a table, a function, a role. */
  readonly object: string;
  readonly problem: string;
  /** Empty where only a person can help. */
  readonly sql: readonly string[];
}
