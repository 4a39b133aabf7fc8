import { instant, type PostgresEngine, statement } from '../engine/postgres/index.ts';

/** To the letter: numbers beyond 2^53 stay what they are. */
const PAYLOAD = statement(
  'http.payload',
  `
select j.payload::text as payload, coalesce(o.result, s.result)::text as result, o.progress::text as progress
from pawl.queue_job j left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
left join pawl.queue_output s on s.shard = o.shard and s.id = o.result_of
where j.shard = pawl.queue_find(null, $1::bigint) and j.id = $1::bigint`,
);

const ENQUEUE = statement(
  'http.enqueue',
  `select pawl.enqueue(($1::jsonb - 'queue') || jsonb_build_object('queue', $2::text)) as answer`,
);

const ENQUEUE_TRACED = statement(
  'http.enqueue_traced',
  `
with added as materialized (
  select pawl.enqueue(($1::jsonb - 'queue') || jsonb_build_object('queue', $2::text)) as answer
), trace as (
  insert into pawl.queue_trace (id, parent) select (a.answer ->> 'id')::bigint, $3::text from added a where not (a.answer ->> 'duplicate')::boolean
)
select a.answer from added a`,
);

const TRACE = statement('http.trace', 'select t.parent from pawl.queue_trace t where t.id = $1::bigint');

/** Jobs of the same key around one, and those that ran as one unit with it. */
const SIBLINGS = statement(
  'http.siblings',
  `
select j.id::text as id, j.kind, j.status, j.process_id::text as "processId", ${instant('j.enqueued_at')} as "enqueuedAt", ${instant('j.settled_at')} as "settledAt"
from pawl.queue_job me
cross join lateral (
  (select o.shard, o.id from pawl.queue_job o where o.shard = me.shard and o.queue = me.queue and o.key = me.key and o.id < me.id order by o.id desc limit 15)
  union all
  (select o.shard, o.id from pawl.queue_job o where o.shard = me.shard and o.queue = me.queue and o.key = me.key and o.id > me.id order by o.id limit 15)
) near
join pawl.job j on j.shard = near.shard and j.id = near.id
where me.shard = pawl.queue_find(null, $1::bigint) and me.id = $1::bigint
order by j.id`,
);

type Row = Record<string, unknown>;

/** Jobs, beside what the queues offer. */
export class JobStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
  }

  /** @throws NotFound */
  async payload(job: string): Promise<Record<'payload' | 'result' | 'progress', string | null> | undefined> {
    const [row] = await this.#reads.query<Record<'payload' | 'result' | 'progress', string | null>>(PAYLOAD, [job]);
    return row;
  }

  /** `request` is JSON, and is kept to the letter as far as jsonb does. @throws NotFound, InvalidInput */
  async enqueue(queue: string, request: string, trace: string | undefined): Promise<unknown> {
    const [row] =
      trace === undefined
        ? await this.#writes.query<{ answer: unknown }>(ENQUEUE, [request, queue])
        : await this.#writes.query<{ answer: unknown }>(ENQUEUE_TRACED, [request, queue, trace]);
    return row?.answer;
  }

  /** The trace that a job was enqueued in. */
  async trace(job: string): Promise<string | undefined> {
    const [row] = await this.#reads.query<{ parent: string }>(TRACE, [job]);
    return row?.parent;
  }

  siblings(job: string): Promise<Row[]> {
    return this.#reads.query(SIBLINGS, [job]);
  }
}
