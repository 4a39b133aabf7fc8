-- Committing the outcome of turns, and what a turn may do while it runs.

-- Commits the outcome of turns, by position; a null array means that no turn has a value. Answers {"stale":[ids],"refused":[ids],"due":ms}. stale: turns
-- that were no longer the worker's, for which nothing was written; refused: turns that were written as failed; due: when the first of the others is due
-- again, if it is.
--   p_kinds      to: into p_states, a new visit. stay: in the state. done: final. failed: to be tried again. released: given
--                back untried. held: no turn may begin until a program knows what to do
--   p_waits      ms until it is due again; null: it hibernates
--   p_deadlines  ms that the new state may last
--   p_deltas     changes of semaphores, as {name: n}: what the turn took, and what it raised itself
--   p_children   how many children the turn creates
--   p_keeps      whether the type keeps the fields before the turn; null costs nothing
--   p_timers     all timers of the visit, if the turn changed any; p_timer_at: the first that has not passed, in ms since 1970. It
--                wakes the actor as the end of p_waits does. A new visit has no timers
-- If a turn ends its actor while children of the actor are not final, or are just being created, the turn has failed.
-- The commit does not wait for long for a row that stays locked: that turn may have left a guard() in an open transaction, which does not concern the
-- other turns of the batch. It does not wait for pages at all.
create or replace function pawl.actor_commit(
  p_worker bigint, p_ids bigint[], p_epochs bigint[], p_kinds text[], p_waits double precision[], p_froms text[], p_states text[],
  p_reasons text[], p_fields json[], p_versions smallint[], p_deltas jsonb[], p_deadlines double precision[], p_errors text[],
  p_results json[], p_children int[], p_keeps boolean[] default null, p_timers jsonb[] default null, p_timer_at double precision[] default null
) returns text
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan set lock_timeout = '500ms' as $$
declare
  v_now timestamptz := clock_timestamp();
  v_done bigint[];
  v_wake smallint[];
  v_due timestamptz;
  v_orphans bigint[];
  v_left bigint[];
  v_final bigint[];
begin
  if 'done' = any (p_kinds) then
    v_orphans := pawl.actor_with_open_children(p_worker, p_ids, p_epochs, p_kinds);
  end if;
  if p_keeps is not null then
    perform pawl.actor_keep_fields(v_now, p_worker, p_ids, p_epochs, p_keeps, p_froms, p_fields, v_orphans);
  end if;
  with given as (
    select * from unnest(p_ids, p_epochs, p_kinds, p_waits, p_froms, p_states, p_reasons, p_fields, p_versions, p_deltas, p_deadlines, p_errors, p_results, p_children,
        p_timers, p_timer_at)
      u (id, epoch, kind, wait, from_state, to_state, reason, fields, version, delta, deadline, error, result, children, timers, timer_at)
  ), turn as materialized (
    select g.* from given g where g.id <> all (v_orphans) or v_orphans is null
    union all
    select g.id, g.epoch, 'failed', 1000, g.from_state, null, 'failed', null, null, null, null,
      'done() with children that are not final, or are being created: end them first, with a.incrChildren(''destroy''), and hibernate() until they are', null, null, null, null
    from given g where g.id = any (v_orphans)
  ), written as (
    update pawl.actor_instance a set
      worker = null, tx_worker = null, signal_at = null,
      state = coalesce(t.to_state, a.state),
      visit = case when t.kind = 'to' then a.visit + 1 else a.visit end,
      entered_at = case when t.kind = 'to' then v_now else a.entered_at end,
      deadline_at = case t.kind when 'to' then v_now + t.deadline * interval '1 millisecond' when 'done' then null else a.deadline_at end,
      attempt = case t.kind when 'failed' then a.attempt when 'released' then greatest(a.attempt - 1, 0) when 'held' then greatest(a.attempt - 1, 0) else 0 end,
      wake_at = case
        when t.kind = 'done' then null
        when t.kind = 'failed' then v_now + t.wait * interval '1 millisecond' * (
          case when a.signal_at is null then 1 when pawl.actor_leads_on(a.type, a.state, a.semaphores) then 0 else 0.25 end)
        when a.signal_at is not null then least(a.signal_at, v_now + t.wait * interval '1 millisecond', to_timestamp(t.timer_at / 1000))
        else least(v_now + t.wait * interval '1 millisecond', to_timestamp(t.timer_at / 1000))
      end,
      timers = case when t.kind in ('to', 'done') then null when t.timers is not null then nullif(t.timers, '{}') else a.timers end,
      -- A nudge can shorten the wait to a quarter.
      floor_at = case when t.kind = 'failed' then v_now + t.wait * interval '1 millisecond' * 0.25 end,
      semaphores = case
        when t.kind = 'done' then '{}'
        when t.delta is null then a.semaphores
        else pawl.actor_add(a.semaphores, array(select jsonb_object_keys(t.delta)), array(select e.value::bigint from jsonb_each_text(t.delta) e))
      end,
      -- Counted at once, and not through the inbox: the next turn must not find itself without children.
      children = a.children + coalesce(t.children, 0),
      fields = coalesce(t.fields, a.fields), version = coalesce(t.version, a.version),
      finished_at = case when t.kind = 'done' then v_now end, result = coalesce(t.result, a.result),
      held = case t.kind when 'held' then t.reason when 'released' then pawl.actor_isolation_reason(a.lost) end,
      lost = case when t.kind = 'released' then a.lost else 0 end,
      cause = case when t.kind = 'to' then t.error else a.cause end,
      error = case when t.kind in ('failed', 'held') then t.error when t.kind = 'released' then a.error end
    from turn t
    where a.id = t.id and a.epoch = t.epoch and (a.worker = p_worker or a.tx_worker = p_worker)
    returning a.id, a.epoch, a.type, a.parent, a.attempt, a.wake_at, t.kind, t.from_state, a.state, t.reason, t.error
  ), moved as (
    insert into pawl.actor_transition (at, actor, epoch, worker, attempt, type, from_state, to_state, reason, error)
    select v_now, w.id, w.epoch, p_worker, w.attempt, w.type, w.from_state, w.state, coalesce(w.reason, w.kind), w.error
    from written w where w.kind not in ('stay', 'released')
  ), told as (
    insert into pawl.actor_inbox (actor, type, name, n)
    select p.id, p.type, '$child', -1 from written w join pawl.actor_instance p on p.id = w.parent where w.kind = 'done'
    returning type
  )
  select array_agg(w.id), min(w.wake_at), (select array_agg(distinct t.type) from told t),
    array_agg(w.id) filter (where w.kind in ('to', 'done')), array_agg(w.id) filter (where w.kind = 'done')
  into v_done, v_due, v_wake, v_left, v_final from written w;
  if p_fields is not null and exists (select 1 from pawl.actor_type t where t.indexes <> '{}') then
    perform pawl.actor_index(v_done);
  end if;
  if v_left is not null then
    perform pawl.page_resolve_free(p.tag) from pawl.actor_page p
    where p.resolved_at is null and p.tag = any (array(
      select about || u.id from unnest(v_left) u (id), unnest(array['actor-deadline:', 'actor-mistake:']) about));
  end if;
  if v_final is not null then
    perform pawl.page_resolve_free(p.tag) from pawl.actor_page p where p.actor = any (v_final) and p.resolved_at is null;
  end if;
  if v_wake is not null then
    perform pawl.actor_wake(v_wake);
  end if;
  return concat('{"refused":[', array_to_string(v_orphans, ','), '],"stale":[', case when v_done is null or cardinality(v_done) < cardinality(p_ids) then (
      select string_agg(u.id::text, ',') from unnest(p_ids) u (id) where v_done is null or u.id <> all (v_done)) end, ']',
    ',"due":' || case when v_due is not null then ceil(greatest(0, extract(epoch from v_due - v_now) * 1000)) end, '}');
end $$;

-- Whether a raised semaphore of always leads an actor from this state to another one: that does not wait for a backoff.
create or replace function pawl.actor_leads_on(p_type smallint, p_state text, p_semaphores jsonb) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
  select exists (
    select 1 from pawl.actor_type t cross join lateral json_each_text(t.machine -> 'always') e
    where t.id = p_type and e.value <> p_state and p_semaphores ? e.key)
$$;

-- Which of these turns may not end their actors: those whose actors have children that are not final, or are just being created. The rows of the others
-- are locked. A turn that is no longer the worker's is left out: it writes nothing anyway. Only for actor_commit(), under whose planner settings it runs.
create or replace function pawl.actor_with_open_children(p_worker bigint, p_ids bigint[], p_epochs bigint[], p_kinds text[]) returns bigint[]
language plpgsql as $$
declare
  v_ids bigint[];
  v_locked bigint[];
begin
  -- The lock that every turn takes: it waits for a worker that absorbs, but not for a key share lock.
  v_ids := array(
    select a.id from unnest(p_ids, p_epochs, p_kinds) u (id, epoch, kind)
    join pawl.actor_instance a on a.id = u.id and a.epoch = u.epoch and p_worker in (a.worker, a.tx_worker)
    where u.kind = 'done' order by a.id for no key update of a);
  -- A stronger lock, which keeps out a transaction that creates a child. That has a key share lock, and nothing else can be in the way now.
  v_locked := array(select a.id from pawl.actor_instance a where a.id = any (v_ids) for update skip locked);
  -- A new statement, which sees all children that exist.
  return array(
    select u.id from unnest(v_ids) u (id)
    where u.id <> all (v_locked)
      or exists (select 1 from pawl.actor_instance c where c.parent = u.id and c.finished_at is null));
end $$;

-- From now on the turn {actor, epoch, worker} runs under the lock of its row, which its process is to take at once. If that lock is gone, and with it the
-- process, any worker may claim the actor: no lease has to end. The attempt stays spent, and the backoff counts from the claim, but lasts a second from
-- here at least: that much time there is to take the lock.
create or replace function pawl.actor_run_in_transaction(p_turn json) returns void
language plpgsql as $$
begin
  update pawl.actor_instance a set
    worker = null, tx_worker = a.worker, wake_at = greatest(a.retry_at, clock_timestamp() + interval '1 second')
  where a.id = (p_turn ->> 'actor')::bigint and a.epoch = (p_turn ->> 'epoch')::bigint and a.worker = (p_turn ->> 'worker')::bigint;
  if not found then
    perform pawl.actor_guard(p_turn);
  end if;
end $$;

-- In the caller's transaction: fails unless the turn {actor, epoch, worker} is still this worker's, and keeps it so until that transaction ends. With
-- "nowait" it also fails unless the row is free within 100 ms: a worker that absorbs locks the row for a moment. "nowait" is for the transaction in which
-- the turn runs, and marks it as one of this worker's.
create or replace function pawl.actor_guard(p_turn json) returns void
language plpgsql as $$
declare
  v_actor bigint := (p_turn ->> 'actor')::bigint;
  v_epoch bigint := (p_turn ->> 'epoch')::bigint;
  v_worker bigint := (p_turn ->> 'worker')::bigint;
begin
  if (p_turn ->> 'nowait')::boolean then
    for v_try in 1..20 loop
      perform 1 from pawl.actor_instance a
      where a.id = v_actor and a.epoch = v_epoch and v_worker in (a.worker, a.tx_worker) for no key update skip locked;
      exit when found;
      exit when not exists (select 1 from pawl.actor_instance a where a.id = v_actor and a.epoch = v_epoch and v_worker in (a.worker, a.tx_worker));
      perform pg_sleep(0.005);
    end loop;
    perform 1 from pawl.actor_instance a
    where a.id = v_actor and a.epoch = v_epoch and v_worker in (a.worker, a.tx_worker) for no key update nowait;
    perform pg_advisory_xact_lock_shared(pawl.actor_transactions_key(v_worker)) where found;
  else
    perform 1 from pawl.actor_instance a
    where a.id = v_actor and a.epoch = v_epoch and v_worker in (a.worker, a.tx_worker) for no key update;
  end if;
  if not found then
    raise exception 'turn % of actor % is no longer current: its lease ended, and another worker took over', v_epoch, v_actor
      using errcode = 'PW004';
  end if;
end $$;

-- Keeps the result of a side effect for the retries of this visit: [{actor, epoch, worker, visit, key}, result].
-- If a guard() of the same turn, in an open transaction, has locked the row, this waits for 5 s at most.
create or replace function pawl.actor_remember(p_effect json) returns void
language plpgsql
set lock_timeout = '5s' as $$
declare
  v_part json[] := pawl.actor_elements(p_effect);
  v_head json := v_part[1];
begin
  perform pawl.actor_guard(v_head);
  insert into pawl.actor_effect (actor, visit, key, result)
  values ((v_head ->> 'actor')::bigint, (v_head ->> 'visit')::bigint, v_head ->> 'key', v_part[2])
  on conflict (actor, visit, key) do nothing;
end $$;
