import { type AnswerOptions, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { EndedJob } from '../lost-jobs.ts';
import { alone, type Runner } from './runner.ts';

const SWEEP = statement('queue.sweep_cancels', 'select pawl.queue_sweep_cancels($1::smallint) as swept');
const LEND_UNTOLD = statement('queue.lend_untold', 'select pawl.queue_lend_untold($1::smallint) as ended');
const END_UNTOLD = statement(
  'queue.end_untold',
  'select pawl.queue_end_untold($1::smallint, $2::bigint[], $3::timestamptz)',
);
const SWEEP_WATCHES = statement('queue.sweep_watches', 'select pawl.queue_sweep_watches() as swept');
const LOOK = statement('queue.look', 'select pawl.queue_look(1000) as rest');
const INDEX = statement('queue.index', 'select pawl.queue_index($1::int) as answer');

/** For indexing jobs: payloads may be large, and a delay does no harm. */
const INDEX_MS = 300_000;

/** The result of one step of indexing. */
export interface IndexStep {
  readonly chunks: number;
  /** True: some ids cannot be indexed before an open transaction has ended. */
  readonly waits: boolean;
  /** True: no job is ready to run. */
  readonly quiet: boolean;
}

/** Statements for the occasional chores of a keeper, in addition to the leases. */
export class PostgresQueueChores {
  readonly #engine: PostgresEngine;
  readonly #alone: Runner;

  constructor(engine: PostgresEngine, answer: AnswerOptions) {
    this.#engine = engine;
    this.#alone = alone(engine, answer);
  }

  /** Carries out cancellations whose job has moved since. Usually it reads an empty table. */
  async sweepCancels(queue: number): Promise<void> {
    await this.#alone.query(SWEEP, [queue]);
  }

  /**
   * Reports the ends of jobs that waited, until none is left. Usually it reads an empty table. If the process dies in between, or
   * an answer is lost, another worker reports them once more.
   */
  async tellEnds(queue: number, tell: (jobs: readonly EndedJob[]) => void): Promise<void> {
    for (;;) {
      const [row] = await this.#alone.query<{ ended: { jobs: EndedJob[]; takenAt: string } | null }>(LEND_UNTOLD, [
        queue,
      ]);
      const ended = row?.ended ?? null;
      if (ended === null) return;
      tell(ended.jobs);
      await this.#alone.query(END_UNTOLD, [queue, ended.jobs.map(({ id }) => id), ended.takenAt]);
    }
  }

  /** Finds ends of jobs that new watches may have missed. @returns milliseconds until the next poll */
  async look(): Promise<number> {
    const [row] = await this.#alone.query<{ rest: number | null }>(LOOK, []);
    return row?.rest ?? Infinity;
  }

  /** Removes the rows of processes that died while they waited for jobs. Usually it reads an empty table. */
  async sweepWatches(): Promise<void> {
    await this.#alone.query(SWEEP_WATCHES);
  }

  /** Indexes up to this many chunks of 256 jobs for the search by words. */
  async index(chunks: number): Promise<IndexStep> {
    const [row] = await this.#engine.query<{ answer: IndexStep }>(INDEX, [chunks], { deadlineMs: INDEX_MS });
    if (row === undefined) throw new Error('the database returned no row where there is always one');
    return row.answer;
  }
}
