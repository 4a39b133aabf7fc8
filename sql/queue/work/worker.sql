-- What the processes report to the database: which queues exist, that they live, and how far their jobs have come.

-- Declares a queue: {name, shards, keyed, blocks, attempts, perGroup, rate: {limit, perMs}, history: seconds or null, kinds: [{name, unique, coalesce,
-- after: [name], afterError, attempts, needsKey, onError, rule: a rule beyond unique, debounce, debounceMax: seconds}]}. Answers {queue, kinds:
-- {name: id}}. A kind that is no longer declared stays, since its jobs may be outstanding. If nothing changed, this writes nothing, so that a
-- hundred starting processes do not wait for each other here.
create or replace function pawl.queue_register(p_declared json) returns json
language plpgsql as $$
declare
  v_queue pawl.queue_definition;
  v_history interval := make_interval(secs => (p_declared ->> 'history')::double precision);
  v_name text := p_declared ->> 'name';
  v_blocks boolean := coalesce((p_declared ->> 'blocks')::boolean, false);
  v_timeout text;
  v_per_group int := (p_declared ->> 'perGroup')::int;
  v_rate_limit int := (p_declared -> 'rate' ->> 'limit')::int;
  v_rate_per interval := make_interval(secs => (p_declared -> 'rate' ->> 'perMs')::double precision / 1000);
begin
  if v_rate_limit is not null then
    v_per_group := coalesce(v_per_group, pawl.queue_unlimited());
  end if;
  select * into v_queue from pawl.queue_definition where name = v_name;
  if not found then
    insert into pawl.queue_definition (name, shards, keyed, blocks, attempts, history, per_group, rate_limit, rate_per)
    values (v_name, (p_declared ->> 'shards')::smallint, (p_declared ->> 'keyed')::boolean, v_blocks, (p_declared ->> 'attempts')::smallint, v_history, v_per_group,
      v_rate_limit, v_rate_per)
    on conflict (name) do nothing;
    select * into v_queue from pawl.queue_definition where name = v_name;
  end if;
  if (v_queue.shards, v_queue.keyed) is distinct from ((p_declared ->> 'shards')::smallint, (p_declared ->> 'keyed')::boolean) then
    perform pawl.queue_require_drained(v_queue);
    -- The lock keeps enqueues out until the answer is certain. Enqueues of every queue wait behind a process that waits for this lock, so it waits
    -- for a moment only: an open transaction that has enqueued something may stay open for long.
    v_timeout := current_setting('lock_timeout');
    begin
      perform set_config('lock_timeout', '100ms', true);
      lock table pawl.queue_job in share row exclusive mode;
      perform set_config('lock_timeout', v_timeout, true);
    exception when lock_not_available then
      raise exception 'the shards and concurrency.perKey of queue "%" cannot change just now: an open transaction has enqueued jobs; try again when it has ended',
        v_name using errcode = 'PW003';
    end;
    perform pawl.queue_require_drained(v_queue);
  end if;
  -- If jobs may have had groups, a declaration without a limit does not make this null: waiting jobs of groups are then admitted without a limit.
  if v_per_group is null and v_queue.per_group is not null then
    v_per_group := pawl.queue_unlimited();
  end if;
  if (v_per_group, v_rate_limit, v_rate_per) is distinct from (v_queue.per_group, v_queue.rate_limit, v_queue.rate_per) then
    perform pawl.queue_change_limits(v_queue.id, v_per_group, v_rate_limit, v_rate_per);
  end if;
  update pawl.queue_definition d set
    shards = (p_declared ->> 'shards')::smallint, keyed = (p_declared ->> 'keyed')::boolean, blocks = v_blocks,
    attempts = (p_declared ->> 'attempts')::smallint, history = v_history, removed_at = null,
    former_shards = case when d.shards = (p_declared ->> 'shards')::smallint then d.former_shards
      else greatest(d.former_shards, d.shards, (p_declared ->> 'shards')::smallint) end,
    created_at = case when d.removed_at is null then d.created_at else clock_timestamp() end
  where d.id = v_queue.id and (d.shards, d.keyed, d.blocks, d.attempts, d.history, d.removed_at) is distinct from
    ((p_declared ->> 'shards')::smallint, (p_declared ->> 'keyed')::boolean, v_blocks, (p_declared ->> 'attempts')::smallint, v_history, null::timestamptz);

  insert into pawl.queue_kind (queue, name)
  select v_queue.id, k.value ->> 'name' from json_array_elements(p_declared -> 'kinds') k
  where not exists (select 1 from pawl.queue_kind o where o.queue = v_queue.id and o.name = k.value ->> 'name')
  on conflict (queue, name) do nothing;
  update pawl.queue_kind o set
    unique_key = k.unique_key, coalesce = k.coalesce, after = k.after, after_error = k.after_error, attempts = k.attempts,
    unique_rule = k.unique_rule, debounce = k.debounce, debounce_max = k.debounce_max,
    needs_key = k.needs_key, on_error = k.on_error
  from (
    select k.value ->> 'name' as name, (k.value ->> 'unique')::boolean as unique_key, k.value ->> 'coalesce' as coalesce,
      k.value ->> 'afterError' as after_error, (k.value ->> 'attempts')::smallint as attempts,
      coalesce((k.value ->> 'needsKey')::boolean, false) as needs_key,
      nullif((k.value -> 'rule')::text, 'null')::json as unique_rule, make_interval(secs => (k.value ->> 'debounce')::double precision) as debounce,
      make_interval(secs => (k.value ->> 'debounceMax')::double precision) as debounce_max,
      (select l.id from pawl.queue_kind l where l.queue = v_queue.id and l.name = k.value ->> 'onError') as on_error,
      coalesce((
        select array_agg(p.id order by p.id) from pawl.queue_kind p
        where p.queue = v_queue.id and p.name in (select json_array_elements_text(k.value -> 'after'))), '{}') as after
    from json_array_elements(p_declared -> 'kinds') k
  ) k
  where o.queue = v_queue.id and o.name = k.name
    and (o.unique_key, o.coalesce, o.after, o.after_error, o.attempts, o.unique_rule::text, o.debounce, o.debounce_max, o.needs_key, o.on_error)
      is distinct from (k.unique_key, k.coalesce, k.after, k.after_error, k.attempts, k.unique_rule::text, k.debounce, k.debounce_max, k.needs_key, k.on_error);
  return json_build_object('queue', v_queue.id, 'kinds', (
    select json_object_agg(k.name, k.id) from pawl.queue_kind k where k.queue = v_queue.id));
end $$;

-- Fails if jobs are outstanding: each is in the shard and the order that were declared when it was enqueued.
create or replace function pawl.queue_require_drained(p_queue pawl.queue_definition) returns void
language plpgsql as $$
begin
  if exists (select 1 from pawl.queue_ready r where r.queue = p_queue.id)
    or exists (select 1 from pawl.queue_delayed d where d.queue = p_queue.id)
    or exists (select 1 from pawl.queue_parked p where p.queue = p_queue.id)
    or exists (select 1 from pawl.queue_grouped g where g.queue = p_queue.id)
    or exists (select 1 from pawl.queue_running r where r.queue = p_queue.id) then
    raise exception 'queue "%" has outstanding jobs, so its shards (%) and concurrency.perKey (%) cannot change; drain it first, or declare it as it is',
      p_queue.name, p_queue.shards, case when p_queue.keyed then '1' else 'Infinity' end using errcode = 'PW003';
  end if;
end $$;

-- The heartbeat of all workers of one process: [{worker, wantsNotify, holding: [job], tells}]. A worker that is not among the answered "alive" has
-- lost its lease. "wary": workers with hold 'transaction' in whose queue another one was found dead in the last ten minutes. A heartbeat that
-- was sent while its worker was busy may arrive after the worker fell asleep, so a heartbeat turns notifications on, and never off.
create or replace function pawl.queue_beat(p_beats json) returns json
language plpgsql as $$
declare
  v_alive bigint[];
begin
  with beat as (
    select b.worker, coalesce(b."wantsNotify", false) as wants_notify, coalesce(b.holding, '{}') as holding, coalesce(b.tells, false) as tells
    from json_to_recordset(p_beats) b (worker bigint, "wantsNotify" boolean, holding bigint[], tells boolean)
  ), renewed as (
    update pawl.queue_worker w set
      beat_at = clock_timestamp(), expires_at = clock_timestamp() + w.lease, wants_notify = w.wants_notify or b.wants_notify, holding = b.holding, tells = b.tells
    from beat b where w.id = b.worker and w.lost_at is null returning w.id
  )
  select array_agg(r.id) into v_alive from renewed r;
  return json_build_object('alive', coalesce(v_alive, '{}'), 'cancel', coalesce((
    select json_agg(json_build_object('worker', c.worker, 'id', c.id, 'reason', c.reason))
    from pawl.queue_cancel c where c.worker = any (v_alive)), '[]'::json), 'wary', (
    select coalesce(json_agg(w.id), '[]'::json) from pawl.queue_worker w join pawl.queue_definition d on d.id = w.queue
    where w.id = any (v_alive) and w.hold = 'transaction' and d.lost_at > clock_timestamp() - interval '10 minutes'));
end $$;

create or replace function pawl.queue_set_wants_notify(p_worker bigint, p_wants boolean) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.queue_worker set wants_notify = p_wants where id = p_worker and wants_notify <> p_wants
$$;

-- Fails in place of a queue's id that the process learned in another schema of this name.
create or replace function pawl.queue_refuse_schema() returns smallint
language plpgsql as $$
begin
  raise exception 'the schema pawl was dropped and made again since this process registered its queue; restart the process'
    using errcode = 'PW007';
end $$;

-- Writes a job's progress: [{shard, claim, id}, progress]. Without a claim, none is checked: the caller holds the job in an open transaction.
create or replace function pawl.queue_progress(p_note json) returns void
language plpgsql as $$
begin
  insert into pawl.queue_output as o (id, shard, progress, progress_at)
  select r.id, r.shard, nullif(n.part[2]::text, 'null')::json, clock_timestamp()
  from (select array_agg(e.value order by e.ord) as part from json_array_elements(p_note) with ordinality e (value, ord)) n
  cross join lateral json_to_record(n.part[1]) r (shard smallint, claim bigint, id bigint)
  where r.claim is null or exists (select 1 from pawl.queue_running q where q.shard = r.shard and q.id = r.claim and q.ids @> r.id)
  on conflict (shard, id) do update set progress = excluded.progress, progress_at = excluded.progress_at;
  if not found then
    raise exception 'job % is no longer held under claim %: its lease ran out, or it was settled',
      p_note -> 0 ->> 'id', p_note -> 0 ->> 'claim' using errcode = 'PW004';
  end if;
end $$;

-- Guards a unit until the caller's transaction ends: [{shard, claim, id}, …]: the claims of the unit, with one job of each, which leaves its claim
-- together with the other jobs of the unit. A statement that takes a guarded job out of its claim first locks the job, without waiting, and so
-- does this function: one of the two sees the other. The claim's row is locked only against its removal, so that other jobs of the claim are
-- settled and rescued meanwhile. Above read committed, a claim that has changed since is an error, and never passes.
-- idleMs: after this long without a statement the server ends the transaction. If a connection dies silently, only this ends the transaction;
-- otherwise the unit would stay guarded for ever.
create or replace function pawl.queue_guard(p_held json) returns void
language plpgsql /* planner: probe */ as $$
declare
  v_one record;
begin
  for v_one in
    select h.* from json_to_recordset(p_held) h (shard smallint, claim bigint, id bigint, "idleMs" int) order by h.id
  loop
    if v_one."idleMs" is not null then
      perform set_config('idle_in_transaction_session_timeout', v_one."idleMs"::text, true);
    end if;
    perform 1 from pawl.queue_job j where j.shard = v_one.shard and j.id = v_one.id for key share;
    perform 1 from pawl.queue_running r
    where r.shard = v_one.shard and r.id = v_one.claim and r.ids @> v_one.id for key share;
    if not found then
      raise exception 'job % is no longer held under claim %: its lease ran out, or it was settled; stop working on it',
        v_one.id, v_one.claim using errcode = 'PW004';
    end if;
  end loop;
end $$;
