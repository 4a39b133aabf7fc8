import { instant, type PostgresEngine, statement } from '../../engine/postgres/index.ts';

/** A page of names that are held or waited for: the indexes return them in order. */
const LOCKS = statement(
  'lock.overview',
  `
with name as (
  select n.space, n.name from (
    (select distinct g.space, g.name from pawl.lock_grant g
      where g.token is not null and g.expires_at > clock_timestamp() and (g.space, g.name) > ($1::text collate "C", $2::text collate "C")
        and ($3::text is null or g.space = $3) and ($4::text is null or strpos(g.name, $4) > 0)
      order by g.space, g.name limit $6::int)
    union
    (select distinct w.space, w.name from pawl.lock_waiter w
      where w.expires_at > clock_timestamp() and (w.space, w.name) > ($1::text collate "C", $2::text collate "C")
        and ($3::text is null or w.space = $3) and ($4::text is null or strpos(w.name, $4) > 0)
      order by w.space, w.name limit $6::int)
  ) n
  where not $5::boolean or exists (
    select 1 from pawl.lock_waiter w where w.space = n.space and w.name = n.name and w.expires_at > clock_timestamp())
  order by n.space, n.name limit $6::int
)
select n.space as namespace, n.name,
  (select count(*)::int from pawl.lock_grant g where g.space = n.space and g.name = n.name and g.token is not null and g.expires_at > clock_timestamp()) as holders,
  (select count(*)::int from pawl.lock_waiter w where w.space = n.space and w.name = n.name and w.expires_at > clock_timestamp()) as waiters,
  h.mode, h.permits, h.token::text as token, h.host, h.pid, h.job::text as job, ${instant('h.since')} as since, ${instant('h.expires_at')} as "expiresAt",
  (select ${instant('min(w.enqueued_at)')} from pawl.lock_waiter w where w.space = n.space and w.name = n.name and w.expires_at > clock_timestamp()) as "waitingSince"
from name n
left join lateral (
  select l.* from pawl.lock l where l.namespace = n.space and l.name = n.name and l.state = 'held' order by l.token limit 1) h on true
order by n.space, n.name`,
);

/** All waits, up to 500: who waits for which name, who holds it, and what the waiter keeps meanwhile. */
const WAITS = statement(
  'lock.waits',
  `
select w.space as namespace, w.name, left(md5(w.nonce::text), 12) as claim, w.ticket::text as ticket, w.host, w.pid, w.job::text as job, ${instant('w.enqueued_at')} as since,
  (select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('token', g.token::text, 'host', g.host, 'pid', g.pid, 'job', g.job::text)), '[]') from (
    select g.* from pawl.lock_grant g where g.space = w.space and g.name = w.name and g.token is not null and g.expires_at > clock_timestamp() limit 20) g) as holders,
  (select coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', g.name, 'token', g.token::text)), '[]') from pawl.lock_grant g where g.space = w.space and g.token = any (w.holds) and g.expires_at > clock_timestamp()) as keeps
from pawl.lock_waiter w
where w.expires_at > clock_timestamp() and ($1::text is null or w.space = $1)
order by w.space, w.name, w.ticket
limit 500`,
);

/** The names that were held most often, and longest, within the last hour; from at most 20,000 holds. */
const HOTTEST = statement(
  'lock.hottest',
  `
select x.space as namespace, x.name, count(*)::int as holds, pg_catalog.to_json(round(extract(epoch from avg(x.ended_at - x.granted_at)) * 1000::numeric)) as "meanMs",
  pg_catalog.to_json(round(extract(epoch from max(x.ended_at - x.granted_at)) * 1000::numeric)) as "maxMs", count(*) filter (where x.outcome <> 'released')::int as lost
from (select p.* from pawl.lock_past p where p.ended_at > clock_timestamp() - interval '1 hour' and ($1::text is null or p.space = $1) limit 20000) x
group by x.space, x.name
order by holds desc, x.name
limit 20`,
);

const LOCK_HISTORY = statement(
  'lock.history_of_name',
  `
select p.namespace, p.name, p.token::text as token, p.mode, p.permits, p.host, p.pid, p.job::text as job, ${instant('p.granted_at')} as "grantedAt", ${instant('p.ended_at')} as "endedAt", p.outcome, p.reason
from pawl.lock_history p
where p.namespace = $1 and p.name = $2 and p.token < $3::bigint
order by p.token desc
limit $4::int`,
);

export interface LockFilter {
  readonly namespace: string | undefined;
  readonly name: string | undefined;
  readonly contended: boolean;
  readonly limit: number;
}

type Row = Record<string, unknown>;

/** The locks of all namespaces, as the HTTP API lists them. */
export class LockOverview {
  readonly #reads: PostgresEngine;

  constructor(reads: PostgresEngine) {
    this.#reads = reads;
  }

  list(after: readonly [string, string], filter: LockFilter): Promise<(Row & { namespace: string; name: string })[]> {
    const { namespace, name, contended, limit } = filter;
    return this.#reads.query(LOCKS, [...after, namespace ?? null, name ?? null, contended, limit]);
  }

  waits(
    namespace: string | undefined,
  ): Promise<(Row & { namespace: string; name: string; keeps: readonly object[] })[]> {
    return this.#reads.query(WAITS, [namespace ?? null]);
  }

  hottest(namespace: string | undefined): Promise<Row[]> {
    return this.#reads.query(HOTTEST, [namespace ?? null]);
  }

  history(namespace: string, name: string, before: string, limit: number): Promise<(Row & { token: string })[]> {
    return this.#reads.query(LOCK_HISTORY, [namespace, name, before, limit]);
  }
}
