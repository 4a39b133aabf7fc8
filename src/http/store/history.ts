import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';

/**
 * What happened, over all parts, newest first: of each part the newest that fit, then the newest of these. $1 since, $2 until,
 * $3 how many, $4 the only part, $5 a queue, type of actors or name of a lock, $6 a word, $12 whether it may stand in an error.
 */
const HISTORY = statement(
  'http.history',
  `
select to_json(e.at) #>> '{}' as at, e.part, e.event, e.subject, e.id, e.detail, e.error, e.process, e.namespace
from (
  (select t.at, 'job' as part, t.reason as event, q.name as subject, t.id::text as id,
    case when t.n > 1 then t.n || ' jobs in a row' end as detail, left(pawl.queue_error(t.shard, t.at, t.error, t.error_of), 300) as error, t.worker::text as process, null::text as namespace
  from pawl.queue_definition q cross join lateral (
    select t.* from pawl.queue_transition t
    where t.queue = q.id and t.at >= $1::timestamptz and t.at <= $2::timestamptz
      and ($6::text is null or $6 ~ '^[0-9]{1,18}$' and t.id <= $6::bigint and t.id + t.n > $6::bigint or strpos(lower(coalesce(case when $12::boolean then pawl.queue_error(t.shard, t.at, t.error, t.error_of) end, t.reason)), lower($6)) > 0)
    order by t.at desc limit $3::int) t
  where ($4::text is null or $4 = 'job') and ($5::text is null or q.name = $5))
  union all
  (select r.settled_at, 'job', 'complete', q.name, lower(r.ids)::text,
    case when pawl.queue_size(r.ids) > 1 then pawl.queue_size(r.ids) || ' jobs in one batch' end, null, r.worker::text, null
  from pawl.queue_definition q cross join lateral (
    select r.* from pawl.queue_receipt r
    where r.queue = q.id and r.settled_at >= $1 and r.settled_at <= $2 and ($6::text is null or $6 ~ '^[0-9]{1,18}$' and r.ids @> $6::bigint)
    order by r.settled_at desc limit $3) r
  where ($4::text is null or $4 = 'job') and ($5::text is null or q.name = $5))
  union all
  (select r.settled_at, 'job', 'complete', q.name, r.id::text, null, null, r.worker::text, null
  from pawl.queue_definition q cross join lateral (
    select r.* from pawl.queue_receipt_one r
    where r.queue = q.id and r.settled_at >= $1 and r.settled_at <= $2 and ($6::text is null or $6 ~ '^[0-9]{1,18}$' and r.id = $6::bigint)
    order by r.settled_at desc limit $3) r
  where ($4::text is null or $4 = 'job') and ($5::text is null or q.name = $5))
  union all
  (select p.ended_at, 'lock', p.outcome, p.name, p.token::text,
    coalesce(p.reason, 'held ' || round(extract(epoch from p.ended_at - p.granted_at)::numeric, 3) || ' s'), null, p.host || ':' || p.pid, p.space
  from pawl.lock_past p
  where ($4::text is null or $4 = 'lock') and p.ended_at >= $1 and p.ended_at <= $2 and ($5::text is null or p.name = $5)
    and ($6::text is null or strpos(lower(p.name || ' ' || coalesce(p.reason, '') || ' ' || p.host || ':' || p.pid), lower($6)) > 0)
  order by p.ended_at desc limit $3)
  union all
  (select g.granted_at, 'lock', 'granted', g.name, g.token::text, null, null, g.host || ':' || g.pid, g.space
  from pawl.lock_grant g
  where ($4::text is null or $4 = 'lock') and g.token is not null and g.granted_at >= $1 and g.granted_at <= $2 and ($5::text is null or g.name = $5)
    and ($6::text is null or strpos(lower(g.name || ' ' || g.host || ':' || g.pid), lower($6)) > 0)
  order by g.granted_at desc limit $3)
  union all
  (select h.at, 'actor', h.reason, t.name, h.actor::text, coalesce(h.from_state || ' → ', '') || h.to_state, left(h.error, 300), h.worker::text, null
  from pawl.actor_type t cross join lateral (
    select h.* from pawl.actor_transition h
    where h.type = t.id and h.at >= $1 and h.at <= $2
      and ($6::text is null or h.actor::text = $6 or strpos(lower(h.to_state || ' ' || h.reason || ' ' || coalesce(case when $12 then h.error end, '')), lower($6)) > 0)
    order by h.at desc limit $3) h
  where ($4::text is null or $4 = 'actor') and ($5::text is null or t.name = $5))
  union all
  (select p.opened_at, 'page', 'opened', p.tag, p.id::text, p.summary, null, null, null
  from pawl.actor_page p
  where ($4::text is null or $4 = 'page') and p.opened_at >= $1 and p.opened_at <= $2 and ($5::text is null or p.tag = $5)
    and ($6::text is null or strpos(lower(p.tag || ' ' || p.summary), lower($6)) > 0)
  order by p.id desc limit $3)
  union all
  (select p.resolved_at, 'page', 'resolved', p.tag, p.id::text, p.summary, null, null, null
  from pawl.actor_page p
  where ($4::text is null or $4 = 'page') and p.resolved_at >= $1 and p.resolved_at <= $2 and ($5::text is null or p.tag = $5)
    and ($6::text is null or strpos(lower(p.tag || ' ' || p.summary), lower($6)) > 0)
  order by p.resolved_at desc limit $3)
  union all
  (select a.at, 'audit', a.action, a.target, a.id::text, a.error, null, a.who, null
  from pawl.http_audit a
  where ($4::text = 'audit' or $4 is null and $7::boolean) and $7::boolean and a.at >= $1 and a.at <= $2 and $5::text is null
    and ($6::text is null or strpos(lower(a.action || ' ' || a.target || ' ' || a.who), lower($6)) > 0)
  order by a.at desc limit $3)
) e
where $8::timestamptz is null or (e.at, e.part, e.event, e.id) < ($8::timestamptz, $9::text, $10::text, $11::text)
order by e.at desc, e.part desc, e.event desc, e.id desc
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
}

export interface HistoryQuery {
  readonly since: Date;
  readonly until: Date;
  readonly part: string | undefined;
  readonly subject: string | undefined;
  readonly word: string | undefined;
  readonly withAudit: boolean;
  readonly withErrors: boolean;
  readonly after: readonly [at: string, part: string, event: string, id: string] | undefined;
  readonly limit: number;
}

const NOW = statement('http.now', 'select to_json(extract(epoch from clock_timestamp()) * 1000) as now');

/** What happened, over all parts. */
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
    ]);
  }

  /** By the clock that dates them, in Unix time. */
  async now(): Promise<number> {
    const [row] = await this.#reads.query<{ now: number }>(NOW);
    return Number(row?.now);
  }
}
