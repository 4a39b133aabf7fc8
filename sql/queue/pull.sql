-- Pull: a program in any language claims jobs by one call, and reports their outcome by another. Each claiming call is a worker of its own, whose row
-- is the lease of the jobs that it claimed. The lease is renewed by hand, and rescued like that of any other worker.

-- Claims up to p_limit jobs of one shard for p_lease_ms, under a new worker, or under p_worker, which has claimed for the same call and still holds
-- something, so that the jobs of one call have one lease. Answers {worker, expiresAt: ms, kinds: {id: name}, answer: as queue_claim does, hasLost};
-- without a worker if nothing was claimed. hasLost: a lease is over, a job that is to be cancelled is no longer under the worker that it was under, or
-- jobs may have ended that others come after (see look.sql), so the chores of workers may have something to do. If the call has claimed jobs, these do
-- not wait for the last of the three unless it is a second late: a worker that lives checks at once.
create or replace function pawl.queue_pull(
  p_queue smallint, p_shard smallint, p_limit int, p_lease_ms double precision, p_host text, p_pid int, p_worker bigint default null
) returns json
language plpgsql /* planner: probe */ as $$
declare
  v_now timestamptz := clock_timestamp();
  v_lease interval := p_lease_ms * interval '1 millisecond';
  v_lost boolean := exists (select 1 from pawl.queue_worker w where w.queue = p_queue and w.expires_at < v_now)
    or exists (  -- a request to cancel a job that was settled just then; as a rule the table is empty
      select 1 from pawl.queue_cancel c cross join lateral (select j.queue from pawl.queue_job j where j.shard = c.shard and j.id = c.id offset 0) j
      where j.queue = p_queue and not exists (select 1 from pawl.queue_worker w where w.id = c.worker));
  v_check_at timestamptz := (select w.check_at from pawl.queue_watch w where w.check_at is not null order by w.check_at limit 1);
  v_worker bigint;
  v_until timestamptz := v_now + v_lease;
  v_held bigint[] := '{}';
  v_answer json;
  v_priority smallint := -32768;
  v_after bigint := 0;
  v_seen int;
  v_vain int := 0;
begin
  if not exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue)
    and not exists (select 1 from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= v_now)
    and not exists (select 1 from pawl.queue_group_note n where n.shard = p_shard and n.queue = p_queue)  -- with a note, the claim admits some
    and not exists (
      select 1 from pawl.queue_definition d
      where d.id = p_queue and d.rate_limit is not null and pawl.queue_is_rate_due(p_queue, p_shard, v_now, d.rate_per)) then
    return json_build_object('hasLost', v_lost or coalesce(v_check_at <= v_now, false));
  end if;
  perform pawl.queue_expire(p_queue, 1000);  -- before the claim: a claimed job has begun
  update pawl.queue_definition d set removed_at = null where d.id = p_queue and d.removed_at is not null;
  if p_worker is not null then
    select w.id, w.expires_at into v_worker, v_until from pawl.queue_worker w
    where w.id = p_worker and w.lost_at is null and w.expires_at > v_now for key share;
    v_held := array(select r.id from pawl.queue_running r where r.worker = v_worker);
  end if;
  if v_worker is null then
    v_until := v_now + v_lease;
    insert into pawl.queue_worker (queue, host, pid, concurrency, lease, expires_at, hold, wants_notify)
    values (p_queue, p_host, p_pid, p_limit, v_lease, v_until, 'lease', false) returning id into v_worker;
  end if;
  loop  -- the claim parks jobs of busy keys, a thousand at a time
    v_answer := pawl.queue_claim(p_queue, p_shard, v_worker, p_limit, p_limit, 1000, 1, v_priority, v_after)::json;
    exit when (v_answer ->> 'seen')::int = 0 or exists (select 1 from pawl.queue_running r where r.worker = v_worker and r.id <> all (v_held));
    -- It tries p_limit keys at a time. If these were busy, it reads from the same place again, and finds fewer jobs there.
    v_vain := case when (v_answer -> 'last' ->> 'priority', v_answer -> 'last' ->> 'id') = (v_priority::text, v_after::text)
      and (v_answer ->> 'seen')::int >= v_seen then v_vain + 1 else 0 end;
    exit when v_vain > 20;
    v_seen := v_answer ->> 'seen';
    v_priority := v_answer -> 'last' ->> 'priority';
    v_after := v_answer -> 'last' ->> 'id';
  end loop;
  if not exists (select 1 from pawl.queue_running r where r.worker = v_worker and r.id <> all (v_held)) then
    delete from pawl.queue_worker w where w.id = v_worker and not exists (select 1 from pawl.queue_running r where r.worker = w.id);
    return json_build_object('hasLost', v_lost or coalesce(v_check_at <= v_now, false));
  end if;
  return json_build_object('worker', v_worker, 'expiresAt', (extract(epoch from v_until) * 1000)::bigint, 'answer', v_answer,
    'hasLost', v_lost or coalesce(v_check_at <= v_now - interval '1 second', false),
    'kinds', (select json_object_agg(k.id, k.name) from pawl.queue_kind k where k.queue = p_queue));
end $$;

-- The claims of a pulled unit: {shard, worker, claim, job, process}; a unit that coalesces may have several. Locks their rows, and raises PW004 if the
-- unit is no longer held.
create or replace function pawl.queue_pulled(p_unit json) returns setof pawl.queue_running
language plpgsql /* planner: probe */ as $$
declare
  v_unit record;
begin
  select u.* into v_unit from json_to_record(p_unit) u (shard smallint, worker bigint, claim bigint, job bigint, process uuid);
  return query
  select r.* from pawl.queue_running r
  where r.shard = v_unit.shard and r.worker = v_unit.worker and r.process_id = v_unit.process
    and case when r.unit then true else r.id = v_unit.claim and r.ids @> v_unit.job end
  order by r.id for no key update;
  if not found then
    raise exception 'job % is no longer held under claim %: its lease ran out, or it was settled; stop working on it', v_unit.job, v_unit.claim
      using errcode = 'PW004';
  end if;
end $$;

-- Settles a pulled unit: {shard, worker, claim, job, process, to: complete | retry | error | release, wait: ms, reason, error, isGuarded, part}.
-- A job that is to be retried and has no attempt left ends in error. A job that was cancelled does not run again: it ends as cancelled unless it is
-- complete, and the other jobs of its unit are given back. part: the number of the paused part for which the job is set aside. If that part was
-- resumed meanwhile, the job does not wait, since no worker may live that brings it back. Answers {to: the outcome; of several, that of the jobs that
-- ended}, or {guarded: true}: an open transaction guards the unit, and nothing was written.
create or replace function pawl.queue_settle_pulled(p_unit json, p_result json default null) returns json
language plpgsql /* planner: probe */ as $$
declare
  v_unit record;
  v_one record;
  v_key record;
  v_wait double precision;
  v_to text;
  v_fail json;
  v_jobs json;
  v_answer json;
  v_late record;
begin
  select u.* into v_unit from json_to_record(p_unit) u (
    shard smallint, worker bigint, claim bigint, job bigint, process uuid, "to" text, wait double precision, reason text, error text, "isGuarded" boolean,
    part int);
  v_to := v_unit."to";
  select min(r.queue) as queue, array_agg(i.id) as ids,
    json_agg(json_build_object('claim', r.id, 'id', i.id, 'attempt', r.attempt)) as jobs
  into v_one from pawl.queue_pulled(p_unit) r
  cross join lateral unnest(case when r.unit then r.ids else int8multirange(int8range(v_unit.job, v_unit.job + 1)) end) s (span)
  cross join lateral generate_series(lower(s.span), upper(s.span) - 1) i (id);
  select j.key, k.epoch into v_key from pawl.queue_job j
  left join pawl.queue_key k on k.shard = v_unit.shard and k.queue = v_one.queue and k.key = j.key and k.held
  where j.shard = v_unit.shard and j.id = v_unit.job;
  v_wait := v_unit.wait;
  if v_unit.part is not null then
    perform from pawl.queue_definition d where d.id = v_one.queue and exists (
      select from json_to_recordset(d.paused_parts) p (nth int) where p.nth = v_unit.part) for share;
    v_wait := case when found then v_wait else 0 end;
  end if;
  if v_to <> 'complete' then
    with job as materialized (
      select o.claim, o.id, count(c.id) over () > 0 as is_broken,
        case when c.id is not null then concat('job ', o.id, ' was cancelled', ': ' || c.reason) end as words,
        case when c.id is not null then 'cancelled'
          when count(c.id) over () > 0 then 'release'
          when v_to = 'retry' and o.attempt >= coalesce((j.options ->> 'attempts')::smallint, kd.attempts, d.attempts) then 'error'
          else v_to end as "to"
      from json_to_recordset(v_one.jobs) o (claim bigint, id bigint, attempt smallint)
      cross join lateral (select j.* from pawl.queue_job j where j.shard = v_unit.shard and j.id = o.id offset 0) j
      join pawl.queue_kind kd on kd.id = j.kind
      join pawl.queue_definition d on d.id = j.queue
      left join pawl.queue_cancel c on c.shard = v_unit.shard and c.id = o.id and c.worker = v_unit.worker
    )
    select json_agg(json_build_object('claim', o.claim, 'ids', o.ids::text, 'to', o."to", 'wait', o.wait, 'reason', o.reason, 'error', o.error)),
      case when bool_or(o."to" = 'error') then 'error' when bool_or(o."to" = 'cancelled') then 'cancelled' else v_to end
    into v_fail, v_to from (
      select j.claim, j."to", range_agg(int8range(j.id, j.id + 1)) as ids,
        case when not j.is_broken then v_wait end as wait,
        case when j."to" = 'cancelled' and j.is_broken then 'cancel' when j.is_broken then 'another job of its unit was cancelled'
          else coalesce(v_unit.reason, 'failed') end as reason,
        case when not j.is_broken then v_unit.error else min(j.words) end as error
      from job j group by j.claim, j."to", j.is_broken, case when j.words is not null then j.id end) o;
  else
    select json_agg(json_build_object('claim', p.claim, 'ids', p.ids)), json_agg(array_prepend(p.claim, p.ids)) into v_fail, v_jobs
    from (select o.claim, array_agg(o.id) as ids from json_to_recordset(v_one.jobs) o (claim bigint, id bigint) group by o.claim) p;
  end if;
  v_answer := pawl.queue_settle(v_one.queue, v_unit.shard, v_unit.worker, '{}',
    case when v_to = 'complete' then v_fail end, case when v_to <> 'complete' then v_fail end, null,
    case when v_key.epoch is not null then array[v_key.key] end, case when v_key.epoch is not null then array[v_key.epoch] end, null,
    case when v_to = 'complete' and p_result is not null then json_build_array(json_build_array(p_result, v_jobs)) end,
    case when v_unit."isGuarded" then v_one.ids end)::json;
  if json_array_length(v_answer -> 'guarded') > 0 then
    return '{"guarded":true}';
  end if;
  if v_to <> 'release' then
    perform pawl.queue_note_untold(v_unit.shard, v_one.ids);
  end if;
  for v_late in
    select c.id, c.reason, pawl.queue_status(c.shard, c.id) = 'new' as waits from pawl.queue_cancel c
    where c.shard = v_unit.shard and c.id = any (v_one.ids) and c.worker = v_unit.worker order by c.id
  loop
    if v_late.waits is not true then
      delete from pawl.queue_cancel c where c.shard = v_unit.shard and c.id = v_late.id;
    -- The request came after this call had read the requests. If another transaction holds the job, the sweep of requests cancels it.
    elsif pawl.queue_cancel_job(null, v_late.id, v_late.reason) = 'cancelled' then
      v_to := 'cancelled';
    end if;
  end loop;
  delete from pawl.queue_worker w where w.id = v_unit.worker and not exists (select 1 from pawl.queue_running r where r.worker = w.id);
  perform pawl.queue_wake(v_one.queue);
  return json_build_object('to', v_to);
end $$;

-- Renews the lease of the jobs that were claimed together with this unit; without p_lease_ms for as long as before. Answers {expiresAt: ms, isCancelled: one of its jobs is to be cancelled, reason}.
create or replace function pawl.queue_extend(p_unit json, p_lease_ms double precision) returns json
language plpgsql as $$
declare
  v_worker bigint := p_unit ->> 'worker';
  v_lease interval := p_lease_ms * interval '1 millisecond';
  v_now timestamptz := clock_timestamp();
  v_until timestamptz;
  v_wish record;
begin
  perform pawl.queue_pulled(p_unit);
  update pawl.queue_worker w
  set beat_at = clock_timestamp(), lease = coalesce(v_lease, w.lease), expires_at = v_now + coalesce(v_lease, w.lease)
  where w.id = v_worker and w.lost_at is null returning w.expires_at into v_until;
  if not found then
    raise exception 'the lease of job % ran out; stop working on it', p_unit ->> 'job' using errcode = 'PW004';
  end if;
  select c.reason into v_wish from pawl.queue_cancel c
  join pawl.queue_running r on r.shard = c.shard and r.worker = v_worker and r.process_id = (p_unit ->> 'process')::uuid and r.ids @> c.id
  where c.shard = (p_unit ->> 'shard')::smallint and c.worker = v_worker and (r.unit or c.id = (p_unit ->> 'job')::bigint)
  order by c.id limit 1;
  return json_build_object('expiresAt', (extract(epoch from v_until) * 1000)::bigint, 'isCancelled', found, 'reason', v_wish.reason);
end $$;
