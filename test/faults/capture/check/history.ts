export type WriterEvent = { readonly do: 'work'; readonly nth: number } | { readonly do: 'done' };

/** A row of a projection that is not what the tables say. */
export interface Difference {
  readonly table: string;
  readonly key: string;
  readonly wanted: string | null;
  readonly found: string | null;
}

/** A single change of a table, as it was noted. */
export interface ChangeRow {
  readonly source: string;
  readonly op: string;
  readonly key: string | null;
}

/** With its number in the log. */
export interface LogRow extends ChangeRow {
  readonly change: number;
}

export interface CaptureHistory {
  readonly rows: number;
  readonly differences: readonly Difference[];
  /** As a trigger saw them that has nothing to do with Pawl. */
  readonly audit: readonly ChangeRow[];
  /** As they stand in the log. */
  readonly log: readonly LogRow[];
  /** As the follower was given them, in this order. */
  readonly journal: readonly LogRow[];
  /** What `verify()` says in the end. */
  readonly wrong: readonly string[];
  readonly complaints: readonly Complaint[];
}

export interface Complaint {
  readonly rule: string;
  readonly about: string;
  readonly story: readonly string[];
}
