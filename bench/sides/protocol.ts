import { createInterface } from 'node:readline';

/** Which jobs to enqueue; the same arguments mean the same jobs on every side. */
export interface EnqueueArgs {
  readonly count: number;
  /** Jobs in one bulk call. */
  readonly batch: number;
  /** Bulk calls under way at once. */
  readonly connections: number;
  /** Jobs are spread over this many keys; none when left out. */
  readonly keys?: number;
  /** Consecutive jobs given to one key before the next key's turn; 1 when left out. */
  readonly run?: number;
  /** Prefix of the key's name; `k` when left out. */
  readonly prefix?: string;
  /** Jobs are spread over this many groups, in turns; none when left out. */
  readonly groups?: number;
  readonly kind?: Kind;
  /** How far in the future the jobs are due. */
  readonly delayMs?: number;
}

/**
 * What the handler does: nothing, merge all waiting jobs of its key, take some time, always fail, run until stopped; fail in each of
 * five attempts (`doomed`); fail in the first attempt, every hundredth job (`flaky`); nothing, for a job of which one of its key is
 * outstanding (`once`); merge what a key has saved until it rests (`save`).
 */
export type Kind = 'noop' | 'merge' | 'slow' | 'fail' | 'hold' | 'doomed' | 'flaky' | 'once' | 'save';

/** Jobs sent one at a time, each carrying the moment just before its enqueue call. */
export interface SendArgs {
  readonly count: number;
  /** Shortest and longest pause after a job, so that jobs do not fall into step with a poll. */
  readonly gapMs: readonly [number, number];
  /** Each job has a key of its own, with this prefix; no key when left out. */
  readonly prefix?: string;
}

/** Jobs in layers: each comes after two of the layer before, or after all of them. */
export interface DagArgs {
  readonly layers: number;
  readonly width: number;
  readonly after: 'two' | 'all';
}

export interface DrainResult {
  /** From the worker being ready until the last job is settled in the database. */
  readonly ms: number;
  /** Handler calls. */
  readonly units: number;
}

/** Latencies (ms) of the two things that are compared, measured in turns. */
export interface Pairs {
  /** Acquire and release. */
  readonly pairs: number[];
  /** Two statements, each one durable write of one row. */
  readonly writes: number[];
}

/** One hold: what there is to say of it afterwards. Moments are of a clock that all processes of the machine share (ms). */
export interface HeldOnce {
  readonly token: string;
  readonly grantedAt: number;
  readonly releasedAt: number;
  /** One statement that durably writes one row, meanwhile. */
  readonly writeMs: number;
}

/** Everything a side can be told. A side leaves out what its library does not have. */
export interface SideCommands {
  /** Connects to an empty database and installs the library there. Profiles are described in each side. */
  open(args: { url: string; profile: string }): Promise<void>;
  enqueue(args: EnqueueArgs): Promise<{ ms: number }>;
  /** Runs a worker until `count` jobs are handled and settled, then stops it. */
  drain(args: { count: number }): Promise<DrainResult>;
  /**
   * Runs a worker until `count` jobs have failed in all of their attempts and that is settled. The time that a library rests
   * between two attempts does not count where it cannot be told to be short.
   */
  exhaust(args: { count: number }): Promise<DrainResult>;
  /** Starts a worker that stays, or as many as that. */
  work(args?: { workers?: number }): Promise<void>;
  /** Jobs handled by the worker so far. */
  handled(): Promise<{ jobs: number; units: number }>;
  /** Resolves when nothing is left to run or to settle, and says after how long: what it counts then is not in it. */
  settle(): Promise<{ complete: number; ms: number }>;
  send(args: SendArgs): Promise<void>;
  /** Enqueues jobs one at a time and waits for the result of each; gives the latencies (ms) of both together. */
  runs(args: SendArgs): Promise<{ ms: number[] }>;
  /** Enqueues that many jobs of one batch, with a callback, and seals it. */
  members(args: { count: number }): Promise<void>;
  /** Enqueues a graph in one call. */
  dag(args: DagArgs): Promise<void>;
  /** So many producers save one key one save after another, as jobs of this kind; gives the latencies (ms) of all. */
  saves(args: { count: number; producers: number; kind: Kind }): Promise<{ ms: number[] }>;
  /** Hands over the pick-up latencies (ms) gathered since the last call. */
  pickups(): Promise<{ ms: number[] }>;
  /** Latency (ms) of `count` claims, one after another, from the queue as it stands. */
  claims(args: { count: number }): Promise<{ ms: number[] }>;
  /** Takes and frees a lock without contention, and writes two rows, in turns. */
  pairs(args: { count: number }): Promise<Pairs>;
  /** Holds one lock this often, for the given time, in turns with the other sides that do the same. */
  turns(args: { name: string; count: number; gapMs: readonly [number, number] }): Promise<{ holds: HeldOnce[] }>;
  /** So many at once take and free one lock, over and over; those that are granted after `fromMs` and before `ms` count. */
  rush(args: { name: string; waiters: number; fromMs: number; ms: number }): Promise<{ grants: number }>;
  /** Takes a lock, and keeps it until the end. */
  hold(args: { name: string }): Promise<void>;
  /** So many wait for one lock until `leave`. */
  queue(args: { name: string; waiters: number }): Promise<void>;
  leave(): Promise<void>;
  /** Statements sent so far to take a lock. */
  looks(): Promise<{ count: number }>;
  /** Statements that the library has sent so far. */
  statements(): Promise<{ count: number }>;
  /** Holds so many locks for so many heartbeats; gives how many statements went out in each interval. */
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
