-- Groups: at most queue_definition.per_group jobs of a group are admitted at a time, over all processes. If the queue has a rate, no more jobs of a
-- group are admitted than the rate has room for: see rate.sql.
--
-- A job of a group waits in queue_grouped until it is admitted. From then on it has a place, which is a row of queue_place, and is ready like any
-- other job: claims know no groups. It keeps its place until it ends, or waits for a retry; a crash of its worker changes nothing about that. A
-- transaction that adds a waiting job, or gives a place back, inserts a note, and locks nothing. Only queue_admit makes places, one call at a time in
-- each shard, and it checks the groups of the notes alone: if it sees a note, it sees the cause of the note. So there are never more places than
-- the limit, and none stays free while a job waits. No transaction waits for another one.

-- Admits jobs of the groups that have notes: about a thousand jobs, or a hundred if enough is ready anyway, so that places are not counted again and
-- again while no claim takes the admitted jobs. Enough are 200 rows, or 1,000 jobs: with a limit of 16 rows, jobs whose ids have gaps were admitted by
-- hundreds, and a drain took twice as long. Each enqueue and settlement leaves a note of each group, so the call removes twice as many notes as it
-- checks groups. In most groups no job may wait, or all places may be taken, so if nothing is ready, it checks more notes. The caller has the lock of
-- the empty key, which no job has. Answers how many jobs were admitted.
create or replace function pawl.queue_admit(p_queue smallint, p_shard smallint, p_now timestamptz default clock_timestamp()) returns bigint
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_per interval := (select d.rate_per from pawl.queue_definition d where d.id = p_queue);
  v_queue record;
  v_rooms int[];
  v_ready record;
  v_most int;
  v_groups text[];
  v_admitted bigint := 0;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'no job of a group can be admitted at isolation %: its snapshot may be older than its lock; use read committed',
      current_setting('transaction_isolation') using errcode = 'PW001';
  end if;
  if v_per is not null then
    perform pawl.queue_note_rates_due(p_queue, p_shard, p_now, v_per);
  end if;
  select count(*) as rows, coalesce(sum(x.n), 0) as jobs into v_ready from (
    select r.n from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue order by r.priority, r.id limit 200) x;
  v_most := case when v_ready.rows = 200 or v_ready.jobs >= 1000 then 100 else 1000 end;
  for v_round in 1..10 loop
    with note as materialized (  -- numbered by group: a join of the notes with the groups compared each with each
      select n.*, dense_rank() over (order by n.first) as nth from (
        select o.*, min(o.place) over (partition by o.group_name) as first from (
          select o.ctid as tid, o.group_name, row_number() over () as place from pawl.queue_group_note o
          where o.shard = p_shard and o.queue = p_queue limit v_most / 2) o) n
    ), gone as (
      delete from pawl.queue_group_note g where g.ctid = any (array(select n.tid from note n where n.nth <= v_most / 4))
    )
    select array_agg(distinct n.group_name order by n.group_name) into v_groups from note n where n.nth <= v_most / 4;
    exit when v_groups is null;
    -- Read after the notes: a change of the limits is committed together with notes of all groups, which are then checked by the new limits.
    select d.per_group, d.rate_limit, pawl.queue_rate_step(d.rate_limit, d.rate_per) as step into v_queue
    from pawl.queue_definition d where d.id = p_queue;
    v_rooms := case when v_queue.rate_limit is not null then
      pawl.queue_count_runs(p_queue, p_shard, v_groups, p_now, v_queue.rate_limit, v_queue.step) end;
    v_admitted := v_admitted + pawl.queue_admit_groups(
      p_queue, p_shard, v_groups, v_queue.per_group, greatest(8, v_most / cardinality(v_groups)), v_rooms);
    if v_queue.rate_limit is not null then
      perform pawl.queue_set_rates_due(p_queue, p_shard, v_groups, p_now, v_queue.rate_limit, v_queue.step);
    end if;
    exit when v_ready.rows > 0 or v_admitted * 4 >= v_most;
  end loop;
  return v_admitted;
end $$;

-- Admits jobs of these groups, p_each of a group at most, in the order of priority and id. p_rooms: how many the rate of each group has room for; null
-- without a rate. If more jobs of a group can be admitted, the group gets a new note: because of p_each, or because another transaction changes
-- waiting jobs by hand. Plain jobs of one enqueue with consecutive ids become runs, whatever their groups. Answers how many jobs.
create or replace function pawl.queue_admit_groups(
  p_queue smallint, p_shard smallint, p_groups text[], p_places int, p_each int, p_rooms int[]
) returns bigint
language sql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
  with waiting as materialized (
    select u.name, u.room, case when p_places < pawl.queue_unlimited() then (
      select count(*) from (
        select 1 from pawl.queue_place p where p.shard = p_shard and p.queue = p_queue and p.group_name = u.name limit p_places) x) else 0 end as taken
    from unnest(p_groups, p_rooms) u (name, room)
    where exists (select 1 from pawl.queue_grouped g where g.shard = p_shard and g.queue = p_queue and g.group_name = u.name offset 0)
  ), picked as materialized (
    select w.name, w.room, w.taken, x.tids, x.n from waiting w cross join lateral (
      select array_agg(y.tid) as tids, count(*) as n from (
        select g.ctid as tid from pawl.queue_grouped g where g.shard = p_shard and g.queue = p_queue and g.group_name = w.name
        order by g.priority, g.id limit least(p_places - w.taken, p_each, w.room) for update skip locked) y) x
  ), gone as (
    delete from pawl.queue_grouped g where g.ctid = any (array(select t.tid from picked p cross join lateral unnest(p.tids) t (tid))) returning g.*
  ), place as (
    insert into pawl.queue_place (id, shard, queue, group_name) select g.id, p_shard, p_queue, g.group_name from gone g
  ), permit as (
    insert into pawl.queue_permit (id, shard, queue, group_name) select g.id, p_shard, p_queue, g.group_name from gone g where p_rooms is not null
  ), stands as (  -- one row for all places of the queue in this shard: see queue_ended
    insert into pawl.queue_watch_part (shard, bucket, watch, first, outstanding)
    select p_shard, -1, 0, p_queue, '{[0,1)}' where exists (select 1 from picked p where p.n > 0) on conflict do nothing
  ), again as (
    insert into pawl.queue_group_note (shard, queue, group_name)
    select p_shard, p_queue, p.name from picked p
    where p.taken + p.n < p_places and (p.room is null or p.n < p.room) and (p.n >= p_each or exists (  -- after p_each the next one is not searched for: that costs as much as a note
      select 1 from pawl.queue_grouped g where g.shard = p_shard and g.queue = p_queue and g.group_name = p.name
      order by g.priority, g.id offset p.n limit 1))
  ), placed as (
    select g.*, row_number() over w as nth, g.id - row_number() over w as island from gone g
    window w as (partition by g.priority, g.kind, g.made_at order by g.id)
  ), ready as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, n, attempt, lost, key)
    select min(p.id), p_shard, p_queue, p.priority, p.kind, count(*), min(p.attempt), min(p.lost), min(p.key) from placed p
    group by p.priority, p.kind, p.made_at, p.island, (p.nth - 1) / 256, case when p.made_at is null then p.id end
    order by p.priority, min(p.id)
  )
  select count(*) from gone
$$;

-- Lets these jobs of groups wait for places. p_attempts and p_losts: what they have spent; null for none.
create or replace function pawl.queue_line_up(
  p_queue smallint, p_shard smallint, p_ids bigint[], p_attempts smallint[] default null, p_losts smallint[] default null
) returns void
language sql /* planner: loop */ as $$
  with line as (
    insert into pawl.queue_grouped (id, made_at, shard, queue, priority, kind, attempt, lost, key, group_name)
    select j.id, case when j.options is null and v.key is null and v.attempt = 0 and v.lost = 0 then j.created_at end,
      p_shard, p_queue, j.priority, j.kind, v.attempt, v.lost, v.key, j.group_name
    from unnest(p_ids, p_attempts, p_losts) u (id, attempt, lost)
    cross join lateral (select j.* from pawl.queue_job j where j.shard = p_shard and j.id = u.id limit 1) j
    cross join lateral (
      select case when (select d.keyed from pawl.queue_definition d where d.id = p_queue) then j.key end as key,
        coalesce(u.attempt, 0::smallint) as attempt, coalesce(u.lost, 0::smallint) as lost) v
    returning group_name
  )
  insert into pawl.queue_group_note (shard, queue, group_name) select distinct p_shard, p_queue, l.group_name from line l
$$;

-- Gives back the places of these jobs, which no longer need them. Answers the queues in which others may be admitted now.
create or replace function pawl.queue_leave_places(p_shard smallint, p_ids int8multirange) returns smallint[]
language sql /* planner: loop */ as $$
  with gone as (
    -- Found range by range. A join read all places of the shard, and compared each with each range: 556 ranges and 888 places took 0.4 s.
    delete from pawl.queue_place p where p.ctid = any (array(
      select x.ctid from unnest(p_ids) s (span) cross join lateral (
        select p.ctid from pawl.queue_place p where p.shard = p_shard and p.id >= lower(s.span) and p.id < upper(s.span) order by p.id offset 0) x))
    returning p.queue, p.group_name
  ), noted as (
    insert into pawl.queue_group_note (shard, queue, group_name) select distinct p_shard, g.queue, g.group_name from gone g returning queue
  )
  select coalesce(array_agg(distinct n.queue), '{}') from noted n
$$;

-- Gives back the places of jobs that something other than Pawl has deleted. Nothing else would ever end such a job, and a group whose places all
-- belong to such jobs would stand still.
create or replace function pawl.queue_sweep_places(p_queue smallint, p_limit int) returns void
language sql /* planner: loop */ as $$
  with gone as (
    delete from pawl.queue_place p where p.ctid = any (array(
      select p.ctid from pawl.queue_place p
      where p.queue = p_queue and not exists (select 1 from pawl.queue_job j where j.shard = p.shard and j.id = p.id)
      limit p_limit for update skip locked))
    returning p.shard, p.group_name
  ), noted as (
    insert into pawl.queue_group_note (shard, queue, group_name) select distinct g.shard, p_queue, g.group_name from gone g returning queue
  )
  select pawl.queue_wake(n.queue) from noted n limit 1
$$;

-- Gives back the places of failed jobs that wait for a retry. Answers as queue_leave_places.
create or replace function pawl.queue_leave_delayed(p_shard smallint, p_fail json) returns smallint[]
language sql /* planner: loop */ as $$
  select pawl.queue_leave_places(p_shard, range_agg(int8range(d.id, d.id + 1)))
  from json_to_recordset(p_fail) f (id bigint, ids int8multirange)
  cross join lateral unnest(coalesce(f.ids, int8multirange(int8range(f.id, f.id + 1)))) s (span)
  cross join lateral (
    select d.id from pawl.queue_delayed d
    where d.shard = p_shard and d.id >= lower(s.span) and d.id < upper(s.span) and d.group_name is not null offset 0) d
$$;

-- The options of a job without its group, which has a column of its own; null when nothing is left.
create or replace function pawl.queue_without_group(p_options json) returns json
language sql immutable as $$
  select case when p_options ->> 'group' is null then nullif(p_options::text, 'null')::json
    else nullif(p_options::jsonb - 'group', '{}')::json end
$$;
