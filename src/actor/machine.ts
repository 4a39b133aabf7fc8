/** A declared machine as plain data, in the form that the database keeps. */
export interface Machine {
  readonly initial: string;
  /** Semaphores, and the state to which each leads from any other. */
  readonly always: Readonly<Record<string, string>>;
  readonly states: Readonly<Record<string, MachineState>>;
}

export interface MachineState {
  readonly to: readonly string[];
  readonly everyMs?: number | undefined;
  readonly timeoutMs?: number | undefined;
  readonly deadlineMs?: number | undefined;
  readonly hold?: 'transaction' | undefined;
  /** The number of failed turns in a row after which the actor moves to `giveUp`. */
  readonly tries?: number | undefined;
  readonly giveUp?: string | undefined;
  /** The end of each child wakes the actor, and not only the end of the last one. */
  readonly children?: 'each' | undefined;
}
