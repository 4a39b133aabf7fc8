import { type AnswerOptions, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import { alone, type Runner } from './runner.ts';

const SWEEP = statement('queue.sweep_cancels', 'select pawl.queue_sweep_cancels($1::smallint) as swept');
const INDEX = statement('queue.index', 'select pawl.queue_index($1::int) as answer');

/** For making jobs searchable: payloads may be large, and its delay costs nobody anything. */
const INDEX_MS = 300_000;

/** What one step of indexing came to. */
export interface Indexed {
  readonly chunks: number;
  /** There are ids that cannot be indexed before some open transaction has ended. */
  readonly waits: boolean;
  /** Nothing is ready to run. */
  readonly quiet: boolean;
}

/** The statements of what a keeper does now and then, beside the leases. */
export class PostgresQueueChores {
  readonly #engine: PostgresEngine;
  readonly #alone: Runner;

  constructor(engine: PostgresEngine, answer: AnswerOptions) {
    this.#engine = engine;
    this.#alone = alone(engine, answer);
  }

  /** Carries out wishes to cancel whose job is no longer where it was. One look at an empty table as a rule. */
  async sweepCancels(queue: number): Promise<void> {
    await this.#alone.query(SWEEP, [queue]);
  }

  /** Makes up to so many chunks of 256 jobs ready to be searched by words. */
  async index(chunks: number): Promise<Indexed> {
    const [row] = await this.#engine.query<{ answer: Indexed }>(INDEX, [chunks], { deadlineMs: INDEX_MS });
    if (row === undefined) throw new Error('the database answered no row where one always comes');
    return row.answer;
  }
}
