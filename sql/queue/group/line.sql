-- What a queue says about its groups, and why a job of a group waits.

-- The limit of a queue that once declared a limit, and no longer does: its groups are admitted without one.
create or replace function pawl.queue_unlimited() returns int
language sql immutable set search_path = pg_catalog, pg_temp as $$ select 2147483647 $$;

-- Raises PW001 unless a job of this queue, kind and key may have this group.
create or replace function pawl.queue_check_group(p_queue pawl.queue_definition, p_kind pawl.queue_kind, p_group text, p_key text) returns void
language plpgsql stable as $$
begin
  if octet_length(p_group) not between 1 and 100 then
    raise exception 'group must be 1 to 100 bytes long, got % bytes', octet_length(p_group) using errcode = 'PW001', column = 'group';
  elsif not pawl.queue_has_groups(p_queue) then
    raise exception 'queue "%" has no limit for groups; declare concurrency: { perGroup: 2 }, or leave group out', p_queue.name
      using errcode = 'PW001', column = 'group';
  elsif p_kind.coalesce <> 'none' or cardinality(p_kind.after) > 0 then
    raise exception 'the jobs of kind "%" become one unit, or come after others, of their key, so they cannot wait for places of a group', p_kind.name
      using errcode = 'PW001', column = 'group';
  elsif p_queue.blocks and p_key is not null then
    raise exception 'queue "%" has keyOnError: ''block'', which keeps the order of a key; a job of a group waits outside that order: leave key or group out', p_queue.name
      using errcode = 'PW001', column = 'group';
  elsif p_key is not null and p_queue.keyed and p_queue.shards > 1 then
    raise exception 'a job with a key and a group needs a queue with one shard, and "%" has %: the key and the group could name different shards', p_queue.name, p_queue.shards
      using errcode = 'PW001', column = 'group';
  elsif p_key is not null and p_queue.keyed and p_queue.rate_limit is not null then
    raise exception 'queue "%" has a rate for groups, which counts a run when its job is claimed, and jobs of a key are claimed before their turn: leave key or group out, or declare concurrency: { perKey: Infinity }', p_queue.name
      using errcode = 'PW001', column = 'group';
  end if;
end $$;

-- Whether the jobs of a queue may have groups, by its last declaration.
create or replace function pawl.queue_has_groups(p_queue pawl.queue_definition) returns boolean
language sql immutable as $$
  select coalesce(p_queue.per_group, pawl.queue_unlimited()) < pawl.queue_unlimited() or p_queue.rate_limit is not null
$$;

-- Changes the limits of a queue: more jobs may be admitted. If a limit falls, no place is taken back, and none is given until enough have been given
-- back. Runs that have begun still count, by the new rate. Meanwhile no claim admits jobs, since it would use the old rate.
create or replace function pawl.queue_change_limits(p_queue smallint, p_places int, p_rate_limit int, p_rate_per interval) returns void
language plpgsql /* planner: loop */ as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('', p_queue * 65536 + s)) from pawl.queue_definition d cross join generate_series(0, d.shards - 1) s
  where d.id = p_queue and d.rate_limit is not null;
  update pawl.queue_rate r set tat = c.now + extract(epoch from r.tat - c.now)::double precision / extract(epoch from c.step)::double precision
    * pawl.queue_rate_step(p_rate_limit, p_rate_per)
  from (
    select clock_timestamp() as now, pawl.queue_rate_step(d.rate_limit, d.rate_per) as step from pawl.queue_definition d
    where d.id = p_queue and d.rate_limit is not null and (d.rate_limit, d.rate_per) is distinct from (p_rate_limit, p_rate_per)) c
  where r.queue = p_queue and r.tat > c.now and p_rate_limit is not null;
  update pawl.queue_definition d set per_group = p_places, rate_limit = p_rate_limit, rate_per = p_rate_per where d.id = p_queue;
  insert into pawl.queue_group_note (shard, queue, group_name)
  with recursive line as (
    select g.shard, g.group_name from generate_series(0, 255) s cross join lateral (
      select g.shard, g.group_name from pawl.queue_grouped g where g.shard = s::smallint and g.queue = p_queue
      order by g.group_name limit 1) g
    union all
    select l.shard, g.group_name from line l cross join lateral (
      select g.group_name from pawl.queue_grouped g where g.shard = l.shard and g.queue = p_queue and g.group_name > l.group_name
      order by g.group_name limit 1) g
  )
  select l.shard, p_queue, l.group_name from line l;
  if found then
    perform pawl.queue_wake(p_queue);
  end if;
end $$;

-- What keeps a job of a group from being admitted: {name, places, taken, holders: the first of the jobs that have places, ahead: how many are admitted
-- before it, rate: {limit, perMs, until: when it has room for this job}}. Every count is bounded.
create or replace function pawl.queue_explain_group(p_queue smallint, p_shard smallint, p_group text, p_priority smallint, p_id bigint) returns json
language sql stable /* planner: probe */ as $$
  select json_build_object('name', p_group, 'places', nullif(d.per_group, pawl.queue_unlimited()), 'taken', (
      select count(*) from (
        select 1 from pawl.queue_place p where p.shard = p_shard and p.queue = p_queue and p.group_name = p_group limit 10000) x),
    'holders', (
      select coalesce(json_agg(x.id::text order by x.id), '[]') from (
        select p.id from pawl.queue_place p where p.shard = p_shard and p.queue = p_queue and p.group_name = p_group limit 5) x),
    'ahead', a.n, 'rate', case when d.rate_limit is not null then pawl.queue_explain_rate(p_queue, p_shard, p_group, a.n, d.rate_limit, d.rate_per) end)
  from pawl.queue_definition d cross join lateral (
    select count(*) as n from (
      select 1 from pawl.queue_grouped g
      where g.shard = p_shard and g.queue = p_queue and g.group_name = p_group and (g.priority, g.id) < (p_priority, p_id) limit 10000) x) a
  where d.id = p_queue
$$;
