import { LockNotAvailable, NotFound } from '../../base/errors.ts';
import { faults } from '../../base/fault.ts';
import { bool, checkOptions, signal } from '../../base/options/options.ts';
import { moment, sleep, waitedFor } from '../../base/time/clock.ts';
import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { PostgresQueueRemoval } from '../postgres/operate/removal.ts';
import { PostgresQueueReader } from '../postgres/reader.ts';
import { PostgresQueueFlows } from '../postgres/watch/flows.ts';
import { releaseWorker } from './operations.ts';

export interface RemoveOptions {
  /**
   * Cancels the waiting jobs, and takes the running jobs from their workers. Default false: a queue that is in use is refused.
   */
  readonly force?: boolean | undefined;
  /** Ends the removal after the step that is under way. The finished steps stay. */
  readonly signal?: AbortSignal | undefined;
}

/** How many of each were removed. */
export interface RemovedQueue {
  readonly queue: string;
  readonly jobs: number;
  /** How many of the jobs were waiting; only with `force`. */
  readonly cancelled: number;
  /** Rows of the history. */
  readonly moves: number;
  readonly schedules: number;
  readonly subscriptions: number;
  readonly batches: number;
  /** Live workers that were released; only with `force`. */
  readonly workers: number;
}

/** Jobs of one step, which takes a few tens of milliseconds, so that no caller waits long for it. */
const STEP = 2000;
/** How long to repeat a step while open transactions hold all remaining jobs. */
const PATIENCE_MS = 5000;
const POLL_MS = 50;

const shape = { force: bool({ default: false }), signal };

/** Removes a queue: see {@link QueueAdmin.remove}. */
export async function removeQueue(
  engine: PostgresEngine,
  queue: string,
  options: RemoveOptions,
): Promise<RemovedQueue> {
  const { force, signal: abort } = checkOptions('remove', options, shape);
  const removal = new PostgresQueueRemoval(engine);
  const { queue: id, workers, batches } = await removal.begin(queue, force);
  if (force) await stopUse(engine, workers, batches);
  const total = { cancelled: 0, jobs: 0, moves: 0 };
  let moved = moment();
  for (;;) {
    abort?.throwIfAborted();
    const step = await removal.step(id, force, STEP);
    if (faults.armed) await faults.reach('queue.removed_some');
    total.cancelled += step.cancelled;
    total.jobs += step.jobs;
    total.moves += step.moves;
    if (step.cancelled + step.jobs + step.moves > 0) {
      moved = moment();
      continue;
    }
    const ended = await removal.end(id, force);
    if (ended !== null) return { queue, ...total, ...ended, workers: force ? workers.length : 0 };
    if (waitedFor(moved) > PATIENCE_MS) {
      throw new LockNotAvailable(
        `queue "${queue}" is not removed yet: open transactions hold jobs of it; it is paused, ${total.jobs} of its jobs are gone; stop its workers and call this again`,
      );
    }
    await sleep(POLL_MS, abort);
  }
}

/** Takes running jobs from their workers, and seals batches, so that no process waits for their callbacks for ever. */
async function stopUse(engine: PostgresEngine, workers: readonly string[], batches: readonly string[]): Promise<void> {
  const reader = new PostgresQueueReader(engine);
  const flows = new PostgresQueueFlows(engine);
  for (const worker of workers) await releaseWorker(reader, worker).catch(unlessGone);
  for (const batch of batches) await flows.seal(batch).catch(unlessGone);
}

function unlessGone(error: unknown): void {
  if (!(error instanceof NotFound)) throw error;
}
