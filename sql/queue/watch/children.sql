-- Jobs that come after others: when they may run, or end without having run. Until then they are delayed until pawl.queue_never(), plain jobs as runs.
-- The jobs of a run are of one watch, or of the watches of one pack. So two settlements need the same run only if one of them has waited for the
-- other before, or a job has failed that these jobs come after.

-- The jobs that wait by these watches, by shard, in the order in which shards are dealt with.
create or replace function pawl.queue_children_of(p_watches bigint[]) returns table (shard smallint, ids int8multirange)
language sql stable /* planner: loop */ as $$
  select c.shard, range_agg(int8range(c.first, c.first + c.n))
  from unnest(p_watches) w (id) cross join lateral (select c.* from pawl.queue_child c where c.watch = w.id offset 0) c group by c.shard order by c.shard
$$;

-- These watches are over, and nothing keeps their jobs from running: lets the jobs run. Answers their queues.
create or replace function pawl.queue_free(p_watches bigint[]) returns smallint[]
language plpgsql /* planner: loop */ as $$
declare
  v_queues smallint[] := '{}';
  v_set record;
begin
  for v_set in select c.shard, c.ids from pawl.queue_children_of(p_watches) c loop
    v_queues := v_queues || pawl.queue_free_jobs(v_set.shard, v_set.ids, p_watches);
  end loop;
  return v_queues;
end $$;

-- The same for some of their jobs, of one shard.
create or replace function pawl.queue_free_jobs(p_shard smallint, p_ids int8multirange, p_watches bigint[]) returns smallint[]
language plpgsql as $$
declare
  v_freed record := pawl.queue_free_children(p_shard, p_ids);
begin
  if v_freed.passed then
    perform pawl.queue_come_back(p_watches);
  end if;
  return v_freed.queues;
end $$;

-- Makes the next queue_look return to these watches, which are over, for a job that was passed over. Such a job is being changed by hand: that
-- transaction may stay open for as long as it likes, and what it leaves is not visible here.
create or replace function pawl.queue_come_back(p_watches bigint[]) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.queue_watch w set check_at = clock_timestamp() + least(5000, 10 * 3 ^ least(w.checks, 10)) * interval '1 millisecond',
    checks = least(w.checks + 1, 100) where w.id = any (p_watches);
  select pg_notify('pawl_queue', 'look')
$$;

-- Takes those of these jobs that wait for others, as pieces of their runs. Jobs that were cancelled meanwhile are not among them. Also answers whether
-- a job was passed over.
create or replace function pawl.queue_take_children(p_shard smallint, p_ids int8multirange, out taken pawl.queue_delayed[], out passed boolean)
language sql /* planner: loop */ as $$
  with mine as materialized (
    select distinct d.tid from unnest(p_ids) s (span) cross join lateral (
      select d.ctid as tid from pawl.queue_delayed d
      where d.shard = p_shard and d.id < upper(s.span) and d.id + d.n > lower(s.span) and d.run_at = pawl.queue_never()
        -- Begins with the run that has the first of these jobs, or with that job if there is no such run.
        and d.id >= coalesce((
          select b.id from pawl.queue_delayed b where b.shard = p_shard and b.id <= lower(s.span) and b.id > lower(s.span) - 256
          order by b.id desc limit 1), lower(s.span)) offset 0) d
  ), gone as (
    delete from pawl.queue_delayed d where d.ctid = any (array(
      select d.ctid from pawl.queue_delayed d where d.ctid = any (array(select m.tid from mine m)) for update skip locked))
    returning d.*
  ), run as materialized (
    select g.*, int8multirange(int8range(g.id, g.id + g.n)) as ids from gone g
  ), rest as (
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, attempt)
    select r.run_at, lower(s.span), r.shard, r.queue, r.priority, r.kind, upper(s.span) - lower(s.span), r.attempt
    from run r cross join lateral unnest(r.ids - p_ids) s (span) where r.n > 1
  )
  select coalesce(array_agg(row(r.run_at, lower(s.span), r.shard, r.queue, r.priority, r.kind, upper(s.span) - lower(s.span), r.attempt, r.lost, r.epoch, r.key,
      r.group_name)::pawl.queue_delayed order by lower(s.span)), '{}'),
    (select count(*) from gone) < (select count(*) from mine)
  from run r cross join lateral unnest(r.ids * p_ids) s (span)
$$;

-- Makes these jobs ready, or delays them as they were asked to be; jobs of groups are due at once, and are admitted then. Plain jobs of one enqueue
-- with consecutive ids become runs, though each had a watch of its own, as if they had been ready from the beginning. A run of more than 32 jobs
-- stays as it is, so that none is longer than 256. Answers their queues, and whether a job was passed over.
create or replace function pawl.queue_free_children(p_shard smallint, p_ids int8multirange, out queues smallint[], out passed boolean)
language sql /* planner: loop */ as $$
  with taken as materialized (
    select t.* from pawl.queue_take_children(p_shard, p_ids) t
  ), child as materialized (
    select g.*, j.run_at > clock_timestamp() as is_later, j.run_at as due, j.created_at,
      g.n <= 32 and g.key is null and g.epoch is null and g.lost = 0 and j.options is null as is_plain
    from taken t cross join lateral unnest(t.taken) g cross join lateral (
      select j.run_at, j.created_at, j.options from pawl.queue_job j where j.shard = g.shard and j.id = g.id limit 1) j
  ), later as (
    insert into pawl.queue_delayed (run_at, id, shard, queue, priority, kind, n, attempt, lost, epoch, key, group_name)
    select case when c.is_later then c.due else clock_timestamp() end, c.id, c.shard, c.queue, c.priority, c.kind, c.n, c.attempt, c.lost, c.epoch, c.key, c.group_name
    from child c where c.is_later or c.group_name is not null
  ), placed as (
    select c.*, sum(c.n) over w - c.n as before from child c where c.is_later is not true and c.group_name is null
    window w as (partition by c.queue, c.priority, c.kind, c.attempt, c.created_at, c.is_plain order by c.id)
  ), ready as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, n, attempt, lost, epoch, key)
    select min(p.id), p.shard, p.queue, p.priority, p.kind, sum(p.n), p.attempt, min(p.lost), min(p.epoch), min(p.key) from placed p
    group by p.shard, p.queue, p.priority, p.kind, p.attempt, p.created_at, p.id - p.before, p.before / 224, case when not p.is_plain then p.id end
    order by p.priority, min(p.id)
  )
  select coalesce((select array_agg(distinct c.queue) from child c), '{}'), (select t.passed from taken t)
$$;

-- Ends the jobs of these watches without having run them. If one is the head of its key, the next job takes its place. Answers the jobs by shard, and
-- whether a job was passed over.
create or replace function pawl.queue_end_children(
  p_watches bigint[], p_status text, out shards smallint[], out sets int8multirange[], out passed boolean
)
language plpgsql /* planner: loop */ as $$
declare
  v_taken pawl.queue_delayed[] := '{}';
  v_set record;
  v_some record;
  v_heads json;
begin
  passed := false;
  for v_set in select c.shard, c.ids from pawl.queue_children_of(p_watches) c loop
    v_some := pawl.queue_take_children(v_set.shard, v_set.ids);
    v_taken := v_taken || v_some.taken;
    passed := passed or v_some.passed;
  end loop;
  with job as materialized (
    select t.shard, t.queue, t.kind, t.attempt, t.epoch, t.key as line, i.id, j.key,
      case when w.errors > 0 and w.after_error <> 'run' then format('%s of the jobs that it comes after ended in error', w.errors)
        else format('%s of the jobs that it comes after were cancelled', w.cancels) end as why
    from unnest(v_taken) t
    cross join lateral generate_series(t.id, t.id + t.n - 1) i (id)
    cross join lateral (select pawl.queue_watch_of(t.shard, i.id) as watch offset 0) o
    cross join lateral (select w.errors, w.cancels, w.after_error from pawl.queue_watch w where w.id = o.watch limit 1) w
    cross join lateral (select j.key from pawl.queue_job j where j.shard = t.shard and j.id = i.id limit 1) j
  ), dead as (
    insert into pawl.queue_dead (id, at, shard, queue, kind, attempt, status, key, error)
    select j.id, clock_timestamp(), j.shard, j.queue, j.kind, j.attempt, p_status, j.key, j.why from job j
  ), moved as (
    insert into pawl.queue_transition (at, id, shard, queue, attempt, from_status, to_status, reason, error)
    select clock_timestamp(), j.id, j.shard, j.queue, j.attempt, 'new', p_status, 'parents', j.why from job j
  ), wish as (
    delete from pawl.queue_cancel c using job j where c.shard = j.shard and c.id = j.id
  ), set as (
    select j.shard, range_agg(int8range(j.id, j.id + 1)) as ids from job j group by j.shard
  )
  select coalesce((select array_agg(s.shard order by s.shard) from set s), '{}'), coalesce((select array_agg(s.ids order by s.shard) from set s), '{}'),
    (select json_agg(json_build_object('queue', j.queue, 'shard', j.shard, 'key', j.line, 'epoch', j.epoch) order by j.line) from job j where j.epoch is not null)
  into shards, sets, v_heads;
  perform pawl.queue_note_untold(s.shard, array(
    select i.id from unnest(s.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)))
  from unnest(shards, sets) s (shard, ids);
  perform pawl.queue_promote_head(h.queue, h.shard, h.key, h.epoch)
  from json_to_recordset(v_heads) h (queue smallint, shard smallint, key text, epoch bigint);
  if p_status = 'error' then
    perform pawl.queue_dead_letters(s.shard, array(
      select i.id from unnest(s.ids) u (span) cross join lateral generate_series(lower(u.span), upper(u.span) - 1) i (id)))
    from unnest(shards, sets) s (shard, ids);
  end if;
end $$;
