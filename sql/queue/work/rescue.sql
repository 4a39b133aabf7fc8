-- Taking back the jobs of dead workers, and of claims whose answer was lost.

-- Gives back the jobs of workers whose lease ran out, and of workers that no longer exist. The attempt is spent; a job without an attempt left
-- ends in error. Its worker cannot report that: see queue_describe_ended. Any number of processes may call this at once. p_mine: the workers of
-- the calling process, which it passes over: the caller lives, so their leases are over only because the process stood still, and its next
-- heartbeat renews them. p_notes: the caller reports no ends, so a worker does.
create or replace function pawl.queue_rescue(
  p_queue smallint, p_mine bigint[] default '{}', p_notes boolean default false, out jobs integer, out ended json
)
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_worker bigint;
  v_jobs integer := 0;
  v_ended bigint[] := '{}';
  v_fresh boolean;
  v_died boolean := false;
  v_patience text := current_setting('lock_timeout');
begin
  for v_worker, v_fresh in
    select w.id, w.hold = 'transaction' and w.lost_at is null from pawl.queue_worker w where w.queue = p_queue and w.expires_at < clock_timestamp() and w.id <> all (p_mine) order by w.id for update skip locked
  loop
    select v_jobs + l.jobs, v_ended || l.ended into v_jobs, v_ended from pawl.queue_give_back(v_worker, null, true) l;
    select v_jobs + s.jobs, v_ended || s.ended into v_jobs, v_ended from pawl.queue_suspect(v_worker, false) s;
    if pawl.queue_end_lanes(v_worker) then
      begin
        -- A caller that waits for the locks of these jobs gets them before workers that poll.
        perform set_config('lock_timeout', '500ms', true);
        select v_jobs + s.jobs, v_ended || s.ended into v_jobs, v_ended from pawl.queue_suspect(v_worker, true) s;
        perform set_config('lock_timeout', v_patience, true);
      exception when lock_not_available then
        null;  -- another transaction has the jobs; they stay noted
      end;
    end if;
    -- The row stays while an open transaction guards a job of the worker: clients that pull learn from it that a rescue may bring more.
    delete from pawl.queue_worker w where w.id = v_worker and w.holding = '{}' and not exists (select from pawl.queue_lanes(w.id))
      and not exists (select 1 from pawl.queue_running r where r.worker = w.id);
    update pawl.queue_worker w set lost_at = clock_timestamp(), wants_notify = false where w.id = v_worker and w.lost_at is null;
    v_died := v_died or v_fresh;
  end loop;
  if v_died then
    update pawl.queue_definition d set lost_at = clock_timestamp() where d.id = p_queue;
  end if;
  perform pawl.queue_note_suspects(p_queue);
  delete from pawl.queue_offer o where o.ctid = any (array(
    select o.ctid from pawl.queue_offer o
    where o.queue = p_queue and not exists (select 1 from pawl.queue_worker w where w.id = o.worker) for update skip locked));
  for v_worker in
    select distinct r.worker from pawl.queue_running r where r.queue = p_queue
      and not exists (select 1 from pawl.queue_worker w where w.id = r.worker) order by 1
  loop
    select v_jobs + l.jobs, v_ended || l.ended into v_jobs, v_ended from pawl.queue_give_back(v_worker, null, true) l;
  end loop;
  if v_jobs > 0 or pawl.queue_bring_back(p_queue, 1000) > 0 then
    perform pg_notify('pawl_queue', p_queue::text);
  end if;
  jobs := v_jobs;
  if v_ended <> '{}' then
    if p_notes then
      perform pawl.queue_note_untold(s.shard, array_agg(i.id))
      from unnest(v_ended) i (id) cross join lateral (select pawl.queue_shard_of(i.id) as shard offset 0) s group by s.shard;
    else
      ended := pawl.queue_describe_ended(p_queue, v_ended);
    end if;
    perform pawl.queue_ended(e.shard, e.ids, e.nth > 1) from (
      select s.shard, array_agg(int8multirange(int8range(i.id, i.id + 1))) as ids, row_number() over (order by s.shard) as nth
      from unnest(v_ended) i (id) cross join lateral (select pawl.queue_shard_of(i.id) as shard offset 0) s group by s.shard order by s.shard) e;
  end if;
end $$;

-- Notes jobs that dead workers of the transaction hold ran and that could not be charged, because other workers have them in open transactions.
-- Lanes pass over these jobs, and the next rescue finds them free, or done. Otherwise a job that kills its workers late is with the next worker
-- each time a rescue comes: no attempt is ever spent, and the job kills workers for ever.
create or replace function pawl.queue_note_suspects(p_queue smallint) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  with suspect as (
    select coalesce(array_agg(distinct i.id order by i.id), '{}') as ids
    from pawl.queue_worker w cross join lateral unnest(w.holding) i (id)
    where w.queue = p_queue and w.lost_at is not null
  )
  update pawl.queue_definition d set suspects = s.ids from suspect s where d.id = p_queue and d.suspects <> s.ids
$$;

-- Takes a lost worker's jobs out of its claims. Answers the claims with the jobs taken. It leaves alone a claim that is being settled, and a job
-- that an open transaction guards, together with the worker's other jobs of the same key: the next rescue finds these. It waits for nothing.
create or replace function pawl.queue_revoke_claims(p_worker bigint) returns setof pawl.queue_running
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_free bigint[];
  v_claims bigint[];
  v_jobs bigint[];
  v_out int8multirange;
begin
  v_free := array(select r.id from pawl.queue_running r where r.worker = p_worker order by r.id for update skip locked);
  if not exists (select 1 from pawl.queue_running r where r.worker = p_worker and r.id <> all (v_free)) then
    return query delete from pawl.queue_running r where r.worker = p_worker and r.id = any (v_free) returning r.*;
    return;
  end if;
  -- Some are guarded, so the jobs are locked one by one. That price is paid only for transactions that stay open.
  v_claims := array(select r.id from pawl.queue_running r where r.worker = p_worker order by r.id for no key update skip locked);
  v_jobs := array(
    select j.id from pawl.queue_running r cross join lateral unnest(r.ids) u (span)
    join pawl.queue_job j on j.shard = r.shard and j.id >= lower(u.span) and j.id < upper(u.span)
    where r.worker = p_worker and r.id = any (v_claims) for update of j skip locked);
  with job as materialized (
    select r.queue, j.key, j.id, r.id = any (v_claims) and f.id is not null as is_free
    from pawl.queue_running r cross join lateral unnest(r.ids) u (span)
    join pawl.queue_job j on j.shard = r.shard and j.id >= lower(u.span) and j.id < upper(u.span)
    left join unnest(v_jobs) f (id) on f.id = j.id
    where r.worker = p_worker
  )
  select range_agg(int8range(j.id, j.id + 1)) into v_out from job j
  where j.is_free and not exists (select 1 from job k where k.queue = j.queue and k.key = j.key and not k.is_free);
  return query
  with mine as materialized (
    select r.*, r.ids * v_out as out from pawl.queue_running r
    where r.worker = p_worker and r.id = any (v_claims) and r.ids && v_out
  ), gone as (
    delete from pawl.queue_running r where r.worker = p_worker and r.id in (select m.id from mine m where isempty(m.ids - m.out))
  ), kept as (
    update pawl.queue_running r set ids = r.ids - m.out from mine m
    where r.worker = p_worker and r.id = m.id and not isempty(m.ids - m.out)
  )
  select m.id, m.worker, m.claimed_at, m.process_id, m.shard, m.queue, m.attempt, m.lost, m.unit, m.out, m.key_hash from mine m;
end $$;

-- The server processes that serve the lanes of a worker (hold: 'transaction'). Each of them, or each of their transactions behind a pooler, has
-- this lock, shared.
create or replace function pawl.queue_lanes(p_worker bigint) returns setof integer
language sql stable as $$
  select l.pid from pg_locks l
  where l.locktype = 'advisory' and l.classid = 1885435757 and l.objid = (p_worker % 2147483647)::oid and l.objsubid = 2 and l.granted
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
$$;

-- Ends the transactions that a lost worker has left open: its process may stand still, or a proxy may acknowledge data that no process reads. No
-- setting of the server tells that from a handler at work. Answers whether there were any; they end in a moment. The processes of another role
-- are ended only by a role that has pg_signal_backend.
create or replace function pawl.queue_end_lanes(p_worker bigint) returns boolean
language plpgsql as $$
begin
  perform pg_terminate_backend(l.pid) from pawl.queue_lanes(p_worker) l (pid);
  return found;
exception when insufficient_privilege then
  return false;
end $$;

-- The server processes that queue_rescue could not end, with transactions of workers that were lost over a second ago. Ending takes them a moment.
create or replace function pawl.queue_open_lanes(p_queue smallint) returns integer[]
language sql set search_path = pg_catalog, pg_temp as $$
  select coalesce(array_agg(l.pid), '{}') from pawl.queue_worker w cross join lateral pawl.queue_lanes(w.id) l (pid)
  where w.queue = p_queue and w.lost_at < clock_timestamp() - interval '1 second' and w.expires_at < clock_timestamp()
$$;
