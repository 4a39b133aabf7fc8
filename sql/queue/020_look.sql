-- A look reads how far a stretch goes in one pass. Older workers may keep running: the function answers as before.

-- One unit, for a claim whose transaction stays open while its handler runs (hold: 'transaction'). The same answer as
-- queue_claim. A run is first taken apart, so that its other jobs are not locked with it: "again" asks to commit that and
-- come back, and so it does when there were due jobs to bring back. Nothing stays locked but what is claimed. A job without
-- a key gets no row in queue_running, which nobody else could see: "claimedAt" says so, and whoever settles it writes the
-- receipt, or first that row; "until": [priority, id, n] is how far jobs like it go, one a row, as far as p_rows shows: the
-- stretch for queue_take.
create or replace function pawl.queue_claim_one(
  p_queue smallint, p_shard smallint, p_worker bigint, p_rows int, p_priority smallint, p_after bigint
) returns text
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_claim bigint;
  v_state text;
  v_first record;
  v_last record;
  v_row record;
  v_got record;
  v_seen int := 0;
  v_priority smallint := p_priority;
  v_after bigint := p_after;
  v_answer text;
  v_until text;
begin
  -- The usual case in one statement: a job without a key comes first. Step by step it costs twice as much, most of it for
  -- opening the same tables again and again.
  with first as materialized (
    select r.key is null as plain from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
    order by r.priority, r.id limit 1
  ), mine as materialized (
    select r.* from pawl.queue_definition d cross join first f cross join lateral (
      select r.ctid as tid, r.id, r.priority, r.n, r.attempt from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null
      order by r.priority, r.id limit 1 for update skip locked) r
    where d.id = p_queue and d.paused_at is null and f.plain
      and exists (select 1 from pawl.queue_worker w where w.id = p_worker and w.expires_at > v_now)
      and not exists (select 1 from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= v_now)
  ), gone as (
    delete from pawl.queue_ready r using mine m where r.ctid = m.tid and m.n = 1
  )
  select concat('{"rows":[[', c.id, ',', j.id, ',1,', j.kind, ',', m.attempt + 1, ',', (date_part('epoch', j.created_at) * 1000)::bigint,
    ',[', j.payload::text, ']]],"keys":[],"processes":{"', c.id, '":"', gen_random_uuid(), '"},"seen":1,"last":[',
    j.priority, ',', j.id, '],"claimedAt":"', v_now, '"}'), m.priority, m.id
  into v_answer, v_priority, v_after
  from mine m cross join lateral (
    select j.* from pawl.queue_job j where j.shard = p_shard and j.id = m.id limit 1) j
  cross join lateral (select nextval('pawl.queue_claim_id') as id offset 0) c
  where m.n = 1;
  if v_answer is not null then
    -- All in one pass over the index: a sort and a join of what was seen cost four times as much.
    select array_agg(n.priority) as priorities, array_agg(n.id) as ids,
      coalesce(array_position(array_agg(n.plain), false) - 1, count(*)) as n into v_last
    from (
      select r.priority, r.id, r.key is null and r.n = 1 as plain from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (v_priority, v_after)
      order by r.priority, r.id limit p_rows) n;
    if v_last.n > 0 then
      v_until := concat(v_last.priorities[v_last.n], ',', v_last.ids[v_last.n], ',', v_last.n);
    end if;
    return concat(left(v_answer, -1), ',"until":[', v_until, ']}');
  end if;
  v_priority := p_priority;
  v_after := p_after;

  v_state := pawl.queue_prepare(p_queue, p_shard, p_worker);
  if v_state = 'paused' then
    return '{"paused":true,"rows":[],"keys":[],"seen":0}';
  elsif v_state = 'promoted' then
    return '{"rows":[],"keys":[],"seen":0,"again":true}';
  end if;

  -- Of the two sorts of rows, the one that comes first; the other only when there is nothing to be had of it.
  select r.key is not null as keyed into v_first from pawl.queue_ready r
  where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
  order by r.priority, r.id limit 1;
  for v_step in 1..2 loop
    exit when v_first.keyed is null;
    if v_first.keyed = (v_step = 1) then
      with picked as materialized (
        select r.id, r.priority, r.key, r.epoch from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
        order by r.priority, r.id limit p_rows
      )
      select count(*) as seen, array_agg(p.key) filter (where p.key is not null) as keys,
        array_agg(p.epoch) filter (where p.key is not null) as epochs, (array_agg(p.priority))[count(*)] as priority, (array_agg(p.id))[count(*)] as id
      into v_last from picked p;
      v_seen := v_last.seen;
      v_priority := coalesce(v_last.priority, p_priority);
      v_after := coalesce(v_last.id, p_after);
      if v_last.keys is not null then
        select k.lines, k.rows, k.processes, k.taken into v_got
        from pawl.queue_claim_keys(p_queue, p_shard, p_worker, 1, 1, v_now, v_last.keys, v_last.epochs) k;
        if v_got.taken > 0 then
          return concat('{"rows":[],"keys":[', substr(v_got.rows, 2), ']', ',"lines":' || v_got.lines, ',"processes":{', substr(v_got.processes, 2), '},"seen":', v_seen,
            ',"last":[', p_priority, ',', p_after, ']}');
        end if;
      end if;
    else
      select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt into v_row from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null
      order by r.priority, r.id limit 1 for update skip locked;
      if found and v_row.n > 1 then
        delete from pawl.queue_ready r where r.ctid = v_row.tid;
        insert into pawl.queue_ready (id, shard, queue, priority, kind)
        select v_row.id + i, p_shard, p_queue, v_row.priority, v_row.kind from generate_series(0, v_row.n - 1) i;
        return '{"rows":[],"keys":[],"seen":1,"again":true}';
      elsif found then
        delete from pawl.queue_ready r where r.ctid = v_row.tid;
        v_claim := nextval('pawl.queue_claim_id');
        return (
          select concat('{"rows":[[', concat_ws(',', v_claim, j.id, 1, j.kind, v_row.attempt + 1, (date_part('epoch', j.created_at) * 1000)::bigint),
            ',[', j.payload::text, ']]],"keys":[],"processes":{"', v_claim, '":"', gen_random_uuid(), '"},"seen":1,"last":[',
            j.priority, ',', j.id, '],"claimedAt":"', v_now, '"}')
          from pawl.queue_job j where j.shard = p_shard and j.id = v_row.id);
      end if;
    end if;
  end loop;
  return concat('{"rows":[],"keys":[],"seen":', v_seen, ',"last":[', v_priority, ',', v_after, ']',
    case when exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue) then ',"busy":true' end,
    ',"due":' || (
      select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000)) from pawl.queue_delayed d
      where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1), '}');
end $$;
