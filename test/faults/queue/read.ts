import type pg from 'pg';
import type { KindName } from './declaration.ts';
import type { Effect, Job, Move } from './history.ts';

const MS = (time: string): string => `(extract(epoch from ${time}) * 1000)::float8`;
/** The commit time of the transaction that wrote the row. */
const COMMITTED = (row: string): string => MS(`pg_xact_commit_timestamp(${row}.xmin)`);

/**
 * The records of the schedule itself: the effects of handlers, and the inserted rows of jobs and moves. A change or erasure by hand is another
 * row, of a later transaction.
 */
export const LOG = `
create table faults_effect (
  at bigint generated always as identity, job bigint not null, process_id uuid not null, token bigint not null, attempt int not null);
create table faults_job (id bigint not null);
create index on faults_job (id);
create table faults_move (at timestamptz not null, id bigint not null, n int not null);
create index on faults_move (at);
create function faults_note_jobs() returns trigger language plpgsql as $$
begin
  insert into public.faults_job select n.id from new n;
  return null;
end $$;
create function faults_note_moves() returns trigger language plpgsql as $$
begin
  insert into public.faults_move select n.at, n.id, n.n from new n;
  return null;
end $$;
create trigger faults_note after insert on pawl.queue_job referencing new table as new
for each statement execute function faults_note_jobs();
create trigger faults_note after insert on pawl.queue_transition referencing new table as new
for each statement execute function faults_note_moves()`;

const JOBS = `
select j.id::text, coalesce((j.payload ->> 'n')::int, 0) as n, case when k.name in ('letter', 'own') then j.payload ->> 'job' end as letter, j.options ->> 'onError' as own, k.name as kind, j.key, j.group_name as tenant, j.run_at is not null as delayed,
  ${MS('j.created_at')} as created, ${MS("(j.options ->> 'expiresAt')::timestamptz")} as expires, j.options -> 'tags' as tags, ${COMMITTED('l')} as committed,
  (select v.status from pawl.job v where v.id = j.id) as status
from pawl.queue_job j join pawl.queue_kind k on k.id = j.kind join faults_job l on l.id = j.id order by j.id`;

const MOVES = `
select m.* from (
  select i.id::text as job, 'in-progress' as "from", 'complete' as "to", 'complete' as reason, r.attempt::int,
    pawl.queue_process(r.process_id, i.id, r.unit)::text as process, ${MS('r.claimed_at')} as claimed, ${MS('r.settled_at')} as at, ${COMMITTED('r')} as committed,
    r.xmin::text as xid
  from pawl.queue_receipt r cross join lateral unnest(r.ids) u (span)
  cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
  union all
  select r.id::text, 'in-progress', 'complete', 'complete', r.attempt::int, pawl.queue_process(r.process_id, r.id, false)::text,
    ${MS('r.claimed_at')}, ${MS('r.settled_at')}, ${COMMITTED('r')}, r.xmin::text
  from pawl.queue_receipt_one r where r.worker <> 0  -- by hand: there is a move of it
  union all
  select j.id::text, t.from_status, t.to_status, t.reason, t.attempt::int,
    pawl.queue_process(t.process_id, j.id, k.coalesce <> 'none')::text, ${MS('t.claimed_at')}, ${MS('t.at')}, l.committed, l.xid
  from pawl.queue_transition t join pawl.queue_job j on j.id >= t.id and j.id < t.id + t.n join pawl.queue_kind k on k.id = j.kind
  cross join lateral (
    select ${COMMITTED('l')} as committed, l.xmin::text as xid from faults_move l
    where l.at = t.at and l.id <= j.id and l.id + l.n > j.id order by 1 limit 1) l
) m order by m.committed, m.job::bigint`;

const EFFECTS = `
select e.job::text, e.process_id::text as process, e.token::text, e.attempt, ${COMMITTED('e')} as committed, e.xmin::text as xid
from faults_effect e order by e.at`;

export async function readJobs(client: pg.ClientBase, offset: number): Promise<Job[]> {
  const { rows } = await client.query<{
    id: string;
    n: number;
    kind: KindName;
    letter: string | null;
    own: string | null;
    key: string | null;
    tenant: string | null;
    delayed: boolean;
    created: number;
    expires: number | null;
    tags: readonly string[] | null;
    committed: number;
    status: string;
  }>(JOBS);
  return rows.map(({ committed, delayed, created, expires, tags, letter, own, ...job }) => ({
    ...job,
    createdAt: created - offset,
    expiresAt: expires === null ? undefined : expires - offset,
    tags: tags ?? [],
    letterOf: letter,
    onError: own,
    isDelayed: delayed,
    committedAt: committed - offset,
  }));
}

export async function readMoves(client: pg.ClientBase, offset: number): Promise<Move[]> {
  const { rows } = await client.query<{
    job: string;
    from: string;
    to: string;
    reason: string;
    attempt: number;
    process: string | null;
    claimed: number | null;
    at: number;
    committed: number;
    xid: string;
  }>(MOVES);
  return rows.map(({ claimed, committed, at, ...move }) => ({
    ...move,
    at: at - offset,
    claimedAt: claimed === null ? null : claimed - offset,
    committedAt: committed - offset,
  }));
}

export async function readEffects(client: pg.ClientBase, offset: number): Promise<Effect[]> {
  const { rows } = await client.query<{
    job: string;
    process: string;
    token: string;
    attempt: number;
    committed: number;
    xid: string;
  }>(EFFECTS);
  return rows.map(({ token, committed, ...effect }) => ({
    ...effect,
    token: BigInt(token),
    committedAt: committed - offset,
  }));
}

/** The locks and claims that workers still have, in words. A producer ends its own transactions itself. */
export async function readLeftovers(eye: pg.Pool): Promise<string[]> {
  const { rows } = await eye.query<{ left: string }>(`
    select format('%s rows of pawl.%s', n, name) as left from (
      select 'queue_running' as name, count(*) as n from pawl.queue_running
      union all select 'queue_key', count(*) from pawl.queue_key
      union all select 'queue_worker', count(*) from pawl.queue_worker where expires_at > clock_timestamp()
      union all select 'queue_ready', count(*) from pawl.queue_ready
      union all select 'queue_parked', count(*) from pawl.queue_parked
      union all select 'queue_delayed', count(*) from pawl.queue_delayed
      union all select 'queue_grouped', count(*) from pawl.queue_grouped
      union all select 'queue_place', count(*) from pawl.queue_place
    ) t where n > 0
    union all
    select format('a transaction of %s, %s for %s: %s', a.application_name, a.state, age(clock_timestamp(), a.state_change), left(a.query, 80))
    from pg_stat_activity a
    where a.datname = current_database() and starts_with(a.application_name, 'worker') and a.backend_type = 'client backend' and exists (
      select from pg_locks l left join pg_class c on c.oid = l.relation
      where l.pid = a.pid and (l.locktype = 'advisory' and l.mode = 'ExclusiveLock' or c.relnamespace = 'pawl'::regnamespace))`);
  return rows.map(({ left }) => left);
}

/** The holders and waiters of locks, for the story of a stuck schedule. */
export async function readLocks(eye: pg.Pool): Promise<string[]> {
  const { rows } = await eye.query<{ line: string }>(`
    select format('%s %s, %s, since %s, blocked by %s: %s', a.application_name, a.pid, a.state, age(clock_timestamp(), a.state_change),
      pg_blocking_pids(a.pid), left(regexp_replace(a.query, '\\s+', ' ', 'g'), 120)) as line
    from pg_stat_activity a where a.datname = current_database() and a.application_name <> 'eye' and a.backend_type = 'client backend'
    union all
    select format('worker %s of %s, hold %s, expires in %s, holding %s', w.id, w.pid, w.hold, w.expires_at - clock_timestamp(), w.holding)
    from pawl.queue_worker w`);
  return rows.map(({ line }) => line);
}
