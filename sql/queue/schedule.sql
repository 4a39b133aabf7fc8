-- Schedules: jobs that are enqueued at the ticks of a cron pattern. The processes compute which tick comes next (the
-- database knows no cron patterns); whether it has come is decided by the database's clock. The first process that finds it moves
-- next_at and enqueues in one transaction. The next_at that it read is the condition, so a tick is enqueued once.

-- Writes a schedule: {queue, name, cron, timezone, kind, key, priority, payload, missed, next: ms}. One that has the same
-- pattern and zone already keeps its next tick: every process may declare it at its start.
create or replace function pawl.queue_set_schedule(p_schedule json) returns void
language plpgsql as $$
begin
  insert into pawl.queue_schedule as s (queue, name, cron, timezone, kind, key, priority, payload, missed, next_at)
  select pawl.queue_id(x.queue), x.name, x.cron, x.timezone, k.id, x.key, x.priority, coalesce(x.payload, 'null'), x.missed,
    coalesce(to_timestamp(x.next / 1000), 'infinity')
  from json_to_record(p_schedule) x (
    queue text, name text, cron text, timezone text, kind text, key text, priority smallint, payload json, missed text, next double precision)
  join pawl.queue_kind k on k.queue = pawl.queue_id(x.queue) and k.name = x.kind
  on conflict (queue, name) do update set
    cron = excluded.cron, timezone = excluded.timezone, kind = excluded.kind, key = excluded.key, priority = excluded.priority,
    payload = excluded.payload, missed = excluded.missed,
    next_at = case when (s.cron, s.timezone) = (excluded.cron, excluded.timezone) then s.next_at else excluded.next_at end;
end $$;

-- Schedules of these queues that are due, and for how long there will be none: {now, due: [{queue, name, cron, timezone,
-- missed, next}], wait}; times in ms.
create or replace function pawl.queue_due(p_queues smallint[]) returns json
language sql set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'now', (extract(epoch from clock_timestamp()) * 1000)::bigint,
    'due', coalesce((
      select json_agg(json_build_object('queue', s.queue, 'name', s.name, 'cron', s.cron, 'timezone', s.timezone, 'missed', s.missed,
        'next', (extract(epoch from s.next_at) * 1000)::bigint))
      from (
        select s.* from pawl.queue_schedule s
        where s.queue = any (p_queues) and s.paused_at is null and s.next_at <= clock_timestamp() order by s.next_at limit 100) s), '[]'),
    'wait', (
      select greatest(0, ceil(extract(epoch from min(s.next_at) - clock_timestamp()) * 1000)) from pawl.queue_schedule s
      where s.queue = any (p_queues) and s.paused_at is null and s.next_at < 'infinity'))
$$;

-- Enqueues what came due, a job for each of the ticks that are given, in order: {queue, name, cron, seen, ticks: [ms, …], next: ms}.
-- Answers how many jobs; null when somebody else was quicker, or is at it.
create or replace function pawl.queue_tick(p_tick json) returns integer
language plpgsql as $$
declare
  v_tick record;
  v_at timestamptz;
begin
  select x.* into v_tick from json_to_record(p_tick) x (
    queue smallint, name text, cron text, seen double precision, ticks double precision[], next double precision);
  perform from pawl.queue_schedule s
  where s.queue = v_tick.queue and s.name = v_tick.name and s.cron = v_tick.cron and s.paused_at is null
    and s.next_at = to_timestamp(v_tick.seen / 1000)
  for update of s skip locked;
  if not found then
    return null;
  end if;
  update pawl.queue_schedule s set
    next_at = coalesce(to_timestamp(v_tick.next / 1000), 'infinity'),
    last_at = coalesce(to_timestamp(v_tick.ticks[cardinality(v_tick.ticks)] / 1000), s.last_at)
  where s.queue = v_tick.queue and s.name = v_tick.name;
  for v_at in select to_timestamp(u.ms / 1000) from unnest(v_tick.ticks) with ordinality u (ms, ord) order by u.ord loop
    perform pawl.queue_schedule_enqueue(v_tick.queue, v_tick.name, v_at);
  end loop;
  return cardinality(v_tick.ticks);
end $$;

-- Enqueues what a schedule enqueues, for one tick, and writes down which job that is; the newest hundred are kept. Rows that somebody
-- else is just removing are left to them. Answers as enqueue() does; null when there is no such schedule.
create or replace function pawl.queue_schedule_enqueue(p_queue smallint, p_name text, p_at timestamptz) returns jsonb
language sql set search_path = pg_catalog, pg_temp as $$
  with added as materialized (
    select pawl.enqueue(jsonb_build_object('queue', q.name, 'kind', k.name, 'payload', s.payload::jsonb, 'priority', s.priority,
        'schedule', jsonb_build_object('name', s.name, 'at', p_at)) || case when s.key is null then '{}' else jsonb_build_object('key', s.key) end) as answer
    from pawl.queue_schedule s
    join pawl.queue_definition q on q.id = s.queue
    join pawl.queue_kind k on k.id = s.kind
    where s.queue = p_queue and s.name = p_name
  ), noted as (
    insert into pawl.queue_schedule_run (queue, name, at, job)
    select p_queue, p_name, p_at, (a.answer ->> 'id')::bigint from added a
    on conflict do nothing
  ), removed as (
    delete from pawl.queue_schedule_run r where r.ctid = any (array(
      select o.ctid from pawl.queue_schedule_run o
      where o.queue = p_queue and o.name = p_name and o.at <= (
        select x.at from pawl.queue_schedule_run x where x.queue = p_queue and x.name = p_name order by x.at desc offset 99 limit 1)
      for update skip locked))
  )
  select a.answer from added a
$$;
