import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { Once } from '../protocol/idempotency.ts';

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

/** Jobs that are added over HTTP: once for each Idempotency-Key. */
export class JobStore {
  readonly #reads: PostgresEngine;
  readonly #writes: PostgresEngine;

  constructor(reads: PostgresEngine, writes: PostgresEngine) {
    this.#reads = reads;
    this.#writes = writes;
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
}
