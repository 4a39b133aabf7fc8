import { instant, type Statement, statement } from '../../engine/postgres/index.ts';

/** Every statement of locks. Those that take a latch run under read committed, whatever the default is. */

/** The uncontended acquire of one name, exclusive: one latch, one check, one row, in one round trip and one commit. */
export const TAKE: Statement = statement(
  'lock.take',
  'select pawl.lock_acquire_one($1::text, $2::text, $3::uuid, $4::bigint, $5::text, $6::text, $7::int, $8::int, $9::bigint) as answer',
);

export const ACQUIRE: Statement = statement(
  'lock.acquire',
  `
select pg_catalog.to_json(r)::text as answer
from (
  select a.token::text, a.ticket::text, a.ahead, a.retry_ms, a.place_ms, a.is_new, a.cycle, a.holder
  from pawl.lock_acquire(
    $1::text, $2::text[], $3::uuid, $4::int, $5::bigint, $6::text, $7::text, $8::int,
    $9::int, $10::bigint, $11::boolean, $12::bigint[], $13::bigint, $14::bigint
  ) a
) r`,
);

/** Turns a grant into a lock without a lease. */
export const KEEP: Statement = statement(
  'lock.keep',
  'select pawl.lock_drop_lease($1::text, $2::text[], $3::bigint) as kept',
);

/** Releases a lock of TAKE: one latch, one row freed, one row of history, one search for waiters; flushed if there is one. */
export const FREE: Statement = statement(
  'lock.free',
  'select pawl.lock_release_one($1::text, $2::text, $3::bigint, $4::text) as answer',
);

export const RELEASE: Statement = statement(
  'lock.release',
  `
select pg_catalog.to_json(r)::text as answer
from pawl.lock_release($1::text, $2::text[], $3::bigint, $4::text, $5::boolean, $6::bigint) r`,
);

export const LEAVE: Statement = statement(
  'lock.leave',
  `
select pg_catalog.to_json(s)::text as answer
from pawl.lock_stop_waiting($1::text, $2::text[], $3::uuid, $4::text) s`,
);

/** One statement for everything a process holds: an index probe and a HOT update per row. */
export const BEAT: Statement = statement(
  'lock.beat',
  `
select place
from pawl.lock_beat($1::text[], $2::text[], $3::bigint[]) place`,
);

/**
 * One statement for all waiters of a process that are far behind: per waiter an index probe, a HOT update, and two rows of
 * the front.
 */
export const KEEP_PLACES: Statement = statement(
  'lock.keep_places',
  'select nonce::text from pawl.lock_renew_places($1::uuid[], $2::int[]) nonce',
);

/** How a lock ended. The row still exists while the transaction of a guard is open. */
export const FATE: Statement = statement(
  'lock.fate',
  `
select
  name, pawl.lock_mode(capacity) as mode, capacity, token::text, host, pid,
  ${instant('granted_at')} as granted_at,
  ${instant('ended_at')} as ended_at,
  outcome, reason
from (
  select g.space, g.name, g.capacity, g.token, g.host, g.pid, g.granted_at, clock_timestamp() as ended_at, g.outcome, g.reason
  from pawl.lock_grant g
  where g.outcome is not null
  union all
  select p.space, p.name, p.capacity, p.token, p.host, p.pid, p.granted_at, p.ended_at, p.outcome, p.reason
  from pawl.lock_past p
) past
where space = $1::text and name = any ($2::text[]) and token = $3::bigint
order by outcome = 'broken' desc
limit 1`,
);

/** Run in the caller's transaction, whichever library holds it, so with one text parameter. */
export const GUARD = 'select pawl.lock_guard($1::jsonb) as guarded';

export const BREAK: Statement = statement(
  'lock.break',
  `
select token::text, host, pid, ${instant('granted_at')} as since
from pawl.lock_break($1::text, $2::text, $3::text)`,
);

export const SWEEP: Statement = statement('lock.sweep', `select pawl.lock_sweep($1::float8 * interval '1 ms')`);

/** Reads the public view. A null name stands for all names. */
export const SNAPSHOT: Statement = statement(
  'lock.snapshot',
  `
select
  name, state, mode, permits, token::text, ticket::text, host, pid, job::text,
  ${instant('since')} as since,
  ${instant('expires_at')} as expires_at,
  ${instant('last_heartbeat_at')} as heartbeat_at,
  pg_catalog.to_json(extract(epoch from expires_at - clock_timestamp()) * 1000::numeric) as left_ms,
  pg_catalog.to_json(extract(epoch from clock_timestamp() - since) * 1000::numeric) as age_ms
from pawl.lock
where namespace = $1::text and ($2::text is null or name = $2::text)
order by name, state, coalesce(token, ticket)`,
);

export const HISTORY: Statement = statement(
  'lock.history',
  `
select
  name, mode, permits, token::text, host, pid, job::text,
  ${instant('granted_at')} as granted_at,
  ${instant('ended_at')} as ended_at,
  outcome, reason
from pawl.lock_history h
where h.namespace = $1::text and ($2::text is null or h.name = $2::text)
order by h.token desc -- the number, not the text above
limit $3::int`,
);

/** Held locks are few; the history has an index by job. */
export const OF_JOBS: Statement = statement(
  'lock.of_jobs',
  `
select
  namespace, name, state, mode, permits, token::text, host, pid,
  ${instant('since')} as since,
  ${instant('ended_at')} as ended_at,
  outcome
from (
  (select l.namespace, l.name, l.state, l.mode, l.permits, l.token, l.host, l.pid, l.since, null::timestamptz as ended_at, null as outcome
    from pawl.lock l where l.job = any ($1::bigint[]) order by l.since desc limit 200)
  union all
  (select h.namespace, h.name, 'ended', h.mode, h.permits, h.token, h.host, h.pid, h.granted_at, h.ended_at, h.outcome
    from pawl.lock_history h where h.job = any ($1::bigint[]) and h.job is not null order by h.ended_at desc limit 100)
) x
order by x.since desc, x.name`,
);

/** Waiters that keep other locks meanwhile: the names they keep, and the name they wait for. */
export const EDGES: Statement = statement(
  'lock.edges',
  `
select w.name as wants, w.host, w.pid, pg_catalog.array_agg(distinct h.name)::text[] as keeps
from pawl.lock_waiter w
join pawl.lock_grant h on h.space = w.space and h.token = any (w.holds) and h.expires_at > clock_timestamp()
where w.space = $1::text and w.holds operator(pg_catalog.<>) '{}' and w.expires_at > clock_timestamp()
group by w.name, w.ticket, w.host, w.pid`,
);

/** Locks Postgres's lock manager for a moment: for people, not for programs that poll. */
export const BACKENDS: Statement = statement(
  'lock.backends',
  `
select pid, application_name, left(query, 200) as query, blockers
from (
  select a.pid, a.application_name, a.query, pg_blocking_pids(a.pid)::int[] as blockers
  from pg_stat_activity a
  where a.datname = current_database() and a.wait_event_type = 'Lock'
) waiting
where pg_catalog.cardinality(blockers) > 0
limit 200`,
);

export const GUARDS: Statement = statement(
  'lock.guards',
  `select distinct pid from pawl.lock_guarding_pids($1::text, $2::text) as pid`,
);

/** The grant of a claim, by its nonce: one index probe, since the name is known. */
export const HELD_BY: Statement = statement(
  'lock.held_by',
  `
select g.token::text as token, g.capacity, g.lease_ms::int as "leaseMs", ${instant('clock_timestamp()')} as now
from pawl.lock_grant g
where g.space = $1::text and g.name = $2::text and g.nonce = $3::uuid and g.token is not null and g.outcome is null
  and g.expires_at > clock_timestamp()
limit 1`,
);
