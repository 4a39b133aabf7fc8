import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const DELETE_SCHEDULE = statement(
  'queue.delete_schedule',
  'delete from pawl.queue_schedule where queue = pawl.queue_id($1::text) and name = $2::text returning name',
);

const RUN_SCHEDULE = statement(
  'queue.run_schedule',
  'select pawl.queue_schedule_enqueue(pawl.queue_id($1::text), $2::text, clock_timestamp()) as answer',
);

/** What an operator does to schedules by hand, through the HTTP API. */
export class ScheduleChanges {
  readonly #writes: PostgresEngine;

  constructor(writes: PostgresEngine) {
    this.#writes = writes;
  }

  /** @returns whether there was one @throws NotFound  no such queue */
  async delete(queue: string, name: string): Promise<boolean> {
    return (await this.#writes.query(DELETE_SCHEDULE, [queue, name])).length > 0;
  }

  /** Enqueues now what the schedule enqueues. @returns undefined when there is no such schedule */
  async run(queue: string, name: string): Promise<unknown> {
    const [row] = await this.#writes.query<{ answer: unknown }>(RUN_SCHEDULE, [queue, name]);
    return row?.answer;
  }
}
