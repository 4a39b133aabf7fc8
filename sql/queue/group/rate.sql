-- Rates: at most queue_definition.rate_limit runs of a group begin within rate_per, and then one each step of rate_per / rate_limit.
--
-- This is the generic cell rate algorithm (GCRA), by the database's clock. It remembers one time of a group, the theoretical arrival time. Each run
-- that begins moves that time on by a step, from the present at least. A run may begin while that time is not further ahead than the limit allows.
-- So any time T has at most rate_limit + ceil(T / step) begins.
--
-- A job is admitted before it is claimed, and has a permit from then on (queue_permit). While the permit is unused, its run counts as one that begins
-- now: however late a worker claims admitted jobs, no more of them wait than may begin at once. The claim notes when it used the permit. When
-- queue_admit next checks the group, it counts the permit, and removes it. If the job of a permit no longer has a place, the permit was used by a
-- transaction that is over (hold: 'transaction'), or never. It then counts as used at that moment, which is later than the truth, and never too early.
--
-- Only queue_admit makes, counts and removes permits, one call at a time in each shard. Claims update the permits of their own jobs. So no transaction
-- waits for another one.

-- How far a run moves the theoretical arrival time. Rounded up, so that never more runs begin than the limit.
create or replace function pawl.queue_rate_step(p_limit int, p_per interval) returns interval
language sql immutable as $$
  select ceil(extract(epoch from p_per) * 1000000 / p_limit)::double precision * interval '1 microsecond'
$$;

-- The theoretical arrival time of a group, with all runs that have begun; the time that queue_rate has (kept); and how many permits are unused. Both
-- times are null if nothing is known. A time that is further ahead than the limit allows was written by a clock that has been set back, or under
-- another rate: it becomes the last time that is allowed. One second more is allowed, since claims and queue_admit may read the clock in another
-- order than they commit.
create or replace function pawl.queue_rate_of(
  p_queue smallint, p_shard smallint, p_group text, p_now timestamptz, p_limit int, p_step interval, out tat timestamptz, out kept timestamptz, out unused bigint
)
language sql stable /* planner: loop */ as $$
  with permit as materialized (
    select coalesce(t.used_at, case when not exists (
      select 1 from pawl.queue_place p where p.shard = p_shard and p.id = t.id) then p_now end) as used_at
    from pawl.queue_permit t where t.shard = p_shard and t.queue = p_queue and t.group_name = p_group
  ), used as (
    select p.used_at, row_number() over (order by p.used_at desc) as nth from permit p where p.used_at is not null
  ), rate as (
    select (select r.tat from pawl.queue_rate r where r.shard = p_shard and r.queue = p_queue and r.group_name = p_group) as tat
  ), moved as (
    select greatest(min(r.tat) + count(u.nth) * p_step, max(u.used_at + u.nth * p_step)) as tat, min(r.tat) as kept from rate r left join used u on true
  )
  select case when m.tat > p_now + p_limit * p_step + interval '1 second' then p_now + p_limit * p_step else m.tat end, m.kept,
    (select count(*) from permit p where p.used_at is null)
  from moved m
$$;

-- How many runs may be admitted in addition to those with unused permits.
create or replace function pawl.queue_rate_room(p_tat timestamptz, p_unused bigint, p_now timestamptz, p_limit int, p_step interval) returns int
language sql immutable as $$
  select greatest(0, p_limit - p_unused - ceil(greatest(extract(epoch from p_tat - p_now), 0) / extract(epoch from p_step)))::int
$$;

-- When there is room for one more run, if p_ahead others are admitted before it.
create or replace function pawl.queue_rate_due(p_tat timestamptz, p_unused bigint, p_ahead bigint, p_now timestamptz, p_limit int, p_step interval)
returns timestamptz
language sql immutable as $$
  select greatest(p_tat, p_now) + (p_unused + p_ahead + 1 - p_limit) * p_step
$$;

-- Counts which runs of these groups have begun, and answers how many more of each may be admitted. It is one statement, so that it counts exactly the
-- permits that it removes.
create or replace function pawl.queue_count_runs(
  p_queue smallint, p_shard smallint, p_groups text[], p_now timestamptz, p_limit int, p_step interval
) returns int[]
language sql /* planner: loop */ as $$
  with state as materialized (
    select u.name, u.ord, r.* from unnest(p_groups) with ordinality u (name, ord)
    cross join lateral pawl.queue_rate_of(p_queue, p_shard, u.name, p_now, p_limit, p_step) r
  ), counted as (
    delete from pawl.queue_permit t where t.shard = p_shard and t.queue = p_queue and t.group_name = any (p_groups)
      and (t.used_at is not null or not exists (select 1 from pawl.queue_place p where p.shard = p_shard and p.id = t.id))
  ), moved as (
    insert into pawl.queue_rate (shard, queue, group_name, tat)
    select p_shard, p_queue, s.name, s.tat from state s where s.tat is distinct from s.kept
    on conflict (shard, queue, group_name) do update set tat = excluded.tat
  )
  select array_agg(pawl.queue_rate_room(s.tat, s.unused, p_now, p_limit, p_step) order by s.ord) from state s
$$;

-- Notes when these groups are to be checked again, if a job waits and the rate has no room. If that is too early, because a permit is used later, that
-- check notes a new time.
create or replace function pawl.queue_set_rates_due(
  p_queue smallint, p_shard smallint, p_groups text[], p_now timestamptz, p_limit int, p_step interval
) returns void
language sql /* planner: loop */ as $$
  with state as materialized (
    select u.name, r.tat, case when pawl.queue_rate_room(r.tat, r.unused, p_now, p_limit, p_step) = 0 and exists (
        select 1 from pawl.queue_grouped g where g.shard = p_shard and g.queue = p_queue and g.group_name = u.name offset 0)
      then least(pawl.queue_rate_due(r.tat, r.unused, 0, p_now, p_limit, p_step), p_now + p_limit * p_step) end as due_at
    from unnest(p_groups) u (name) cross join lateral pawl.queue_rate_of(p_queue, p_shard, u.name, p_now, p_limit, p_step) r
  )
  insert into pawl.queue_rate as r (shard, queue, group_name, tat, due_at)
  select p_shard, p_queue, s.name, coalesce(s.tat, p_now), s.due_at from state s where s.due_at is not null
  on conflict (shard, queue, group_name) do update set due_at = excluded.due_at where r.due_at is distinct from excluded.due_at
$$;

-- Whether a group is to be checked because of its rate: it is due, or due so late that the clock has been set back since.
create or replace function pawl.queue_is_rate_due(p_queue smallint, p_shard smallint, p_now timestamptz, p_per interval) returns boolean
language plpgsql stable /* planner: probe */ as $$
begin
  return exists (select 1 from pawl.queue_rate r where r.shard = p_shard and r.queue = p_queue and r.due_at <= p_now)
    or exists (select 1 from pawl.queue_rate r where r.shard = p_shard and r.queue = p_queue and r.due_at > p_now + p_per + interval '1 second');
end $$;

-- Inserts notes of these groups, a thousand at most of each of the two sorts.
create or replace function pawl.queue_note_rates_due(p_queue smallint, p_shard smallint, p_now timestamptz, p_per interval) returns void
language sql /* planner: loop */ as $$
  with due as (
    update pawl.queue_rate u set due_at = null where u.ctid = any (array(
      (select r.ctid from pawl.queue_rate r where r.shard = p_shard and r.queue = p_queue and r.due_at <= p_now order by r.due_at limit 1000)
      union all
      (select r.ctid from pawl.queue_rate r
       where r.shard = p_shard and r.queue = p_queue and r.due_at > p_now + p_per + interval '1 second' order by r.due_at limit 1000)))
    returning u.group_name
  )
  insert into pawl.queue_group_note (shard, queue, group_name) select p_shard, p_queue, d.group_name from due d
$$;

-- Notes that claims have taken these jobs: p_ns from each of p_firsts on.
create or replace function pawl.queue_use_permits(p_shard smallint, p_firsts bigint[], p_ns int[], p_now timestamptz) returns void
language sql /* planner: loop */ as $$
  update pawl.queue_permit t set used_at = p_now from unnest(p_firsts, p_ns) u (first, n)
  where t.shard = p_shard and t.id >= u.first and t.id < u.first + u.n and t.used_at is null
$$;

-- How many ms until something in a queue with a rate is due: a delayed job, or a group. Null: nothing will be due.
create or replace function pawl.queue_next_due(p_queue smallint, p_shard smallint) returns numeric
language plpgsql /* planner: probe */ as $$
begin
  return greatest(0, ceil(extract(epoch from least(
    (select d.run_at from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1),
    (select r.due_at from pawl.queue_rate r where r.shard = p_shard and r.queue = p_queue and r.due_at is not null order by r.due_at limit 1)
  ) - clock_timestamp()) * 1000));
end $$;

-- {limit, perMs, until: when the rate has room for a job of the group with p_ahead others before it; null: now}.
create or replace function pawl.queue_explain_rate(p_queue smallint, p_shard smallint, p_group text, p_ahead bigint, p_limit int, p_per interval) returns json
language sql stable as $$
  select json_build_object('limit', p_limit, 'perMs', extract(epoch from p_per) * 1000, 'until', case when d.due_at > n.now then d.due_at end)
  from (select clock_timestamp() as now, pawl.queue_rate_step(p_limit, p_per) as step offset 0) n
  cross join lateral pawl.queue_rate_of(p_queue, p_shard, p_group, n.now, p_limit, n.step) r
  cross join lateral (select pawl.queue_rate_due(r.tat, r.unused, p_ahead, n.now, p_limit, n.step) as due_at) d
$$;

-- Removes rows that say nothing any more: of groups that have not used their rate for a minute, and of queues without a rate.
create or replace function pawl.queue_prune_rates(p_queue smallint, p_limit int) returns void
language sql /* planner: loop */ as $$
  with permit as (
    delete from pawl.queue_permit t where t.ctid = any (array(
      select p.ctid from pawl.queue_permit p
      where p.queue = p_queue and (select d.rate_limit is null from pawl.queue_definition d where d.id = p_queue) limit p_limit for update skip locked))
  )
  delete from pawl.queue_rate r where r.ctid = any (array(
    select o.ctid from pawl.queue_rate o
    where o.queue = p_queue and (o.due_at is null and o.tat < clock_timestamp() - interval '1 minute'
      or (select d.rate_limit is null from pawl.queue_definition d where d.id = p_queue)) limit p_limit for update skip locked))
$$;
