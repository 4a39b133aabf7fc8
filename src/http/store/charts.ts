import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

const CHARTS = statement(
  'http.charts',
  `
select queue, kind, complete, errors, retries, times, points, others
from pawl.http_charts($1::text, to_timestamp($2::float8 / 1000), to_timestamp($3::float8 / 1000), make_interval(secs => $4::float8 / 1000), $5::int)`,
);

const ERRORS = statement(
  'http.errors',
  `
select queue, kind, shape, error, n::int as count, ${instant('first_at')} as "firstAt", ${instant('last_at')} as "lastAt", jobs, read::int as read, whole
from pawl.http_errors($1::text, $2::text, $3::timestamptz, $4::int, $5::int)`,
);

export interface ChartRow {
  readonly queue: string;
  readonly kind: string;
  readonly complete: number;
  readonly errors: number;
  readonly retries: number;
  /** p50, p95 and p99 of running, then of waiting; null if nothing was completed. */
  readonly times: readonly number[] | null;
  readonly points: readonly object[];
  readonly others: number;
}

export interface ErrorRow {
  readonly queue: string;
  readonly kind: string;
  readonly shape: string | null;
  readonly error: string | null;
  readonly count: number;
  readonly firstAt: Date;
  readonly lastAt: Date;
  readonly jobs: readonly string[];
  readonly read: number;
  readonly whole: boolean;
}

/** Statistics over time, and of errors. */
export class ChartStore {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  /** By queue and kind; without a queue, of the `most` busiest queues. */
  charts(queue: string | undefined, from: number, to: number, stepMs: number, most: number): Promise<ChartRow[]> {
    return this.#reads.query<ChartRow>(CHARTS, [queue ?? null, from, to, stepMs, most]);
  }

  /** The largest groups of the newest `most` jobs in error. */
  errors(
    of: { readonly queue: string | undefined; readonly kind: string | undefined; readonly since: Date | undefined },
    most: number,
    groups: number,
  ): Promise<ErrorRow[]> {
    return this.#reads.query<ErrorRow>(ERRORS, [of.queue ?? null, of.kind ?? null, of.since ?? null, most, groups]);
  }
}
