-- Claiming for a transaction that stays open (hold: 'transaction'): how a lane finds its next unit, what it must not do in the transaction in which
-- its handler runs, and how it takes a job that the look-ahead has read.

-- Claims one unit, for a transaction that stays open while its handler runs. Answers as queue_claim does, and
--   claimedAt: the job has no key, and no row in queue_running, since no other process could see the row. A settlement of the job writes the
--     receipt, or first that row
--   blockedBy: what queue_unblock_claim has to do in a transaction of its own: promote due jobs ('due', 'places'), split a run ('run'), or move
--     jobs away that cannot be claimed ('keys'); again: after that there may be something to claim, from where this search began
-- p_unblocked: that has just been done. If jobs are still due, one call does not promote them all, or another process has them; keys with a due
-- job are left alone. In the end only the claimed unit is locked, and its key: a client that stands still between two messages keeps nothing
-- else waiting.
create or replace function pawl.queue_claim_one(
  p_queue smallint, p_shard smallint, p_worker bigint, p_rows int, p_priority smallint, p_after bigint, p_unblocked boolean default false
) returns text
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_answer text;
  v_n int;
begin
  -- The usual case, in one statement: a job without a key comes first. Step by step it costs twice as much, most of it for opening the same tables
  -- again and again. If the block does not claim what it has locked, it undoes its locks.
  begin
    with first as materialized (
      select r.key is null as plain from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
      order by r.priority, r.id limit 1
    ), mine as materialized (
      select r.* from pawl.queue_definition d cross join first f cross join lateral (
        select r.ctid as tid, r.id, r.priority, r.n, r.attempt from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null and r.id <> all (d.suspects)
        order by r.priority, r.id limit 1 for update skip locked) r
      where d.id = p_queue and d.paused_at is null and d.paused_parts is null and f.plain
        and exists (select 1 from pawl.queue_worker w where w.id = p_worker and w.expires_at > v_now)
        and (p_unblocked or not exists (select 1 from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= v_now))
        and (p_unblocked or d.per_group is null
          or not exists (select 1 from pawl.queue_group_note n where n.shard = p_shard and n.queue = p_queue))
        and (p_unblocked or d.rate_limit is null or not pawl.queue_is_rate_due(p_queue, p_shard, v_now, d.rate_per))
    ), gone as (
      -- Nothing is deleted if the row was charged an attempt after this statement had begun: the lock is then on a row that is too new for it. The
      -- statement claims nothing then, and the long way does. Before, the job was claimed and stayed ready.
      delete from pawl.queue_ready r using mine m where r.ctid = m.tid and m.n = 1 returning r.id
    )
    select format('{"runs":[{"claim":%s,"first":%s,"n":1,"kind":%s,"attempt":%s,"origin":%s,"payloads":[%s]}],"keys":[],'
      '"processes":{"%s":"%s"},"seen":1,"last":{"priority":%s,"id":%s},"claimedAt":%s}',
      c.id, j.id, j.kind, m.attempt + 1, pawl.queue_origin(j.created_at, j.options, j.group_name), j.payload::text,
      c.id, gen_random_uuid(), j.priority, j.id, to_json(v_now)), m.n
    into v_answer, v_n
    from mine m cross join lateral (
      select j.* from pawl.queue_job j where j.shard = p_shard and j.id = m.id limit 1) j
    cross join lateral (select nextval('pawl.queue_claim_id') as id offset 0) c
    where m.n > 1 or exists (select 1 from gone);
    if v_n > 1 then
      raise exception using errcode = 'PW000';
    end if;
  exception when sqlstate 'PW000' then
    return pawl.queue_blocked_by_run();
  end;
  return coalesce(v_answer, pawl.queue_search_one(p_queue, p_shard, p_worker, p_rows, p_priority, p_after, p_unblocked, v_now));
end $$;

-- The answer of queue_claim_one if a run comes first: the run has to be split before one of its jobs can be claimed alone.
create or replace function pawl.queue_blocked_by_run() returns text
language sql immutable as $$ select '{"runs":[],"keys":[],"seen":1,"again":true,"blockedBy":"run"}' $$;

-- The long way of queue_claim_one, with the same parameters and answer. Runs under the planner settings of its caller.
create or replace function pawl.queue_search_one(
  p_queue smallint, p_shard smallint, p_worker bigint, p_rows int, p_priority smallint, p_after bigint, p_unblocked boolean, p_now timestamptz
) returns text
language plpgsql as $$
declare
  v_state text := pawl.queue_prepare(p_queue, p_shard, p_worker, false);
  v_is_rated boolean := coalesce(v_state in ('rated', 'places'), false);
  v_suspects bigint[];
  v_first record;
  v_last record;
  v_row record;
  v_got record;
  v_seen int := 0;
  v_priority smallint := p_priority;
  v_after bigint := p_after;
  v_keys text[];
  v_epochs bigint[];
  v_clear text[];
  v_blocked_by text;
begin
  if v_state = 'paused' then
    return '{"paused":true,"runs":[],"keys":[],"seen":0}';
  elsif v_state = 'rated' then
    v_state := null;
  elsif v_state is not null and not p_unblocked then
    return concat('{"runs":[],"keys":[],"seen":0,"again":true,"blockedBy":"', v_state, '"}');
  end if;

  -- 1. Whether the first row has a key. Jobs that dead workers ran are left to the rescue, which charges them: see queue_note_suspects.
  select d.suspects into v_suspects from pawl.queue_definition d where d.id = p_queue;
  select r.key is not null as keyed into v_first from pawl.queue_ready r
  where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.id <> all (v_suspects)
  order by r.priority, r.id limit 1;
  -- 2. A job of the first row's sort, or one of the other sort if none of these can be claimed. If a block does not claim what it has locked, it undoes
  -- its locks.
  for v_step in 1..2 loop
    exit when v_first.keyed is null;
    if v_first.keyed = (v_step = 1) then
      with picked as materialized (
        select r.id, r.priority, r.key, r.epoch from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.id <> all (v_suspects)
          and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
        order by r.priority, r.id limit p_rows
      )
      select count(*) as seen, array_agg(p.key) filter (where p.key is not null) as keys,
        array_agg(p.epoch) filter (where p.key is not null) as epochs, (array_agg(p.priority))[count(*)] as priority, (array_agg(p.id))[count(*)] as id
      into v_last from picked p;
      v_seen := v_last.seen;
      v_priority := coalesce(v_last.priority, p_priority);
      v_after := coalesce(v_last.id, p_after);
      v_keys := v_last.keys;
      v_epochs := v_last.epochs;
      if v_state is not null and v_keys is not null then
        v_clear := pawl.queue_clear_keys(p_queue, p_shard, v_keys);
        select array_agg(u.key order by u.ord), array_agg(u.epoch order by u.ord) into v_keys, v_epochs
        from unnest(v_keys, v_epochs) with ordinality u (key, epoch, ord) where u.key = any (v_clear);
      end if;
      if v_keys is not null then
        begin
          select k.chains, k.rest, k.processes, k.taken, k.tried into v_got
          from pawl.queue_claim_keys(p_queue, p_shard, p_worker, 1, 1, p_now, v_keys, v_epochs, false) k;
          if v_got.taken > 0 then
            return concat('{"runs":[],"keys":[', v_got.rest, ']', ',"chains":' || v_got.chains, ',"processes":{', v_got.processes, '},"seen":', v_seen,
              ',"last":{"priority":', p_priority, ',"id":', p_after, '}',
              ',"pausedParts":' || (select d.paused_parts from pawl.queue_definition d where d.id = p_queue), '}');
          elsif v_got.tried then
            raise exception using errcode = 'PW000';
          end if;
        exception when sqlstate 'PW000' then
          v_blocked_by := 'keys';
        end;
      end if;
    else
      begin
        select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt into v_row from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null and r.id <> all (v_suspects)
          and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
        order by r.priority, r.id limit 1 for update skip locked;
        if found and v_row.n > 1 then
          raise exception using errcode = 'PW000';
        elsif found then
          delete from pawl.queue_ready r where r.ctid = v_row.tid;
          return coalesce((
            select format('{"runs":[{"claim":%s,"first":%s,"n":1,"kind":%s,"attempt":%s,"origin":%s,"payloads":[%s]}],"keys":[],'
              '"processes":{"%s":"%s"},"seen":1,"last":{"priority":%s,"id":%s},"claimedAt":%s%s%s}',
              c.id, j.id, j.kind, v_row.attempt + 1, pawl.queue_origin(j.created_at, j.options, j.group_name), j.payload::text,
              c.id, gen_random_uuid(), j.priority, j.id, to_json(p_now), ',"blockedBy":"' || v_blocked_by || '"',
              ',"pausedParts":' || (select d.paused_parts from pawl.queue_definition d where d.id = p_queue))
            from pawl.queue_job j cross join lateral (select nextval('pawl.queue_claim_id') as id offset 0) c
            where j.shard = p_shard and j.id = v_row.id),
            -- Something other than Pawl has deleted the job. Its ready row goes, too, once this is committed.
            '{"runs":[],"keys":[],"seen":1,"again":true}');
        end if;
      exception when sqlstate 'PW000' then
        return pawl.queue_blocked_by_run();
      end;
    end if;
  end loop;
  -- 3. Nothing.
  return concat('{"runs":[],"keys":[],"seen":', v_seen, ',"last":{"priority":', v_priority, ',"id":', v_after, '}',
    ',"blockedBy":"' || coalesce(v_state, v_blocked_by) || '"',
    case when v_state is not null or exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue) then ',"busy":true' end,
    ',"due":' || case when v_is_rated then pawl.queue_next_due(p_queue, p_shard) else (
      select greatest(0, ceil(extract(epoch from d.run_at - clock_timestamp()) * 1000)) from pawl.queue_delayed d
      where d.shard = p_shard and d.queue = p_queue order by d.run_at limit 1) end, '}');
end $$;

-- Takes one job without a key that queue_peek_ready has read, from the place of its row. Answers {claim, attempt, claimedAt}, and with p_reads the
-- payload, which the peek has left out. Answers null if the row is gone, has moved, is locked, or is a suspect, and while the queue or a part of
-- it is paused. Vacuum gives a place to other rows, and to the same job after two updates, so the id and the transaction that wrote the row must
-- match, too. This costs a fraction of queue_claim_one, which has to check what is due, which workers there are and which sort of row comes first.
--
-- One setting: a row that is found by its place, or by a key, leaves the planner nothing else to choose, and each setting costs 2 us of 60.
--
-- The same statement without a function, prepared by the worker, would take an eighth less. But its plan would be made without these settings,
-- perhaps while the table is empty. Until the next analyze, it would then scan the whole table, however full.
create or replace function pawl.queue_take_row(p_queue smallint, p_shard smallint, p_id bigint, p_tid tid, p_xmin xid, p_reads boolean) returns text
language plpgsql set enable_seqscan = off as $$
declare
  v_answer text;
begin
  delete from pawl.queue_ready r where r.ctid = (
    select r.ctid from pawl.queue_ready r
    where r.ctid = p_tid and r.xmin = p_xmin and r.id = p_id and r.shard = p_shard and r.queue = p_queue and r.key is null and r.n = 1
      and (select d.paused_at is null and d.paused_parts is null and p_id <> all (d.suspects) from pawl.queue_definition d where d.id = p_queue)
    for update skip locked)
  returning format('{"claim":%s,"attempt":%s,"claimedAt":%s}', nextval('pawl.queue_claim_id'), r.attempt + 1, to_json(clock_timestamp()))
  into v_answer;
  -- A statement of its own: as a part of the other one, it would be initialised in each call.
  if p_reads and v_answer is not null then
    select concat(left(v_answer, -1), ',"payload":', j.payload::text, '}') into strict v_answer
    from pawl.queue_job j where j.shard = p_shard and j.id = p_id;
  end if;
  return v_answer;
end $$;
