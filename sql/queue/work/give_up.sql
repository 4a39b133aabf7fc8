-- Giving up a key: of the key's jobs that wait behind the job that is over, the next one may run.

-- Gives keys up: the next job of each key becomes its head in queue_ready; if none waits, the key's row goes. p_epochs: a key is given up only if
-- it is still held under that epoch. p_delayed: a job may be delayed under the key's epoch, and then is the key's head. Answers whether any job of
-- these keys waits: if none does, there is nothing more to claim because of this.
create or replace function pawl.queue_release_keys(
  p_queue smallint, p_shard smallint, p_keys text[], p_epochs bigint[], p_delayed boolean default true
) returns boolean
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_keys text[];
  v_after boolean;
  v_key text;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'a key cannot be given up at isolation %: this snapshot may not see jobs that were just parked; use read committed',
      current_setting('transaction_isolation') using errcode = 'PW001';
  end if;
  with mine as materialized (
    select k.key, k.epoch from pawl.queue_key k
    where k.shard = p_shard and k.queue = p_queue and k.key = any (p_keys) and k.held order by k.key for update
  )
  select array_agg(m.key) into v_keys from mine m join unnest(p_keys, p_epochs) u (key, epoch) on u.key = m.key and u.epoch = m.epoch;
  if v_keys is null then
    return false;
  end if;
  -- From here on no claim parks jobs under these keys, so a new statement sees every parked job. Mostly there is none.
  if not p_delayed then
    with gone as (
      delete from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = any (v_keys)
        and not exists (select 1 from pawl.queue_parked p where p.shard = p_shard and p.queue = p_queue and p.key = k.key offset 0)
      returning k.key
    )
    select array_agg(u.key order by u.key) into v_keys from unnest(v_keys) u (key) where u.key not in (select g.key from gone g);
    if v_keys is null then
      return false;
    end if;
  end if;
  select coalesce(bool_or(cardinality(k.after) > 0), false) into v_after from pawl.queue_kind k where k.queue = p_queue;
  -- The rows of keys are found one by one, and changed by their places. A join read all keys of the queue, and compared each with each: 256 keys of
  -- 10,000 took 0.4 s.
  with key as materialized (
    select u.key, k.place, d.epoch is not null as delayed, p.tid
    from unnest(v_keys) u (key)
    cross join lateral (
      select k.epoch as own, k.ctid as place from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = u.key limit 1) k
    left join lateral (
      select d.epoch from pawl.queue_delayed d
      where d.shard = p_shard and d.queue = p_queue and d.key = u.key and d.epoch = k.own
      order by d.kind, d.run_at limit 1) d on true  -- the order of the index of keys: else all delayed jobs of the queue may be read for each key
    left join lateral (
      select x.tid from pawl.queue_kind kd cross join lateral (
        select p.ctid as tid, p.id from pawl.queue_parked p
        where p.shard = p_shard and p.queue = p_queue and p.key = u.key and p.kind = kd.id order by p.id limit 1) x
      where kd.queue = p_queue and not (v_after and cardinality(kd.after) > 0 and (
        exists (select 1 from pawl.queue_parked o where o.shard = p_shard and o.queue = p_queue and o.key = u.key and o.kind = any (kd.after))
        or exists (select 1 from pawl.queue_delayed o where o.shard = p_shard and o.queue = p_queue and o.key = u.key and o.kind = any (kd.after))))
      order by x.id limit 1) p on true
  ), head as (
    delete from pawl.queue_parked p where p.ctid = any (array(select k.tid from key k where not k.delayed and k.tid is not null)) returning p.*
  ), raised as (
    insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt, lost, epoch, key)
    select h.id, h.shard, h.queue, h.priority, h.kind, h.attempt, h.lost, k.epoch, h.key
    from head h cross join lateral (
      select k.epoch from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = h.key limit 1) k
  ), waiting as (
    update pawl.queue_key k set held = false where k.ctid = any (array(select w.place from key w where w.delayed or w.tid is not null))
  )
  select array_agg(k.key order by k.key) into v_keys from key k where not k.delayed and k.tid is null;
  if v_keys is null then
    return true;
  end if;
  -- Keys of which no job may run: either no job waits at all, or all that wait have a delayed predecessor.
  delete from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = any (v_keys)
    and not (v_after and exists (select 1 from pawl.queue_parked p where p.shard = k.shard and p.queue = k.queue and p.key = k.key));
  if v_after then
    for v_key in select k.key from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = any (v_keys) order by k.key loop
      update pawl.queue_key k set held = false where k.shard = p_shard and k.queue = p_queue and k.key = v_key;
      update pawl.queue_delayed d set epoch = k.epoch from pawl.queue_key k
      where k.shard = p_shard and k.queue = p_queue and k.key = v_key and d.ctid = (
        select d.ctid from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue and d.key = v_key
          and d.kind in (select unnest(kd.after) from pawl.queue_kind kd where kd.queue = p_queue)
        order by d.run_at limit 1 for update);
      if not found then  -- it was promoted between two statements: the jobs go back to queue_ready, where claims read them again
        delete from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = v_key;
        with gone as (
          delete from pawl.queue_parked p where p.shard = p_shard and p.queue = p_queue and p.key = v_key returning p.*)
        insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt, lost, key)
        select id, shard, queue, priority, kind, attempt, lost, key from gone;
      end if;
    end loop;
  end if;
  return true;
end $$;
