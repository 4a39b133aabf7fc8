-- Jobs whose worker was lost while they ran: which of them are charged an attempt, and which become suspects, to be run alone.

-- Gives back the jobs that a worker holds, except those of the claims that it knows. Answers how many jobs these were, and which of them ended.
-- p_known: a worker whose claim was committed but whose answer was lost names the claims that it knows. The others are not charged: no handler has
-- begun, so none can guard a job. Null: the worker is lost, and knows none.
-- Of a lost worker's jobs, those are charged that were lost most often in a row before. If none was lost before, all are charged, since it is
-- unknown which had begun: a job that kills each of its workers is soon the only one. The others come back as lost once, and so run alone: if one
-- of them is to blame, too, it is charged the next time. A job that is lost for the fifth time in a row ends in error, whatever attempts it has
-- left: with 15 of them it would kill 15 workers. A job whose group has a rate is admitted again, since its next run counts, too.
create or replace function pawl.queue_give_back(p_worker bigint, p_known bigint[], p_charge boolean, out jobs integer, out ended bigint[])
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_keys json;
  v_lined json;
begin
  with disowned as (
    delete from pawl.queue_running r where p_known is not null and r.worker = p_worker and r.id <> all (p_known) returning r.*
  ), gone as materialized (
    select d.* from disowned d
    union all
    select r.* from pawl.queue_revoke_claims(p_worker) r where p_known is null
  ), held as materialized (
    select g.shard, g.queue, g.claimed_at, g.process_id, g.attempt, g.lost, max(g.lost) over () as most, i.id, j.kind, j.priority, j.key as own_key, k.key, k.epoch,
      case when q.rate_limit is not null and k.key is null then j.group_name end as rated_group,
      -- Of a key, only the first job can have begun, or the one unit that was claimed.
      p_charge and g.lost = max(g.lost) over () and (k.key is null or g.unit or i.id = min(i.id) over (partition by g.shard, g.queue, k.key)) as charged,
      coalesce((j.options ->> 'attempts')::smallint, kd.attempts, q.attempts) as attempts
    from gone g
    cross join lateral unnest(g.ids) u (span)
    cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)
    cross join lateral (select j.kind, j.priority, j.key, j.group_name, j.options from pawl.queue_job j where j.shard = g.shard and j.id = i.id limit 1) j
    join pawl.queue_definition q on q.id = g.queue
    join pawl.queue_kind kd on kd.id = j.kind
    left join lateral (
      select k.key, k.epoch from pawl.queue_key k
      where k.shard = g.shard and k.queue = g.queue and k.key = j.key and k.held limit 1) k on true
  ), job as materialized (
    select h.*, (case when h.charged then h.attempt else h.attempt - 1 end)::smallint as after, h.charged and (h.attempt >= h.attempts or h.lost >= 4) as spent,
      (case when h.charged then h.lost + 1 when p_charge then greatest(h.lost, 1) else h.lost end)::smallint as now_lost
    from held h
  ), dead as (
    insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
    select j.id, v_now, j.shard, j.queue, j.kind, j.attempt, 'error', j.own_key,
      'the worker was lost during attempt ' || j.attempt || ', the last one'
    from job j where j.spent
  ), ready as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt, lost)
    select j.id, j.shard, j.queue, j.priority, j.kind, j.after, j.now_lost from job j where not j.spent and j.key is null and j.rated_group is null
  ), delayed as (
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, attempt, lost, group_name)
    select v_now, j.id, j.shard, j.queue, j.priority, j.kind, j.after, j.now_lost, j.rated_group from job j where not j.spent and j.rated_group is not null
  ), parked as (
    insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
    select j.id, j.shard, j.queue, j.priority, j.kind, j.after, j.now_lost, j.key from job j where not j.spent and j.key is not null
  ), moved as (
    insert into pawl.queue_transition (at, claimed_at, id, worker, process_id, shard, queue, attempt, from_status, to_status, reason)
    select v_now, j.claimed_at, j.id, p_worker, j.process_id, j.shard, j.queue, j.attempt, 'in-progress',
      case when j.spent then 'error' else 'new' end,
      case when not p_charge then 'claim lost' when j.lost < j.most then 'lost with another' else 'worker lost' end
    from job j
  )
  select (select count(*) from job), array(select j.id from job j where j.spent), coalesce(json_agg(k), '[]'), (
    select json_agg(l) from (
      select j.shard, range_agg(int8range(j.id, j.id + 1))::text as ids from job j where not j.spent and j.rated_group is not null group by j.shard) l)
  into jobs, ended, v_keys, v_lined
  from (
    select d.shard, d.queue, array_agg(d.key order by d.key) as keys, array_agg(d.epoch order by d.key) as epochs
    from (select distinct h.shard, h.queue, h.key, h.epoch from held h where h.key is not null) d group by d.shard, d.queue
  ) k;
  if ended <> '{}' then
    perform pawl.queue_dead_letters(null, ended);
    perform pawl.queue_block_keys(null, ended);
  end if;
  perform pawl.queue_leave_places(l.shard, l.ids) from json_to_recordset(v_lined) l (shard smallint, ids int8multirange);
  -- The keys of the jobs just given back, and no others: this worker may hold more keys.
  perform pawl.queue_release_keys(k.queue, k.shard, k.keys, k.epochs)
  from json_to_recordset(v_keys) k (shard smallint, queue smallint, keys text[], epochs bigint[]);
end $$;

-- Charges jobs that a lost worker ran inside its own open transaction: the crash rolled everything back, the attempt included. p_waits: their
-- transactions are just ending, so it waits for the locks of the jobs. A job that another transaction has locked stays noted, for the next
-- rescue: a job that kills every worker is claimed anew long before the lease of the last one is over. Answers as queue_give_back does.
create or replace function pawl.queue_suspect(p_worker bigint, p_waits boolean, out jobs integer, out ended bigint[])
language plpgsql as $$
begin
  if p_waits then
    perform pg_advisory_xact_lock(hashtextextended(k.key, k.queue * 65536 + k.shard)) from (
      select distinct j.key, j.queue, j.shard from pawl.queue_worker w cross join lateral unnest(w.holding) i (id)
      join pawl.queue_job j on j.id = i.id where w.id = p_worker and j.key is not null order by 1) k;
    perform 1 from pawl.queue_worker w cross join lateral unnest(w.holding) i (id) join pawl.queue_job j on j.id = i.id
    join pawl.queue_ready r on r.shard = j.shard and r.queue = j.queue and r.priority = j.priority and r.id = j.id and r.n = 1
    where w.id = p_worker order by r.id for update of r;
  end if;
  with held as (
    select w.queue, i.id from pawl.queue_worker w cross join lateral unnest(w.holding) i (id) where w.id = p_worker
  ), there as materialized (
    select r.ctid as tid, r.shard, r.queue, r.id, r.kind, r.key, r.attempt + 1 as attempt,
      a.attempts, (r.attempt + 1 >= a.attempts or r.lost >= 4) and r.key is null as spent
    from held h join pawl.queue_job j on j.id = h.id
    join pawl.queue_ready r on r.shard = j.shard and r.queue = j.queue and r.priority = j.priority and r.id = j.id and r.n = 1
    join pawl.queue_definition q on q.id = r.queue join pawl.queue_kind kd on kd.id = r.kind
    cross join lateral (select coalesce((j.options ->> 'attempts')::smallint, kd.attempts, q.attempts) as attempts) a
    -- A job of a key that has no attempt left waits for its end. Dead workers that ran it in between spend no attempt that it does not have.
    where r.key is null or r.attempt < a.attempts
  ), free as materialized (
    -- The jobs of a key never move without the key's lock.
    select t.* from there t where t.key is null or pawl.queue_try_key(t.queue, t.shard, t.key)
  ), mine as materialized (
    select f.* from free f join pawl.queue_ready r on r.ctid = f.tid for update of r skip locked
  ), kept as (
    update pawl.queue_worker w set holding = array(select t.id from there t where t.id not in (select m.id from mine m))
    where w.id = p_worker
  ), charged as (
    -- If a job of a key has no attempt left, the worker that claims it next ends it.
    update pawl.queue_ready r set attempt = case when r.lost >= 4 then greatest(m.attempt, m.attempts) else m.attempt end, lost = r.lost + 1 from mine m where r.ctid = m.tid and not m.spent
  ), gone as (
    delete from pawl.queue_ready r using mine m where r.ctid = m.tid and m.spent
  ), dead as (
    insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
    select m.id, clock_timestamp(), m.shard, m.queue, m.kind, m.attempt, 'error', m.key,
      'the worker was lost during attempt ' || m.attempt || ', the last one' from mine m where m.spent
  ), moved as (
    insert into pawl.queue_transition (at, id, worker, shard, queue, attempt, from_status, to_status, reason)
    select clock_timestamp(), m.id, p_worker, m.shard, m.queue, m.attempt, 'in-progress',
      case when m.spent then 'error' else 'new' end, 'worker lost' from mine m
  )
  select count(*), coalesce(array_agg(m.id) filter (where m.spent), '{}') into jobs, ended from mine m;
  if ended <> '{}' then
    perform pawl.queue_dead_letters(null, ended);
  end if;
end $$;

-- Spends an attempt of jobs whose transaction was lost, or refused, under a worker that lives: {queue, shard, worker, ids, attempts, ends, reason,
-- error}. ends: they end in error, whatever attempts they have left; attempts: only while they are still in these, for when it is unknown whether
-- the last COMMIT took place. Answers [{id, to}] of those charged; nothing if the worker was found dead meanwhile: the rescue that found it
-- charges the jobs. If a job is claimed again, this waits for the end of that transaction, up to the lock timeout: otherwise it would always be
-- too late. Locks are taken in the order worker, key, job.
create or replace function pawl.queue_charge(p_charge json) returns json
language plpgsql /* planner: probe */ set lock_timeout = '1s' as $$
declare
  v_charge record;
  v_job record;
  v_key record;
  v_at record;
  v_to text;
  v_done json[] := '{}';
  v_dead bigint[] := '{}';
begin
  select c.* into v_charge from json_to_record(p_charge) c (
    queue smallint, shard smallint, worker bigint, ids bigint[], attempts smallint[], ends boolean, reason text, error text);
  perform 1 from pawl.queue_worker w where w.id = v_charge.worker and w.lost_at is null for key share;
  if not found then
    return '[]';
  end if;
  for v_job in
    select j.id, u.attempt, j.kind, j.priority, j.key, case when q.keyed then j.key end as key_name,
      coalesce((j.options ->> 'attempts')::smallint, k.attempts, q.attempts) as attempts
    from unnest(v_charge.ids, v_charge.attempts) u (id, attempt)
    cross join lateral (select j.* from pawl.queue_job j where j.shard = v_charge.shard and j.id = u.id limit 1) j
    join pawl.queue_definition q on q.id = j.queue join pawl.queue_kind k on k.id = j.kind order by j.id
  loop
    v_key := pawl.queue_lock_key(v_charge.queue, v_charge.shard, v_job.key_name);
    select r.ctid as tid, r.attempt, r.epoch, false as parked into v_at from pawl.queue_ready r
    where r.shard = v_charge.shard and r.queue = v_charge.queue and r.priority = v_job.priority and r.id = v_job.id and r.n = 1
      and (v_job.attempt is null or r.attempt + 1 = v_job.attempt)
    for update;
    if not found and v_job.key_name is not null then
      select p.ctid as tid, p.attempt, null::bigint as epoch, true as parked into v_at from pawl.queue_parked p
      where p.shard = v_charge.shard and p.queue = v_charge.queue and p.key = v_job.key and p.kind = v_job.kind and p.id = v_job.id
        and (v_job.attempt is null or p.attempt + 1 = v_job.attempt)
      for update;
    end if;
    continue when v_at.tid is null;
    v_to := case when v_charge.ends or v_at.attempt + 1 >= v_job.attempts then 'error' else 'new' end;
    if v_to = 'new' and v_at.parked then
      update pawl.queue_parked p set attempt = v_at.attempt + 1 where p.ctid = v_at.tid;
    elsif v_to = 'new' then
      update pawl.queue_ready r set attempt = v_at.attempt + 1 where r.ctid = v_at.tid;
    else
      if v_at.parked then
        delete from pawl.queue_parked p where p.ctid = v_at.tid;
      else
        delete from pawl.queue_ready r where r.ctid = v_at.tid;
      end if;
      insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
      values (v_job.id, clock_timestamp(), v_charge.shard, v_charge.queue, v_job.kind, v_at.attempt + 1, 'error', v_job.key, v_charge.error);
      v_dead := v_dead || v_job.id;
      if v_job.key_name is not null and not pawl.queue_block_keys(v_charge.shard, array[v_job.id]) then
        perform pawl.queue_replace_head(v_charge.queue, v_charge.shard, v_job.key_name, v_key.held, v_key.epoch, v_at.epoch);
      end if;
    end if;
    insert into pawl.queue_transition (at, id, worker, shard, queue, attempt, from_status, to_status, reason, error)
    values (clock_timestamp(), v_job.id, v_charge.worker, v_charge.shard, v_charge.queue, v_at.attempt + 1, 'in-progress', v_to, v_charge.reason, v_charge.error);
    v_done := array_append(v_done, json_build_object('id', v_job.id, 'to', v_to));
  end loop;
  -- If the worker is found dead from now on, no rescue charges these jobs once more.
  update pawl.queue_worker w set holding = array(select i.id from unnest(w.holding) i (id) where i.id <> all (v_charge.ids))
  where w.id = v_charge.worker and w.holding && v_charge.ids;
  if v_dead <> '{}' then
    perform pawl.queue_dead_letters(v_charge.shard, v_dead);
  end if;
  perform pawl.queue_wake(v_charge.queue);
  perform pawl.queue_ended(v_charge.shard, array_agg(int8multirange(int8range(i.id, i.id + 1))))
  from (select (d.done ->> 'id')::bigint as id from unnest(v_done) d (done) where d.done ->> 'to' = 'error') i;
  return array_to_json(v_done);
end $$;
