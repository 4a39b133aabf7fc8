import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';

/**
 * Events of all parts, newest first: of each part the newest that fit, then the newest of these. $1 since, $2 until, $3 how many,
 * $4 the only part, $5 a queue, type of actors or name of a lock, $6 a word, $12 whether it may occur in an error. A part that
 * the request leaves out is not read. The locks of a set are granted at the same time and by the same token: `place`, $13, orders
 * these.
 */
const HISTORY = statement(
  'http.history',
  `
select to_json(e.at) #>> '{}' as at, e.part, e.event, e.subject, e.id, e.detail, e.error, e.process, e.namespace, e.place
from (
  select u.*, pg_catalog.md5(pg_catalog.concat_ws('/', u.namespace, u.subject)) as place from (
  select * from pawl.queue_events($1::timestamptz, $2::timestamptz, $3::int, $5::text, $6::text, $12::boolean)
  where $4::text is null or $4 = 'job'
  union all
  select * from pawl.lock_events($1, $2, $3, $5, $6) where $4 is null or $4 = 'lock'
  union all
  select * from pawl.actor_events($1, $2, $3, $5, $6, $12) where $4 is null or $4 = 'actor'
  union all
  select * from pawl.page_events($1, $2, $3, $5, $6) where $4 is null or $4 = 'page'
  union all
  (select a.at, 'audit', a.action, a.target, a.id::text, a.error, null, a.who, null
  from pawl.http_audit a
  where ($4 = 'audit' or $4 is null and $7::boolean) and $7::boolean and a.at >= $1 and a.at <= $2 and $5 is null
    and ($6 is null or strpos(lower(a.action || ' ' || a.target || ' ' || a.who), lower($6)) > 0)
  order by a.at desc limit $3)
  ) u
) e
where $8::timestamptz is null or (e.at, e.part, e.event, e.id, e.place) < ($8::timestamptz, $9::text, $10::text, $11::text, $13::text)
order by e.at desc, e.part desc, e.event desc, e.id desc, e.place desc
limit $3`,
  { prepare: false },
);

/** One event of the history over all parts. `at` is to the microsecond. */
export interface HistoryEvent {
  readonly at: string;
  readonly part: 'job' | 'lock' | 'actor' | 'page' | 'audit';
  readonly event: string;
  readonly subject: string;
  readonly id: string;
  readonly detail: string | null;
  /** Of a job or an actor; the first 300 characters. */
  readonly error: string | null;
  readonly process: string | null;
  /** Of a lock. */
  readonly namespace: string | null;
  /** Distinguishes events of different subjects that are equal in all that orders events. */
  readonly place: string;
}

/** Where a list of events continues. */
export type HistoryPlace = readonly [at: string, part: string, event: string, id: string, place: string];

export function placeOf({ at, part, event, id, place }: HistoryEvent): HistoryPlace {
  return [at, part, event, id, place];
}

export interface HistoryQuery {
  readonly since: Date;
  readonly until: Date;
  readonly part: string | undefined;
  readonly subject: string | undefined;
  readonly word: string | undefined;
  readonly withAudit: boolean;
  readonly withErrors: boolean;
  readonly after: HistoryPlace | undefined;
  readonly limit: number;
}

const NOW = statement('http.now', 'select to_json(extract(epoch from clock_timestamp()) * 1000) as now');

/** Events of all parts. */
export class HistoryStore {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  list(query: HistoryQuery): Promise<HistoryEvent[]> {
    const { since, until, part, subject, word, withAudit, withErrors, after, limit } = query;
    const [at = null, ...rest] = after ?? [];
    const from = [
      since,
      after === undefined ? until : at,
      limit,
      part ?? null,
      subject ?? null,
      word ?? null,
      withAudit,
    ];
    return this.#reads.query<HistoryEvent>(HISTORY, [
      ...from,
      at,
      rest[0] ?? null,
      rest[1] ?? null,
      rest[2] ?? null,
      withErrors,
      rest[3] ?? null,
    ]);
  }

  /** The time by the clock that dates events, in Unix time. */
  async now(): Promise<number> {
    const [row] = await this.#reads.query<{ now: number }>(NOW);
    return Number(row?.now);
  }
}
