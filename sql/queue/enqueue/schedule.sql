-- Schedules: jobs that are enqueued at the ticks of a cron pattern. The processes compute the next tick, since the database knows no cron patterns;
-- the database's clock decides whether it has come. The first process that finds it due moves next_at and enqueues, in one transaction. The
-- next_at that it read is the condition, so each tick is enqueued once.

-- Writes a schedule: {queue, name, cron, timezone, kind, key, group, priority, payload, missed, missedFor: ms, overlap, jitter: ms, next: ms,
-- ofSet, byHand}. If it has the same pattern and zone already, it keeps its next tick: every process may declare it at its start.
create or replace function pawl.queue_set_schedule(p_schedule json) returns void
language plpgsql as $$
begin
  if (p_schedule ->> 'byHand')::boolean then
    perform pawl.queue_check_schedule(p_schedule);
  end if;
  insert into pawl.queue_schedule as s (queue, name, cron, timezone, kind, key, group_name, priority, payload, missed, missed_for, overlap, jitter, of_set, next_at)
  select pawl.queue_id(x.queue), x.name, x.cron, x.timezone, k.id, x.key, x."group", x.priority, coalesce(x.payload, 'null'), x.missed,
    x."missedFor" * interval '1 millisecond', coalesce(x.overlap, 'queue'), x.jitter * interval '1 millisecond', coalesce(x."ofSet", false),
    coalesce(to_timestamp(x.next / 1000), 'infinity')
  from json_to_record(p_schedule) x (
    queue text, name text, cron text, timezone text, kind text, key text, "group" text, priority smallint, payload json, missed text,
    "missedFor" double precision, overlap text, jitter double precision, next double precision, "ofSet" boolean)
  join pawl.queue_kind k on k.queue = pawl.queue_id(x.queue) and k.name = x.kind
  on conflict (queue, name) do update set
    cron = excluded.cron, timezone = excluded.timezone, kind = excluded.kind, key = excluded.key, group_name = excluded.group_name, priority = excluded.priority,
    payload = excluded.payload, missed = excluded.missed, missed_for = excluded.missed_for, overlap = excluded.overlap,
    jitter = excluded.jitter, of_set = excluded.of_set,
    next_at = case when (s.cron, s.timezone) = (excluded.cron, excluded.timezone) then s.next_at else excluded.next_at end;
end $$;

-- Checks a schedule that is set by hand, by a caller without the declaration of the queue. Refuses a kind that the queue does not have, a missing
-- key, a group that its jobs cannot have, and a schedule of a program's set, which that program would overwrite or remove. The lock makes the
-- declaration of a set wait.
create or replace function pawl.queue_check_schedule(p_schedule json) returns void
language plpgsql as $$
declare
  v_name text := p_schedule ->> 'queue';
  v_queue smallint := pawl.queue_id(v_name);
  v_kind pawl.queue_kind;
begin
  perform from pawl.queue_definition d where d.id = v_queue for no key update;
  if exists (select 1 from pawl.queue_schedule s where s.queue = v_queue and s.name = p_schedule ->> 'name' and s.of_set) then
    raise exception 'schedule "%" of queue "%" is of the set that a program declares by schedules(); change it there, or take another name',
      p_schedule ->> 'name', v_name using errcode = 'PW003';
  end if;
  select k.* into v_kind from pawl.queue_kind k where k.queue = v_queue and k.name = p_schedule ->> 'kind';
  if not found then
    raise exception 'queue "%" has no kind "%"; it has %', v_name, p_schedule ->> 'kind',
      (select string_agg(k.name, ', ' order by k.name) from pawl.queue_kind k where k.queue = v_queue) using errcode = 'PW002';
  elsif v_kind.needs_key and p_schedule ->> 'key' is null then
    raise exception 'kind "%" of queue "%" needs a key', p_schedule ->> 'kind', v_name using errcode = 'PW001', column = 'key';
  elsif p_schedule ->> 'group' is not null then
    perform pawl.queue_check_group(d, v_kind, p_schedule ->> 'group', p_schedule ->> 'key') from pawl.queue_definition d where d.id = v_queue;
  end if;
end $$;

-- Writes all schedules of a queue that a program declares, and removes those of the last such set that are not in this one:
-- {queue, version, schedules: [as above]}. Answers false, and changes nothing, if a set of a higher version was declared: otherwise processes of
-- two versions would remove each other's schedules whenever one of them starts.
create or replace function pawl.queue_set_schedules(p_set json) returns boolean
language plpgsql as $$
declare
  v_queue smallint := pawl.queue_id(p_set ->> 'queue');
  v_version bigint := p_set ->> 'version';
  v_names text[] := array(select s.value ->> 'name' from json_array_elements(p_set -> 'schedules') s);
begin
  perform from pawl.queue_definition d where d.id = v_queue and (d.schedules_version is null or d.schedules_version <= v_version or v_version is null) for no key update;
  if not found then
    return false;
  end if;
  update pawl.queue_definition d set schedules_version = v_version where d.id = v_queue and d.schedules_version is distinct from v_version and v_version is not null;
  delete from pawl.queue_schedule_run r using pawl.queue_schedule s
  where s.queue = v_queue and s.of_set and s.name <> all (v_names) and r.queue = s.queue and r.name = s.name;
  delete from pawl.queue_schedule s where s.queue = v_queue and s.of_set and s.name <> all (v_names);
  perform pawl.queue_set_schedule((s.value::jsonb || '{"ofSet":true}')::json) from json_array_elements(p_set -> 'schedules') s;
  return true;
end $$;

-- The schedules of these queues that are due, and the time until the next tick: {now, due: [{queue, name, cron, timezone, missed, missedFor, next}],
-- wait}; times in ms.
create or replace function pawl.queue_due(p_queues smallint[]) returns json
language sql set search_path = pg_catalog, pg_temp as $$
  select json_build_object(
    'now', (extract(epoch from clock_timestamp()) * 1000)::bigint,
    'due', coalesce((
      select json_agg(json_build_object('queue', s.queue, 'name', s.name, 'cron', s.cron, 'timezone', s.timezone, 'missed', s.missed,
        'missedFor', extract(epoch from s.missed_for) * 1000, 'next', (extract(epoch from s.next_at) * 1000)::bigint))
      from (
        select s.* from pawl.queue_schedule s
        where s.queue = any (p_queues) and s.paused_at is null and s.next_at <= clock_timestamp() order by random() limit 100) s), '[]'),
    'wait', (
      select greatest(0, ceil(extract(epoch from min(s.next_at) - clock_timestamp()) * 1000)) from pawl.queue_schedule s
      where s.queue = any (p_queues) and s.paused_at is null and s.next_at < 'infinity'))
$$;

-- Enqueues a job for each of the given ticks of a due schedule, in order: {queue, name, cron, seen, ticks: [ms, …], next: ms}.
-- Answers how many jobs; null if another process was quicker, or is doing it.
create or replace function pawl.queue_tick(p_tick json) returns integer
language plpgsql as $$
declare
  v_tick record;
  v_at timestamptz;
  v_last timestamptz;
  v_jobs integer := 0;
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
  for v_at in select to_timestamp(u.ms / 1000) from unnest(v_tick.ticks) with ordinality u (ms, ord) order by u.ord loop
    if pawl.queue_schedule_enqueue(v_tick.queue, v_tick.name, v_at, false) is not null then
      v_jobs := v_jobs + 1;
      v_last := v_at;
    end if;
  end loop;
  update pawl.queue_schedule s set next_at = coalesce(to_timestamp(v_tick.next / 1000), 'infinity'), last_at = coalesce(v_last, s.last_at)
  where s.queue = v_tick.queue and s.name = v_tick.name;
  return v_jobs;
end $$;

-- Enqueues the job of a schedule for one tick, and notes the job; the newest hundred notes are kept. Notes that another transaction is just
-- removing are left to it. By hand it enqueues in any case, and at once. Answers as enqueue() does; null if there is no such schedule, or if the
-- tick is skipped because a job of the schedule is outstanding.
create or replace function pawl.queue_schedule_enqueue(p_queue smallint, p_name text, p_at timestamptz, p_by_hand boolean default true) returns jsonb
language sql set search_path = pg_catalog, pg_temp as $$
  with added as materialized (
    select pawl.enqueue(jsonb_build_object('queue', q.name, 'kind', k.name, 'payload', s.payload::jsonb, 'priority', s.priority,
        'schedule', jsonb_build_object('name', s.name, 'at', p_at),
        -- A declaration without perGroup and a rate lifts the limit, for schedules, too.
        'group', case when pawl.queue_has_groups(q) then s.group_name end) || case when s.key is null then '{}' else jsonb_build_object('key', s.key) end
        || case when p_by_hand or s.jitter is null then '{}' else jsonb_build_object('delay', random() * s.jitter) end) as answer
    from pawl.queue_schedule s
    join pawl.queue_definition q on q.id = s.queue
    join pawl.queue_kind k on k.id = s.kind
    where s.queue = p_queue and s.name = p_name
      and (p_by_hand or s.overlap = 'queue' or not exists (
        select 1 from pawl.queue_schedule_run r
        where r.queue = s.queue and r.name = s.name and pawl.queue_status(pawl.queue_shard_of(r.job), r.job) in ('new', 'in-progress')))
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
