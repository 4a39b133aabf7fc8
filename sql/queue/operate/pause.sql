-- Pausing a part of a queue: the jobs of a kind, of a key, with a tag, or the jobs that have all that is named.
--
-- Claims take such jobs like any others, and answer which parts are paused. They read that after the jobs: so if a job is enqueued after the commit of a
-- pause, its claim has read the pause. The worker gives such a job back uncharged, delayed to a time that the number of its part decides
-- (queue_set_aside_at). The job stays there until that part is resumed. Meanwhile a job with a key is the delayed head of its key, so that the order of
-- the key is kept. If no part is paused, a claim reads one more column of a row that it reads anyway.

-- Pauses a part of a queue; does nothing if it is paused already. Of two calls at once, the second waits for the first.
create or replace function pawl.queue_pause_part(p_name text, p_kind text, p_key text, p_tag text) returns void
language plpgsql as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
  v_parts jsonb;
begin
  if p_kind is not null and not exists (select 1 from pawl.queue_kind k where k.queue = v_queue and k.name = p_kind) then
    raise exception 'queue "%" has no kind "%"', p_name, p_kind using errcode = 'PW002';
  end if;
  select coalesce(d.paused_parts::jsonb, '[]') into v_parts from pawl.queue_definition d where d.id = v_queue for no key update;
  if exists (
    select from jsonb_to_recordset(v_parts) p (kind text, key text, tag text)
    where p.kind is not distinct from p_kind and p.key is not distinct from p_key and p.tag is not distinct from p_tag) then
    return;
  elsif jsonb_array_length(v_parts) >= 100 then
    raise exception 'queue "%" has 100 paused parts, and no more are possible: resume some, or pause all of it', p_name using errcode = 'PW003';
  end if;
  -- A number that was not used for long: jobs that were set aside under it before are certainly back.
  update pawl.queue_definition d set paused_parts = (v_parts || jsonb_build_object(
    'nth', (
      select n from generate_series(0, 139) n where n not in (select p.nth from jsonb_to_recordset(v_parts) p (nth int))
      order by (n + 140 - extract(epoch from clock_timestamp())::bigint % 140) % 140 limit 1),
    'kind', p_kind, 'key', p_key, 'tag', p_tag, 'since', clock_timestamp()))::json
  where d.id = v_queue;
end $$;

-- Ends the pause of a part, and makes p_most of the jobs due that were set aside for it. Answers how many these were: the caller calls again until there
-- are none. If it does not, the rescues of the workers make the others due.
create or replace function pawl.queue_resume_part(p_name text, p_kind text, p_key text, p_tag text, p_most int) returns bigint
language plpgsql as $$
declare
  v_queue smallint := pawl.queue_id(p_name);
  v_back bigint;
begin
  perform from pawl.queue_definition d where d.id = v_queue and d.paused_parts is not null for no key update;
  if found then
    update pawl.queue_definition d set paused_parts = (
      select json_agg(p.part) from json_array_elements(d.paused_parts) p (part)
      where (p.part ->> 'kind', p.part ->> 'key', p.part ->> 'tag') is distinct from (p_kind, p_key, p_tag))
    where d.id = v_queue;
  end if;
  v_back := pawl.queue_bring_back(v_queue, p_most);
  if v_back > 0 then
    perform pg_notify('pawl_queue', v_queue::text);
  end if;
  return v_back;
end $$;

-- Makes jobs due that were set aside for a part that is no longer paused, p_most of each part and shard. Each rescue calls this, too, since a worker may
-- set a job aside just after its part was resumed. Without such jobs it costs one probe of an index for each shard.
create or replace function pawl.queue_bring_back(p_queue smallint, p_most int) returns bigint
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_queue record;
  v_nth int;
  v_tids tid[];
  v_back bigint := 0;
begin
  select d.paused_parts, d.shards into v_queue from pawl.queue_definition d where d.id = p_queue;
  for v_shard in 0..v_queue.shards - 1 loop
    perform from pawl.queue_delayed d where d.shard = v_shard::smallint and d.queue = p_queue and d.run_at >= pawl.queue_set_aside_at(0) limit 1;
    continue when not found;
    for v_nth in
      select n from generate_series(0, 139) n where n not in (select p.nth from json_to_recordset(v_queue.paused_parts) p (nth int))
    loop
      v_tids := array(
        select d.ctid from pawl.queue_delayed d
        where d.shard = v_shard::smallint and d.queue = p_queue and d.run_at >= pawl.queue_set_aside_at(v_nth)
          and d.run_at < pawl.queue_set_aside_at(v_nth + 1)
        order by d.run_at, d.id limit p_most for update skip locked);
      continue when cardinality(v_tids) = 0;
      update pawl.queue_delayed d set run_at = clock_timestamp() where d.ctid = any (v_tids);
      v_back := v_back + cardinality(v_tids);
    end loop;
  end loop;
  return v_back;
end $$;

-- Jobs that were set aside for the nth paused part are delayed to a time of the hundred years from here. No caller can name such a time, and no date of
-- JavaScript reaches it.
create or replace function pawl.queue_set_aside_at(p_nth int) returns timestamptz
language sql immutable as $$ select timestamptz '280000-01-01 00:00:00+00' + p_nth * interval '100 years' $$;

-- The paused parts, for people: [{kind, key, tag, since}, …].
create or replace function pawl.queue_shown_parts(p_parts json) returns json
language sql immutable set search_path = pg_catalog, pg_temp as $$
  select coalesce(json_agg(json_build_object('kind', p.kind, 'key', p.key, 'tag', p.tag, 'since', p.since)), '[]')
  from json_to_recordset(p_parts) p (kind text, key text, tag text, since text)
$$;
