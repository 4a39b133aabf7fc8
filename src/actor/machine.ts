/** A declared machine as plain data, as the database keeps it. */
export interface Machine {
  readonly initial: string;
  /** Semaphores, and the state each leads to from any other. */
  readonly always: Readonly<Record<string, string>>;
  readonly states: Readonly<Record<string, MachineState>>;
}

export interface MachineState {
  readonly to: readonly string[];
  readonly everyMs?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly deadlineMs?: number | undefined;
  readonly hold?: 'transaction' | undefined;
  /** Turns that fail in a row before it is left for `giveUp`. */
  readonly tries?: number | undefined;
  readonly giveUp?: string | undefined;
  /** The end of each child wakes it, and not of the last alone. */
  readonly children?: 'each' | undefined;
}
