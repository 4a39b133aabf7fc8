import { createInterface } from 'node:readline';

/** Which jobs to enqueue. The same arguments mean the same jobs on every side. */
export interface EnqueueArgs {
  readonly count: number;
  /** Jobs in one bulk call. */
  readonly batch: number;
  /** Bulk calls under way at the same time. */
  readonly connections: number;
  /** Jobs are spread over this many keys; none when left out. */
  readonly keys?: number;
  /** How many consecutive jobs have one key before the next key follows; 1 when left out. */
  readonly run?: number;
  /** Prefix of the key's name; `k` when left out. */
  readonly prefix?: string;
  /** Jobs are spread over this many groups, in turn; none when left out. */
  readonly groups?: number;
  readonly kind?: Kind;
  /** How far in the future the jobs are due. */
  readonly delayMs?: number;
}

/**
 * The handler of `noop` does nothing, `merge` merges all waiting jobs of its key, `slow` takes some time, `fail` always fails, and `hold`
 * runs until it is stopped. `doomed` fails in each of five attempts. Every hundredth job of `flaky` fails in its first attempt. `once` does
 * nothing, and its kind is unique: one outstanding job for each key. `save` merges the debounced jobs of its key.
 */
export type Kind = 'noop' | 'merge' | 'slow' | 'fail' | 'hold' | 'doomed' | 'flaky' | 'once' | 'save';

/** Jobs that are sent one at a time. The payload of each has the time just before its enqueue call. */
export interface SendArgs {
  readonly count: number;
  /** Shortest and longest pause after a job. Pauses vary, so that jobs do not fall into step with a poll. */
  readonly gapMs: readonly [number, number];
  /** Each job has its own key, with this prefix; no key when left out. */
  readonly prefix?: string;
}

/** Jobs in layers: each waits for two jobs of the layer before, or for all of them. */
export interface DagArgs {
  readonly layers: number;
  readonly width: number;
  readonly after: 'two' | 'all';
}

export interface DrainResult {
  /** From the start of the worker until the last job is settled in the database. */
  readonly ms: number;
  /** Handler calls. */
  readonly units: number;
}

/** Latencies (ms) of the two operations to compare, measured in turns. */
export interface Pairs {
  /** Acquire and release. */
  readonly pairs: number[];
  /** Two statements, each one durable write of one row. */
  readonly writes: number[];
}

/** A record of one hold. Times are from a clock that all processes of the machine share (ms). */
export interface HeldOnce {
  readonly token: string;
  readonly grantedAt: number;
  readonly releasedAt: number;
  /** The time of one statement that durably writes one row during the hold. */
  readonly writeMs: number;
}

/** All commands of a side. A side leaves out the commands that its library cannot carry out. */
export interface SideCommands {
  /** Connects to an empty database and installs the library there. Profiles are described in each side. */
  open(args: { url: string; profile: string }): Promise<void>;
  enqueue(args: EnqueueArgs): Promise<{ ms: number }>;
  /** Runs a worker until `count` jobs are handled and settled, then stops it. */
  drain(args: { count: number }): Promise<DrainResult>;
  /**
   * Runs a worker until `count` jobs have failed in all of their attempts and all is settled. If the backoff of a library cannot
   * be made short, it does not count.
   */
  exhaust(args: { count: number }): Promise<DrainResult>;
  /** Starts `workers` workers, by default one, which run until `close`. */
  work(args?: { workers?: number }): Promise<void>;
  /** The jobs and handler calls of the workers so far. */
  handled(): Promise<{ jobs: number; units: number }>;
  /** Resolves when nothing is left to run or to settle. `ms` is the time until then, without the count of complete jobs that follows. */
  settle(): Promise<{ complete: number; ms: number }>;
  send(args: SendArgs): Promise<void>;
  /** Enqueues jobs one at a time and waits for the result of each. Returns the latencies (ms) from the enqueue to the result. */
  runs(args: SendArgs): Promise<{ ms: number[] }>;
  /** Enqueues `count` jobs of one batch, which has a callback, and seals the batch. */
  members(args: { count: number }): Promise<void>;
  /** Enqueues a graph in one call. */
  dag(args: DagArgs): Promise<void>;
  /** `producers` enqueue jobs of this kind at the same time, each one after another; jobs of `save` have one key. Returns all latencies (ms). */
  saves(args: { count: number; producers: number; kind: Kind }): Promise<{ ms: number[] }>;
  /** Returns the pick-up latencies (ms) since the last call. */
  pickups(): Promise<{ ms: number[] }>;
  /** Latencies (ms) of `count` claims, one after another, of jobs that the queue has already. */
  claims(args: { count: number }): Promise<{ ms: number[] }>;
  /** In turns: takes and frees a lock without contention, and makes two writes. */
  pairs(args: { count: number }): Promise<Pairs>;
  /** Holds one lock `count` times, each time for a random time of `gapMs`, in turns with other sides that do the same. */
  turns(args: { name: string; count: number; gapMs: readonly [number, number] }): Promise<{ holds: HeldOnce[] }>;
  /** `waiters` take and free one lock again and again, at the same time. Grants after `fromMs` and before `ms` count. */
  rush(args: { name: string; waiters: number; fromMs: number; ms: number }): Promise<{ grants: number }>;
  /** Takes a lock and keeps it until `close`. */
  hold(args: { name: string }): Promise<void>;
  /** `waiters` wait for one lock until `leave`. */
  queue(args: { name: string; waiters: number }): Promise<void>;
  leave(): Promise<void>;
  /** The statements that this side has sent so far to take a lock. */
  looks(): Promise<{ count: number }>;
  /** Statements that the library has sent so far. */
  statements(): Promise<{ count: number }>;
  /** Holds `locks` locks for `intervals` heartbeats. Returns how many statements it sent in each interval. */
  heartbeats(args: { locks: number; leaseMs: number; intervals: number }): Promise<{ perInterval: number }>;
  /** Stops the worker and closes every connection. */
  close(): Promise<void>;
}

export type CommandName = keyof SideCommands;
export type Args<N extends CommandName> = Parameters<SideCommands[N]>[0];
export type Answer<N extends CommandName> = Awaited<ReturnType<SideCommands[N]>>;

/** Answers one JSON line for each JSON line on stdin, and exits when stdin ends. */
export function serve(side: Partial<SideCommands>): void {
  const commands = side as Record<string, ((args: unknown) => Promise<unknown>) | undefined>;
  const lines = createInterface({ input: process.stdin });
  lines.on('line', (line) => {
    const { id, name, args } = JSON.parse(line) as { id: number; name: string; args: unknown };
    answer(commands, name, args).then(
      (value) => reply({ id, value: value ?? null }),
      (error: unknown) => reply({ id, error: error instanceof Error ? (error.stack ?? error.message) : String(error) }),
    );
  });
  lines.on('close', () => process.exit(0));
}

async function answer(
  commands: Record<string, ((args: unknown) => Promise<unknown>) | undefined>,
  name: string,
  args: unknown,
): Promise<unknown> {
  const command = commands[name];
  if (command === undefined) throw new Error(`this side has no command "${name}"`);
  return command(args);
}

function reply(message: object): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}
