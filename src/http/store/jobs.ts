import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { JobStatus } from '../../queue/index.ts';
import type { Once } from '../protocol/idempotency.ts';

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
  'select pawl.http_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::jsonb, $6::text) as answer',
);

const RERUN = statement(
  'http.rerun',
  'select pawl.http_rerun($1::text, $2::text, $3::text, $4::bigint, $5::jsonb, $6::text) as answer',
);

/** Of which job this one is a new run, and which are new runs of it. */
const RERUNS = statement(
  'http.reruns',
  `
select (select r.of::text from pawl.http_rerun r where r.job = $1::bigint) as "retriedFrom",
  (select coalesce(pg_catalog.json_agg(x.job), '[]') from (
    select r.job::text as job from pawl.http_rerun r where r.of = $1::bigint order by r.job desc limit 50) x) as "retriedAs"`,
);

/** How some jobs stand: a few index probes each. */
const STANDING = statement(
  'http.standing',
  `
select u.id::text as id, x.status, x.attempt::int as attempt, ${instant('x.progress_at')} as "progressAt"
from pg_catalog.unnest($1::bigint[]) u (id) cross join lateral (
  select l.status, l.attempt, (select o.progress_at from pawl.queue_output o where o.shard = j.shard and o.id = j.id) as progress_at
  from pawl.queue_job j cross join lateral pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key) l
  where j.shard = (select pawl.queue_shard_of(u.id)) and j.id = u.id offset 0) x`,
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

/** Where a job is. */
export interface JobStanding {
  readonly id: string;
  readonly status: JobStatus;
  readonly attempt: number;
  readonly progressAt: Date | null;
}

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

  /**
   * Adds a job, or a list of jobs. `raw` is the body as it came, whose payloads are kept to the letter as far as jsonb does; `jobs` is
   * what else is said of them. @throws NotFound, InvalidInput @throws Conflict  the key was used for something else
   */
  async enqueue({ who, key, digest }: Once, raw: string, jobs: string, trace: string | undefined): Promise<unknown> {
    const values = [who, key, digest, raw, jobs, trace ?? null];
    const [row] = await this.#writes.query<{ answer: unknown }>(ENQUEUE, values);
    return row?.answer;
  }

  /** A new job like this one, with the payload of `raw`. @throws NotFound @throws Conflict  it has not ended */
  async rerun({ who, key, digest }: Once, job: string, raw: string, trace: string | undefined): Promise<unknown> {
    const [row] = await this.#writes.query<{ answer: unknown }>(RERUN, [who, key, digest, job, raw, trace ?? null]);
    return row?.answer;
  }

  async reruns(job: string): Promise<{ readonly retriedFrom: string | null; readonly retriedAs: readonly string[] }> {
    const [row] = await this.#reads.query<{ retriedFrom: string | null; retriedAs: string[] }>(RERUNS, [job]);
    return row ?? { retriedFrom: null, retriedAs: [] };
  }

  /** Those that are there. */
  standing(jobs: readonly string[]): Promise<JobStanding[]> {
    return this.#reads.query<JobStanding>(STANDING, [jobs]);
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
