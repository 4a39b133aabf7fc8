-- What is held because no program knew its state is let go by whoever lists itself as knowing it, whenever that is. Before, only a
-- program that started did, before it was listed: what was held between the two, or while its worker was taken for dead, stayed so.
--
-- Older workers may keep running: they call the same functions.

-- Of a type: one of these waits for the other, so that either the one who would hold an actor sees the worker that knows its
-- state, or that worker sees what is held.
create function pawl.actor_lock_known(p_type smallint, p_lists boolean) returns void
language plpgsql as $$
begin
  if p_lists then
    perform 1 from pawl.actor_type t where t.id = p_type for no key update;
  else
    perform 1 from pawl.actor_type t where t.id = p_type for share;
  end if;
end $$;

-- {type id: {state: 1, $version}}, as the worker is listed by now. Answers how many actors that let go.
create function pawl.actor_let_go(p_knows jsonb) returns integer
language plpgsql as $$
declare
  v_known record;
  v_actors integer := 0;
begin
  for v_known in
    select e.key::smallint as type, array(select k from jsonb_object_keys(e.value) k where k <> '$version') as states,
      (e.value ->> '$version')::smallint as version
    from jsonb_each(p_knows) e order by 1
  loop
    perform pawl.actor_lock_known(v_known.type, true);
    v_actors := v_actors + pawl.actor_let_go(v_known.type, v_known.states, v_known.version);
  end loop;
  return v_actors;
end $$;

-- As before, but for the lock. A page that somebody has locked is not waited for for long: the actor is given back, and met again.
create or replace function pawl.actor_unknown(p_turn json) returns boolean
language plpgsql
set lock_timeout = '2s' as $$
declare
  v_held boolean;
begin
  perform pawl.actor_lock_known((p_turn ->> 'type')::smallint, false);
  v_held := not exists (
    select 1 from pawl.actor_worker w
    where w.id <> (p_turn ->> 'worker')::bigint and w.expires_at > clock_timestamp()
      and w.knows -> (p_turn ->> 'type') ? (p_turn ->> 'state')
      and (w.knows -> (p_turn ->> 'type') ->> '$version')::int >= (p_turn ->> 'version')::int);
  update pawl.actor_instance a set
    worker = null, signal_at = null, attempt = greatest(a.attempt - 1, 0), lost = case when v_held then 0 else a.lost end,
    held = case when v_held then p_turn ->> 'reason' else pawl.actor_alone(a.lost) end, error = case when v_held then p_turn ->> 'reason' end,
    wake_at = clock_timestamp() + case when v_held then interval '0' else interval '1 second' end
  where a.id = (p_turn ->> 'actor')::bigint and a.epoch = (p_turn ->> 'epoch')::bigint and a.worker = (p_turn ->> 'worker')::bigint;
  if not found then
    return false;
  end if;
  if v_held then
    insert into pawl.actor_transition (at, actor, epoch, worker, attempt, type, from_state, to_state, reason, error)
    values (clock_timestamp(), (p_turn ->> 'actor')::bigint, (p_turn ->> 'epoch')::bigint, (p_turn ->> 'worker')::bigint, 0,
      (p_turn ->> 'type')::smallint, p_turn ->> 'state', p_turn ->> 'state', 'held', p_turn ->> 'reason');
    perform pawl.page_open(json_build_object('tag', 'actor-unknown:' || (p_turn ->> 'type') || ':' || (p_turn ->> 'state'), 'severity', 3,
      'summary', p_turn ->> 'reason', 'actor', p_turn -> 'actor'));
  end if;
  return v_held;
end $$;
