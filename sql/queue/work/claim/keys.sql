-- Keys. Producers only insert. A claim that finds a key first takes a transaction-scoped advisory lock on it, without waiting. Only the owner of
-- that lock may move the key's jobs (other claims, and cancel and retry by hand, take the same lock), so the jobs themselves are never locked.
-- After the commit, the row in queue_key says that the key is held. A claim moves a ready job whose key is held or waits to queue_parked, so
-- the job is read twice at most, however many jobs wait. The owner brings the next job back when it gives the key up. The move holds a share
-- lock on the key's row, and giving up locks the row for update: either the claim that parks sees the key gone and leaves the job, or the owner
-- sees the job.

-- The keyed part of a claim. p_keys, p_epochs: of the rows that the claim has read, in order. p_parks: whether it moves jobs out of the way whose
-- keys it cannot take. Answers "chains" and "rest", which the claim answers as "chains" and "keys"; "tried": it holds locks of keys, whether it
-- took jobs or not, which a caller without p_parks needs to know.
create or replace function pawl.queue_claim_keys(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_chain int, p_now timestamptz,
  p_keys text[], p_epochs bigint[], p_parks boolean, out chains text, out rest text, out processes text, out taken int, out complete boolean,
  out tried boolean
)
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_tried text[];
  v_heads bigint[];
  v_free text[];
  v_busy text[];
  v_waiting text[];
  v_epoch bigint;
  v_related boolean;
  v_waits boolean;
  v_lean smallint[];
begin
  taken := 0;
  tried := false;
  complete := false;  -- whether every key was tried: if not, the pass must read these rows again
  if p_limit <= 0 then
    return;
  end if;
  -- 1. The locks of keys, in the order of their first jobs. 256 at most: each takes a slot of the server's lock table for a moment.
  with first as materialized (
    select u.key, min(u.ord) as ord, max(u.epoch) as head from unnest(p_keys, p_epochs) with ordinality u (key, epoch, ord) group by u.key
  ), near as materialized (
    select f.* from first f order by f.ord limit 256
  ), tried as materialized (  -- one by one, until there are enough
    select n.* from near n where pawl.queue_try_key(p_queue, p_shard, n.key) limit p_limit
  )
  select array_agg(t.key order by t.ord), array_agg(t.head order by t.ord),
    (select count(*) from first) <= 256 and count(*) < p_limit
  into v_tried, v_heads, complete from tried t;
  if v_tried is null then
    return;
  end if;
  tried := true;
  -- 2. Which of these keys are free. A new statement sees what was committed before the locks were granted. Only the claim that found its head may
  -- take a waiting key; any other key with a row is busy.
  select
    array_agg(t.key order by t.ord) filter (where h.epoch is null or (not h.held and h.epoch = t.head)),
    array_agg(t.key order by t.ord) filter (where h.epoch is not null and (h.held or h.epoch is distinct from t.head)),
    array_agg(t.key) filter (where not h.held and h.epoch = t.head)
  into v_free, v_busy, v_waiting
  from unnest(v_tried, v_heads) with ordinality t (key, head, ord)
  left join lateral (  -- "limit" keeps the planner from turning this into a join over all keys
    select k.epoch, k.held from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = t.key limit 1
  ) h on true;

  if v_busy is not null and p_parks then
    perform pawl.queue_park(p_queue, p_shard, v_busy);
  end if;
  if v_free is null then
    return;
  end if;

  -- 3. The jobs of the free keys.
  select coalesce(bool_or(k.coalesce <> 'none' or cardinality(k.after) > 0), false), coalesce(bool_or(cardinality(k.after) > 0), false),
    array_agg(k.id) filter (where k.coalesce = 'latest')
  into v_related, v_waits, v_lean
  from pawl.queue_kind k where k.queue = p_queue;
  v_epoch := nextval('pawl.queue_claim_id');
  if v_related then
    select u.rest, u.processes, u.taken, complete and not u.cut into rest, processes, taken, complete
    from pawl.queue_claim_units(p_queue, p_shard, p_worker, p_limit, p_now, v_epoch, v_free, p_parks and v_waits, v_lean) u;
  else
    select c.chains, c.rest, c.processes, c.taken, complete and not c.cut into chains, rest, processes, taken, complete
    from pawl.queue_claim_chains(p_queue, p_shard, p_worker, p_limit, p_chain, p_now, v_epoch, v_free, v_waiting) c;
  end if;
end $$;

create or replace function pawl.queue_try_key(p_queue smallint, p_shard smallint, p_key text) returns boolean
language sql volatile as $$
  select pg_try_advisory_xact_lock(hashtextextended(p_key, p_queue * 65536 + p_shard))
$$;

-- queue.park. Parks the jobs of busy keys, a thousand of each key: the next pass finds the rest. The caller has the locks of the keys.
create or replace function pawl.queue_park(p_queue smallint, p_shard smallint, p_keys text[]) returns bigint
language sql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
  with held as materialized (
    select k.key from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = any (p_keys)
    order by k.key for share skip locked
  ), gone as (
    delete from pawl.queue_ready r where r.ctid = any (array(
      select x.tid from held h cross join lateral (
        select r.ctid as tid from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue and r.key = h.key order by r.id limit 1000) x))
      and r.epoch is null
    returning r.*
  ), parked as (
    insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
    select id, shard, queue, priority, kind, attempt, lost, key from gone returning 1
  )
  select count(*) from parked
$$;

-- For a key of which no job may run because the predecessor is delayed: makes the predecessor the key's head, and parks the other jobs behind
-- it. If the predecessor is locked at the moment, everything stays as it is until the next claim.
create or replace function pawl.queue_await_predecessor(p_queue smallint, p_shard smallint, p_key text) returns void
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_epoch bigint := nextval('pawl.queue_claim_id');
begin
  update pawl.queue_delayed d set epoch = v_epoch where d.ctid = (
    select d.ctid from pawl.queue_delayed d
    where d.shard = p_shard and d.queue = p_queue and d.key = p_key
      and d.kind in (select unnest(k.after) from pawl.queue_kind k where k.queue = p_queue)
    order by d.run_at limit 1 for update skip locked);
  if not found then
    return;
  end if;
  insert into pawl.queue_key as k (shard, queue, key, epoch, held) values (p_shard, p_queue, p_key, v_epoch, false)
  on conflict (shard, queue, key) do update set epoch = v_epoch where not k.held;
  with mine as materialized (
    select r.ctid as tid from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue and r.key = p_key
    order by r.kind, r.id limit 1000 for update skip locked
  ), gone as (
    delete from pawl.queue_ready r where r.ctid = any (array(select m.tid from mine m)) returning r.*
  )
  insert into pawl.queue_parked (id, shard, queue, priority, kind, attempt, lost, key)
  select id, shard, queue, priority, kind, attempt, lost, key from gone;
end $$;
