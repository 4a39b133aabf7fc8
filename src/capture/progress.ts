/** How far going through all entities has come. */
export interface Progress {
  readonly phase: 'root' | 'target' | 'done';
  readonly done: number;
  /** An estimate. */
  readonly total: number;
}
