import { type PostgresEngine, statement } from '../../../engine/postgres/index.ts';
import { alone } from '../runner.ts';

const BEGIN = statement('queue.remove_begin', 'select pawl.queue_remove_begin($1::text, $2::boolean) as answer');
const STEP = statement(
  'queue.remove_step',
  'select pawl.queue_remove_step($1::smallint, $2::boolean, $3::int) as answer',
);
const END = statement('queue.remove_end', 'select pawl.queue_remove_end($1::smallint, $2::boolean) as answer');

/** A queue to remove, and what is active in it. */
export interface RemovalBegun {
  readonly queue: number;
  readonly workers: readonly string[];
  readonly batches: readonly string[];
}

/** The result of one step. */
export interface RemovalStep {
  readonly cancelled: number;
  readonly jobs: number;
  readonly moves: number;
}

/** The result of the last step. */
export interface RemovalEnded {
  readonly schedules: number;
  readonly subscriptions: number;
  readonly batches: number;
}

/** The statements that remove a queue: see sql/queue/operate/remove.sql. Each is committed by itself. */
export class PostgresQueueRemoval {
  readonly #engine: PostgresEngine;

  constructor(engine: PostgresEngine) {
    this.#engine = engine;
  }

  /** @throws NotFound @throws Conflict  it is in use, and `force` is not given */
  async begin(queue: string, force: boolean): Promise<RemovalBegun> {
    return this.#one<RemovalBegun>(BEGIN, [queue, force]);
  }

  step(queue: number, force: boolean, limit: number): Promise<RemovalStep> {
    return this.#one<RemovalStep>(STEP, [queue, force, limit]);
  }

  /** @returns null: jobs are left @throws Conflict  jobs are left, and `force` is not given */
  end(queue: number, force: boolean): Promise<RemovalEnded | null> {
    return this.#one<RemovalEnded | null>(END, [queue, force]);
  }

  async #one<Answer>(sql: ReturnType<typeof statement>, values: unknown[]): Promise<Answer> {
    const [row] = await alone(this.#engine).query<{ answer: Answer }>(sql, values);
    if (row === undefined) throw new Error('the database returned no row where there is always one');
    return row.answer;
  }
}
