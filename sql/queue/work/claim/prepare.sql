-- What every claim does first: it promotes due jobs to queue_ready, and checks that the worker is registered.

-- The first step of a claim. Answers 'paused' if nothing may be claimed, 'promoted' if it brought due jobs to queue_ready, and otherwise null.
-- If the caller does not let it promote: 'places' if places of groups are to be given, or 'due' if only jobs are due. If the queue has a rate:
-- 'rated' in place of 'promoted' and null.
create or replace function pawl.queue_prepare(p_queue smallint, p_shard smallint, p_worker bigint, p_promotes boolean default true) returns text
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_state record;
begin
  select d.paused_at is not null as paused, d.rate_limit is not null as rated,
    exists (select 1 from pawl.queue_worker w where w.id = p_worker and w.expires_at > v_now) as live,
    exists (select 1 from pawl.queue_delayed d where d.shard = p_shard and d.queue = p_queue and d.run_at <= v_now) as due,
    case when d.per_group is not null then
      exists (select 1 from pawl.queue_group_note n where n.shard = p_shard and n.queue = p_queue)
      or (d.rate_limit is not null and pawl.queue_is_rate_due(p_queue, p_shard, v_now, d.rate_per)) else false end as noted
  into v_state from pawl.queue_definition d where d.id = p_queue;
  if v_state.paused then
    return 'paused';
  elsif not v_state.live then
    raise exception 'the lease of worker % ran out, so it may not claim', p_worker using errcode = 'PW004';
  elsif (v_state.due or v_state.noted) and not p_promotes then
    return case when v_state.noted then 'places' else 'due' end;
  elsif v_state.due or v_state.noted then
    perform pawl.queue_bring_due(p_queue, p_shard, v_state.noted);
    return case when v_state.rated then 'rated' else 'promoted' end;
  end if;
  return case when v_state.rated then 'rated' end;
end $$;

-- Promotes due jobs of a queue, a thousand at most. p_admits: gives places of groups, too. Answers how many jobs became ready.
create or replace function pawl.queue_bring_due(p_queue smallint, p_shard smallint, p_admits boolean default false) returns bigint
language plpgsql set enable_seqscan = off as $$
declare
  v_moved record;
begin
  perform pg_advisory_xact_lock(hashtextextended('', p_queue * 65536 + p_shard));
  if exists (select 1 from pawl.queue_kind k where k.queue = p_queue and k.debounce is not null) then
    perform pawl.queue_debounce(p_queue, p_shard);
  end if;
  v_moved := pawl.queue_promote(p_queue, p_shard, 1000);
  if v_moved.grouped is not null then
    perform pawl.queue_line_up(p_queue, p_shard, v_moved.grouped, v_moved.attempts, v_moved.losts);
  end if;
  if p_admits or v_moved.grouped is not null then
    return v_moved.brought + pawl.queue_admit(p_queue, p_shard);
  end if;
  return v_moved.brought;
end $$;

-- Moves due jobs to queue_ready, p_limit at most, so that a million jobs that are due at once do not stall one claim. Answers how many became
-- ready, and which jobs have to be admitted to their group first: no table says where these are now.
-- The caller has the lock of the empty key, which no job has: of two promotions at once, the one with the later jobs of a key might commit
-- first. This is the first lock of a transaction that ends in the same message, so others wait for it only a moment.
create or replace function pawl.queue_promote(
  p_queue smallint, p_shard smallint, p_limit int, out brought bigint, out grouped bigint[], out attempts smallint[], out losts smallint[]
)
language sql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
  with due as materialized (
    select d.ctid as tid from pawl.queue_delayed d
    where d.shard = p_shard and d.queue = p_queue and d.run_at <= clock_timestamp()
      and (d.attempt > 0 or d.epoch is not null or d.kind <> all (array(
        select k.id from pawl.queue_kind k where k.queue = p_queue and k.debounce is not null)))  -- see debounce.sql
    order by d.run_at, d.id limit p_limit for update skip locked
  ), gone as (
    delete from pawl.queue_delayed d where d.ctid = any (array(select tid from due)) returning d.*
  ), brought as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, n, attempt, lost, epoch, key)
    select id, shard, queue, priority, kind, n, attempt, lost, epoch, key from gone where group_name is null order by priority, id returning 1
  )
  select (select count(*) from brought), array_agg(g.id) filter (where g.group_name is not null),
    array_agg(g.attempt) filter (where g.group_name is not null), array_agg(g.lost) filter (where g.group_name is not null)
  from gone g
$$;

-- Promotes due jobs of these keys out of turn, p_limit at most, and answers the keys of which no due job is left. A claim needs this if more
-- jobs are due than it promotes: the next job of a key may be among the others, with a lower id than the key's ready jobs.
-- The caller has the lock of the empty key.
create or replace function pawl.queue_promote_keys(p_queue smallint, p_shard smallint, p_keys text[], p_limit int) returns text[]
language plpgsql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
begin
  with due as materialized (
    select d.tid from (select distinct u.key from unnest(p_keys) u (key)) u
    cross join (select k.id, k.debounce from pawl.queue_kind k where k.queue = p_queue) k
    cross join lateral (
      select d.ctid as tid from pawl.queue_delayed d
      where d.shard = p_shard and d.queue = p_queue and d.key = u.key and d.kind = k.id and d.run_at <= clock_timestamp()
        and (k.debounce is null or d.attempt > 0 or d.epoch is not null) and d.group_name is null
      order by d.run_at limit p_limit for update skip locked) d
    limit p_limit
  ), gone as (
    delete from pawl.queue_delayed d where d.ctid = any (array(select due.tid from due)) returning d.*
  )
  insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt, lost, epoch, key)
  select id, shard, queue, priority, kind, attempt, lost, epoch, key from gone order by priority, id;
  return pawl.queue_clear_keys(p_queue, p_shard, p_keys);
end $$;

-- Which of these keys have no due job any more.
create or replace function pawl.queue_clear_keys(p_queue smallint, p_shard smallint, p_keys text[]) returns text[]
language sql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
  select array(
    select distinct u.key from unnest(p_keys) u (key) where not exists (
      select 1 from pawl.queue_kind k cross join lateral (
        select 1 from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue and d.key = u.key and d.kind = k.id and d.run_at <= clock_timestamp() limit 1) d
      where k.queue = p_queue))
$$;

-- Raises the sequence of fencing tokens after a crash of the server, so that tokens never fall. A crash may take a sequence back: a value of
-- nextval() is on disk only with a later commit, but an open transaction (hold: 'transaction'), or one with synchronous_commit = off, shows its
-- token to others before. So the sequence is raised by more than the tokens that can have been shown since the last flush: each open transaction
-- has one, and the server flushes twice a second by itself. Called before the first claim of a connection that shows tokens early, and in every
-- other claim.
create or replace function pawl.queue_raise_tokens() returns void
language plpgsql as $$
begin
  if exists (select 1 from pawl.queue_uncrashed) then
    return;
  end if;
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
  -- One by one: setval() could take back tokens that another session has raised the sequence to, and is handing out.
  perform count(nextval('pawl.queue_claim_id')) from generate_series(1, 100000);
  insert into pawl.queue_uncrashed default values;
end $$;

-- Fails if the worker was declared dead. Such a worker must not claim any more: its jobs would be given back once more while it runs them.
-- The lock keeps the worker's row until the claim is committed, for a rescue to find. Heartbeats do not wait for this lock.
create or replace function pawl.queue_require_worker(p_worker bigint) returns void
language plpgsql as $$
begin
  perform 1 from pawl.queue_worker w where w.id = p_worker and w.lost_at is null for key share;
  if not found then
    raise exception 'worker % was declared dead: its lease ran out', p_worker using errcode = 'PW004';
  end if;
  if not exists (select 1 from pawl.queue_uncrashed) then
    perform pawl.queue_raise_tokens();
  end if;
end $$;
