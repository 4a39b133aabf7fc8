import { onTestFinished } from 'vitest';
import type { StandardSchemaV1 } from '../../../src/base/options/schema.ts';
import { currentTask } from '../../../src/base/work/current-task.ts';
import type { OpenTransaction } from '../../../src/engine/postgres/index.ts';
import type { Handlers, Kinds, Queue, QueueOptions, Worker, WorkOptions } from '../../../src/queue/index.ts';

/** The facts about a job that the contract checks. */
export interface JobView {
  readonly status: string;
  /** The reason of each transition other than enqueue, claim and complete, oldest first. */
  readonly reasons: readonly string[];
  readonly error: string | null;
  readonly result: unknown;
  readonly progress: unknown;
}

/** What a queue can do on every engine. */
export type AnyQueue<K extends Kinds> = Pick<
  Queue<K>,
  | 'name'
  | 'register'
  | 'enqueue'
  | 'enqueueMany'
  | 'flow'
  | 'batch'
  | 'openBatch'
  | 'work'
  | 'stats'
  | 'pause'
  | 'resume'
  | 'get'
  | 'history'
  | 'explain'
  | 'cancel'
  | 'update'
  | 'retry'
  | 'drain'
>;

/** What an engine does not have. */
export interface Lacks {
  /** Transactions of the caller that stay open: `tx`, `guard(tx)`. */
  readonly transactions?: boolean;
  /** Kinds that come after others. */
  readonly after?: boolean;
  /** Claims that take the jobs of a key in the same step: a unit may leave what was enqueued after its claim to the next one. */
  readonly oneStepClaims?: boolean;
}

/** An engine with queues on it, for one test. */
export interface Fixture {
  readonly hold: 'lease' | 'transaction';
  /** A queue of this test only. A second call with the same name declares the same queue again. */
  queue<const K extends Kinds>(options: QueueOptions<K>, name?: string): AnyQueue<K>;
  /** How another queue of the engine names a job of this one. */
  named(queue: { readonly name: string }, id: string): string;
  job(id: string): Promise<JobView>;
  /** A transaction of the engine's own. */
  transaction<T>(fn: (tx: OpenTransaction) => Promise<T>): Promise<T>;
}

/** Retries at once, so that no test waits for one. */
export const AT_ONCE = { attempts: 3, backoff: { kind: 'fixed', min: 1 } } as const;

/**
 * Handlers at once where a test says nothing else. With `hold: 'transaction'` each is a connection that ends with its worker, and takes
 * the server ten milliseconds and more: the ten of the default were half of what such a test cost.
 */
export const FEW = { concurrency: 3 } as const;

/** Starts a worker that is stopped at the end of the test. */
export async function start<K extends Kinds>(
  { hold }: Fixture,
  queue: AnyQueue<K>,
  handlers: Handlers<K>,
  options: WorkOptions = {},
): Promise<Worker> {
  const worker = queue.work(handlers, { hold, poll: '200ms', ...FEW, ...options });
  onTestFinished(() => worker.stop({ timeout: '100ms' }));
  await worker.started;
  return worker;
}

/** As in a process with locks on Postgres: calls of a handler behind an `await` are recognised as its own. */
export function seeBehindAwaits(isSeen: boolean): void {
  const was = currentTask.isTracked;
  currentTask.isTracked = isSeen;
  onTestFinished(() => {
    currentTask.isTracked = was;
  });
}

/** A promise and how to settle it; what a handler waits for. */
export interface Gate {
  readonly opened: Promise<void>;
  open(): void;
}

export function gate(): Gate {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

/** A Standard Schema for objects with a whole number `n`, which it doubles. */
export const DOUBLING: StandardSchemaV1<{ n: number }> = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: (value) =>
      typeof value === 'object' && value !== null && 'n' in value && Number.isInteger(value.n)
        ? { value: { n: Number(value.n) * 2 } }
        : { issues: [{ message: 'must be a whole number', path: ['n'] }] },
  },
};
