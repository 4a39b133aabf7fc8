import { type PostgresEngine, type Statement, statement } from '../../engine/postgres/index.ts';
import type { Once } from '../protocol/idempotency.ts';

const ENQUEUE = statement(
  'http.enqueue',
  'select pawl.http_enqueue($1::text, $2::text, $3::text, $4::jsonb, $5::jsonb, $6::text) as answer',
);

const RETRY = statement('http.retry', 'select pawl.http_retry($1::text, $2::text, $3::text, $4::bigint) as answer');

const RERUN = statement(
  'http.rerun',
  'select pawl.http_rerun($1::text, $2::text, $3::text, $4::bigint, $5::jsonb, $6::text) as answer',
);

const UPDATE = statement(
  'http.update',
  `
select pawl.update($3::jsonb || case when $2::jsonb ? 'payload'::text then pg_catalog.jsonb_build_object('payload', $2::jsonb -> 'payload'::text) else '{}'::jsonb end
  || pg_catalog.jsonb_build_object('id', $1::text)) as answer`,
);

const FLOW = statement(
  'http.flow',
  'select pawl.http_flow($1::text, $2::text, $3::text, $4::jsonb, $5::jsonb, $6::text) as answer',
);

const NEW_BATCH = statement(
  'http.new_batch',
  'select pawl.http_new_batch($1::text, $2::text, $3::text, $4::jsonb) as answer',
);

const ADD_TO_BATCH = statement(
  'http.add_to_batch',
  'select pawl.http_add_to_batch($1::text, $2::text, $3::text, $4::bigint, $5::jsonb, $6::jsonb, $7::text) as answer',
);

const PUBLISH = statement(
  'http.publish',
  'select pawl.http_publish($1::text, $2::text, $3::text, $4::jsonb, $5::jsonb) as answer',
);

/** The job of which this one is a new run, and the new runs of this job. */
const RERUNS = statement(
  'http.reruns',
  `
select (select r.of::text from pawl.http_rerun r where r.job = $1::bigint) as "retriedFrom",
  (select coalesce(pg_catalog.json_agg(x.job), '[]') from (
    select r.job::text as job from pawl.http_rerun r where r.of = $1::bigint order by r.job desc limit 50) x) as "retriedAs"`,
);

/** Adds jobs over HTTP: once for each Idempotency-Key. */
export class JobStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
  }

  /**
   * Adds a job, or a list of jobs. `raw` is the body as it came, whose payloads are kept unchanged as far as jsonb allows; `jobs`
   * has their other fields.
   * @throws NotFound, InvalidInput
   * @throws Conflict  the key was used for another request
   */
  async enqueue({ who, key, digest }: Once, raw: string, jobs: string, trace: string | undefined): Promise<unknown> {
    const values = [who, key, digest, raw, jobs, trace ?? null];
    const [row] = await this.#writes.query<{ answer: unknown }>(ENQUEUE, values);
    return row?.answer;
  }

  /** Makes a job that has ended new again. @throws NotFound @throws Conflict  it is in progress or complete */
  retry({ who, key, digest }: Once, job: string): Promise<unknown> {
    return this.#answer(RETRY, [who, key, digest, job]);
  }

  /** A new job like this one, with the payload of `raw`. @throws NotFound @throws Conflict  it has not ended */
  async rerun({ who, key, digest }: Once, job: string, raw: string, trace: string | undefined): Promise<unknown> {
    const [row] = await this.#writes.query<{ answer: unknown }>(RERUN, [who, key, digest, job, raw, trace ?? null]);
    return row?.answer;
  }

  /** Changes a job that waits; `raw` may have another payload. @throws NotFound, InvalidInput @throws Conflict  it has begun or ended */
  async update(job: string, raw: string, change: object): Promise<unknown> {
    return this.#answer(UPDATE, [job, raw, JSON.stringify(change)]);
  }

  /** Adds a graph of jobs: in `nodes`, each node is behind its parents. @throws NotFound, InvalidInput, Conflict */
  async flow({ who, key, digest }: Once, raw: string, nodes: object[], trace: string | undefined): Promise<unknown> {
    return this.#answer(FLOW, [who, key, digest, raw, JSON.stringify(nodes), trace ?? null]);
  }

  /** Makes an open batch. @throws NotFound, InvalidInput, Conflict */
  async newBatch({ who, key, digest }: Once, raw: string): Promise<unknown> {
    return this.#answer(NEW_BATCH, [who, key, digest, raw]);
  }

  /** @throws NotFound, InvalidInput @throws Conflict  it is sealed, or the key was used for another request */
  async addToBatch(
    { who, key, digest }: Once,
    batch: string,
    raw: string,
    jobs: string,
    trace: string | undefined,
  ): Promise<unknown> {
    return this.#answer(ADD_TO_BATCH, [who, key, digest, batch, raw, jobs, trace ?? null]);
  }

  /** Adds a job in each subscribed queue. @throws InvalidInput, Conflict */
  async publish({ who, key, digest }: Once, raw: string, request: object): Promise<unknown> {
    return this.#answer(PUBLISH, [who, key, digest, raw, JSON.stringify(request)]);
  }

  async #answer(sql: Statement, values: unknown[]): Promise<unknown> {
    const [row] = await this.#writes.query<{ answer: unknown }>(sql, values);
    return row?.answer;
  }

  async reruns(job: string): Promise<{ readonly retriedFrom: string | null; readonly retriedAs: readonly string[] }> {
    const [row] = await this.#reads.query<{ retriedFrom: string | null; retriedAs: string[] }>(RERUNS, [job]);
    return row ?? { retriedFrom: null, retriedAs: [] };
  }
}
