import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const DELETE_SCHEDULE = statement(
  'queue.delete_schedule',
  'delete from pawl.queue_schedule where queue = pawl.queue_id($1::text) and name = $2::text returning name',
);

const RUN_SCHEDULE = statement(
  'queue.run_schedule',
  `
select pawl.enqueue(pg_catalog.jsonb_build_object('queue', q.name, 'kind', k.name, 'payload', s.payload::jsonb, 'priority', s.priority)
  || case when s.key is null then '{}' else pg_catalog.jsonb_build_object('key', s.key) end) as answer
from pawl.queue_schedule s
join pawl.queue_definition q on q.id = s.queue
join pawl.queue_kind k on k.id = s.kind
where q.name = $1 and s.name = $2`,
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
