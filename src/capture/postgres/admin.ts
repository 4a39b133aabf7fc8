import { type PostgresEngine, statement } from '../../engine/postgres/index.ts';
import type { ChangeRow } from './change.ts';

/** The state of a line. */
export interface LineStatus {
  readonly entity: string;
  readonly name: string;
  readonly guarantee: 'latest' | 'ordered';
  /** Changes that are still to be delivered; counted up to 10,000. */
  readonly outstanding: number;
  /** How long the oldest of these changes has waited. */
  readonly oldestMs: number | null;
  /** Entities that could not be projected and are tried again. */
  readonly failing: number;
  /** The error of the entity that has failed for the longest time. */
  readonly error: string | null;
  /** Entities that a running back-fill has done; `sweepTotal` is an estimate of all of them. */
  readonly sweepDone: number | null;
  readonly sweepTotal: number | null;
}

/**
 * A transaction that has been open for long, in any database of the server. It keeps vacuum from removing rows, and blocks
 * everything that waits for its locks.
 */
export interface Culprit {
  /** Null for a prepared transaction. */
  readonly pid: number | null;
  readonly database: string | null;
  readonly user: string | null;
  readonly application: string | null;
  readonly state: string;
  readonly ageMs: number;
  /** True: it holds locks on keys, so that other workers skip these keys. */
  readonly holdsKeys: boolean;
}

const LINES = statement(
  'capture.status',
  `
select d.entity, l.name, l.guarantee, x.n as outstanding,
  pg_catalog.to_json(extract(epoch from clock_timestamp() - x.oldest) * 1000::numeric) as "oldestMs",
  (select count(*)::int from pawl.capture_retry r where r.line = l.id) as failing,
  (select r.key || ': ' || r.error from pawl.capture_retry r where r.line = l.id order by r.first_at limit 1) as error,
  s.done::int as "sweepDone", s.total::int as "sweepTotal"
from pawl.capture_line l join pawl.capture_definition d on d.id = l.capture
left join pawl.capture_sweep s on s.line = l.id and s.phase <> 'done'
cross join lateral (
  select least(count(*), 10000)::int as n, min(y.at) as oldest from (
    (select q.at from pawl.capture_dirty q where l.guarantee = 'latest' and q.line = l.id and q.source = 0 order by q.id limit 10000)
    union all
    (select q.at from pawl.capture_dirty q where l.guarantee = 'latest' and q.line = l.id and q.source < 0 limit 10000)
    union all
    (select q.at from pawl.capture_dirty q where l.guarantee = 'latest' and q.line = l.id and q.source > 0 limit 10000)
    union all
    (select c.at from pawl.capture_change c
      where l.guarantee = 'ordered' and c.capture = l.capture and c.xid >= pg_snapshot_xmin(l.seen) and not pg_visible_in_snapshot(c.xid, l.seen)
        and not (l.until is not null and pg_visible_in_snapshot(c.xid, l.until) and c.id <= l.after) limit 10000)
  ) y
) x
where $1::text is null or d.entity = $1::text
order by d.entity, l.id`,
);

const CULPRITS = statement(
  'capture.culprits',
  `
select c.pid, c.database, c.user, c.application, c.state, pg_catalog.to_json(c.age) as "ageMs", c."holdsKeys" from (
select a.pid, a.datname::text as database, a.usename::text as user, a.application_name as application, coalesce(a.state, '') as state,
  extract(epoch from clock_timestamp() - a.xact_start) * 1000::numeric as age,
  exists (select from pg_locks l where l.pid = a.pid and l.relation = 'pawl.capture_dirty'::regclass::oid
    and exists (select from pg_locks k where k.pid = a.pid and k.locktype = 'advisory' and k.granted)) as "holdsKeys"
from pg_stat_activity a
where a.xact_start < clock_timestamp() - $1::float8 * interval '1 millisecond' and a.pid <> pg_backend_pid()
  and (a.backend_xmin is not null or a.backend_xid is not null) and a.backend_type = 'client backend'
union all
select null, p.database::text, p.owner::text, p.gid, 'prepared', extract(epoch from clock_timestamp() - p.prepared) * 1000::numeric, false
from pg_prepared_xacts p where p.prepared < clock_timestamp() - $1::float8 * interval '1 millisecond'
) c
order by c.age desc limit 5`,
);

export function readStatus(engine: PostgresEngine, entity: string | undefined): Promise<LineStatus[]> {
  return engine.query<LineStatus>(LINES, [entity ?? null]);
}

/** @param olderThanMs  how long a transaction has to be open to be listed */
export function readCulprits(engine: PostgresEngine, olderThanMs: number): Promise<Culprit[]> {
  return engine.query<Culprit>(CULPRITS, [olderThanMs]);
}

const SNAPSHOT = statement('capture.snapshot', 'select pg_current_snapshot()::text as now');

const SINCE = statement(
  'capture.since',
  `
select c.id::text as id, pg_catalog.to_json(c.at) #>> '{}'::text[] as at, c.source, c.op, c.key, c.old_key as "oldKey", c.before, c.after, c.actor, c.reason, c.db_user::text as "dbUser"
from pawl.capture_change c join pawl.capture_definition d on d.id = c.capture
where d.entity = $1::text and c.xid >= pg_snapshot_xmin($2::text::pg_snapshot)
  and not pg_visible_in_snapshot(c.xid, $2::text::pg_snapshot) and pg_visible_in_snapshot(c.xid, $3::text::pg_snapshot)
order by c.id`,
);

/** The current snapshot, from which a reader that is no consumer starts. */
export async function readSnapshot(engine: PostgresEngine): Promise<string> {
  const [row] = await engine.query<{ now: string }>(SNAPSHOT);
  return row?.now ?? '1:1:';
}

/** The changes that were committed between two snapshots. */
export function readBetween(engine: PostgresEngine, entity: string, from: string, to: string): Promise<ChangeRow[]> {
  return engine.query<ChangeRow>(SINCE, [entity, from, to]);
}
