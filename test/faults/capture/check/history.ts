export type WriterEvent = { readonly do: 'work'; readonly nth: number } | { readonly do: 'done' };

/** A row of a projection that differs from the tables. */
export interface Difference {
  readonly table: string;
  readonly key: string;
  readonly wanted: string | null;
  readonly found: string | null;
}

/** A recorded change of one row. */
export interface ChangeRow {
  readonly source: string;
  readonly op: string;
  readonly key: string | null;
}

/** A change with its number in the log. */
export interface LogRow extends ChangeRow {
  readonly change: number;
}

export interface CaptureHistory {
  readonly rows: number;
  readonly differences: readonly Difference[];
  /** The changes that an independent trigger recorded. */
  readonly audit: readonly ChangeRow[];
  /** The changes in the log. */
  readonly log: readonly LogRow[];
  /** The changes that the follower got, in this order. */
  readonly journal: readonly LogRow[];
  /** The result of `verify()` at the end. */
  readonly wrong: readonly string[];
  readonly complaints: readonly Complaint[];
}

export interface Complaint {
  readonly rule: string;
  readonly about: string;
  readonly story: readonly string[];
}
