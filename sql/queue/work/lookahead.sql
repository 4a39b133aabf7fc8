-- Looking ahead for the lanes of the transaction hold: one statement reads the next ready jobs, payloads included, for all lanes of a
-- process.

-- Reads the next ready jobs without a key, for a worker's lanes to take one by one with queue_take_row. It claims nothing. It promotes due jobs
-- and splits runs, so it has to be a transaction of its own. It stops before the first job with a key. Answers
-- [{priority, id, kind, origin, tid and xmin (the row's place, and the transaction that wrote it), payload}, …] in the order of the lanes, p_rows
-- at most; a large payload is left out. Answers null if there is no job, or the queue or a part of it is paused: lanes then claim one by one.
--
-- Several workers share the rows without a message: each job belongs to one of them, by a hash of its id. A worker reads its own jobs, and jobs
-- of others up to (p_front_priority, p_front): it was there itself a while ago, so the owners of these are slow, busy or dead. If these are
-- too few, the worker is ahead of the others, and their jobs come first. It reads these after its own, in an order that no other worker has, so
-- that it seldom meets their owner. Before, its lanes searched one by one then: with four workers, for each tenth job, at ten times the price of
-- a take. The share is a preference and no claim: the first lane that takes a row has the job.
--
-- A row with an xmax is being taken by a transaction, or was taken by one that was rolled back. A lock that does not wait tells which. The
-- function locks no other rows.
create or replace function pawl.queue_peek_ready(
  p_queue smallint, p_shard smallint, p_worker bigint, p_rows int, p_front_priority smallint, p_front bigint
) returns text
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_workers int;
  v_nth int;
  v_suspects bigint[];
  v_partly boolean;
  v_jobs text;
begin
  if pawl.queue_prepare(p_queue, p_shard, p_worker) = 'paused' then
    return null;
  end if;
  select greatest(count(*), 1), count(*) filter (where w.id < p_worker) into v_workers, v_nth from pawl.queue_worker w
  where w.queue = p_queue and w.hold = 'transaction' and w.expires_at > clock_timestamp();
  -- Jobs that dead workers ran are left to the rescue, which charges them: see queue_note_suspects.
  select d.suspects, d.paused_parts is not null into v_suspects, v_partly from pawl.queue_definition d where d.id = p_queue;
  if v_partly then
    return null;
  end if;
  perform from (
    select r.n, r.key from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue order by r.priority, r.id limit p_rows * v_workers) r
  where r.key is null and r.n > 1 limit 1;
  if found then
    -- All runs in one statement. One by one, with a search for each, 500 took 150 ms, and lanes that had waited for them went past the runs that
    -- were locked meanwhile.
    with first as materialized (
      select r.ctid as tid, r.priority, r.id, r.n, r.key from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue order by r.priority, r.id limit p_rows * v_workers
    ), run as materialized (
      select r.* from (
        select f.tid, f.id, f.n, sum(f.n) over before - f.n as jobs_before, bool_or(f.key is not null) over before as is_behind_key
        from first f window before as (order by f.priority, f.id)) f
      cross join lateral (
        select r.ctid as tid, r.* from pawl.queue_ready r where r.ctid = f.tid and r.id = f.id and r.n = f.n for update skip locked) r
      where f.n > 1 and not f.is_behind_key and f.jobs_before < p_rows * v_workers
    -- The insert reads the deleted rows, so it comes after the delete: the first job of a run has the primary key of the run.
    ), gone as (
      delete from pawl.queue_ready r using run u where r.ctid = u.tid returning r.*
    )
    insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt)
    select u.id + i, p_shard, p_queue, u.priority, u.kind, u.attempt from gone u cross join lateral generate_series(0, u.n - 1) i;
  end if;
  -- A run that is left belongs to another transaction, which splits it, or has moved up since lanes took the rows before it. A single worker keeps
  -- the order, and stops there; several workers have no order between them.
  -- The size and the compression of a payload tell whether it is large, without reading it.
  select string_agg(format('{"priority":%s,"id":%s,"kind":%s,"origin":%s,"tid":"%s","xmin":%s%s}',
    r.priority, r.id, j.kind, pawl.queue_origin(j.created_at, j.options, j.group_name), r.tid, r.maker,
    case when pg_column_size(j.payload) <= 2000 and pg_column_compression(j.payload) is null then ',"payload":' || j.payload end), ',')
  into v_jobs
  from (
    select r.* from (
      select r.*, bool_or(r.key is not null or (r.n > 1 and v_workers = 1)) over (order by r.priority, r.id) as is_behind from (
        select r.ctid as tid, r.xmin as maker, r.xmax as taker, r.priority, r.id, r.n, r.key from pawl.queue_ready r
        where r.shard = p_shard and r.queue = p_queue order by r.priority, r.id limit p_rows * v_workers) r) r
    where not r.is_behind and r.n = 1 and r.id <> all (v_suspects)
      and (r.taker = '0'::xid or exists (
        select from pawl.queue_ready f where f.ctid = r.tid and f.id = r.id for update skip locked))
    order by
      case when v_workers > 1 and abs(hashint8(r.id) % v_workers) <> v_nth and (r.priority, r.id) > (p_front_priority, p_front)
        then hashint8extended(r.id, p_worker) end nulls first,
      r.priority, r.id
    limit p_rows
  ) r cross join lateral (
    select j.kind, j.created_at, j.options, j.group_name, j.payload from pawl.queue_job j where j.shard = p_shard and j.id = r.id limit 1) j;
  return '[' || v_jobs || ']';
end $$;

-- Removes what blocked a lane's queue_claim_one, for the rows that the claim saw, in a transaction that ends in the same message. p_what: 'due'
-- promotes due jobs; 'places' gives places of groups, too; 'run' splits the first run, so that a lane does not lock its other jobs with one of
-- it; 'keys' moves jobs away whose keys are busy, or that wait for a delayed predecessor. Answers how many jobs it moved: 0 if another process
-- has done it, or is doing it.
create or replace function pawl.queue_unblock_claim(p_queue smallint, p_shard smallint, p_what text, p_rows int, p_priority smallint, p_after bigint) returns bigint
language plpgsql /* planner: probe */ set plan_cache_mode = force_generic_plan as $$
declare
  v_run record;
  v_keys text[];
  v_heads bigint[];
begin
  if p_what in ('due', 'places') then
    return pawl.queue_bring_due(p_queue, p_shard, p_what = 'places');
  elsif p_what = 'run' then
    select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt into v_run from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.key is null
    order by r.priority, r.id limit 1 for update skip locked;
    if v_run.n > 1 then
      delete from pawl.queue_ready r where r.ctid = v_run.tid;
      insert into pawl.queue_ready (id, shard, queue, priority, kind, attempt)
      select v_run.id + i, p_shard, p_queue, v_run.priority, v_run.kind, v_run.attempt from generate_series(0, v_run.n - 1) i;
      return v_run.n;
    end if;
    return 0;
  end if;
  select array_agg(p.key), array_agg(p.epoch) into v_keys, v_heads from (
    select r.key, r.epoch from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
    order by r.priority, r.id limit p_rows
  ) p where p.key is not null;
  return pawl.queue_park_blocked(p_queue, p_shard, v_keys, v_heads);
end $$;

-- Moves jobs of these keys away that cannot be claimed, as queue_claim_keys does itself under a lease. Answers how many.
create or replace function pawl.queue_park_blocked(p_queue smallint, p_shard smallint, p_keys text[], p_epochs bigint[]) returns bigint
language plpgsql /* planner: batch */ set plan_cache_mode = force_generic_plan as $$
declare
  v_related boolean;
  v_tried text[];
  v_heads bigint[];
  v_free text[];
  v_busy text[];
  v_moved bigint := 0;
begin
  select coalesce(bool_or(k.coalesce <> 'none' or cardinality(k.after) > 0), false) into v_related
  from pawl.queue_kind k where k.queue = p_queue;
  -- 256 at most, as in queue_claim_keys; 16 if the next unit of each has to be found.
  with first as materialized (
    select u.key, min(u.ord) as ord, max(u.epoch) as head from unnest(p_keys, p_epochs) with ordinality u (key, epoch, ord) group by u.key
  ), near as materialized (
    select f.* from first f order by f.ord limit case when v_related then 16 else 256 end
  )
  select array_agg(n.key order by n.ord), array_agg(n.head order by n.ord) into v_tried, v_heads
  from near n where pawl.queue_try_key(p_queue, p_shard, n.key);
  -- A new statement, which sees what was committed before the locks were granted.
  select
    array_agg(t.key order by t.ord) filter (where k.epoch is null or (not k.held and k.epoch = t.head)),
    array_agg(t.key order by t.ord) filter (where k.epoch is not null and (k.held or k.epoch is distinct from t.head))
  into v_free, v_busy
  from unnest(v_tried, v_heads) with ordinality t (key, head, ord)
  left join lateral (
    select k.epoch, k.held from pawl.queue_key k where k.shard = p_shard and k.queue = p_queue and k.key = t.key limit 1
  ) k on true;
  if v_busy is not null then
    v_moved := pawl.queue_park(p_queue, p_shard, v_busy);
  end if;
  v_moved := v_moved + pawl.queue_remove_orphans(p_queue, p_shard, v_free, case when v_related then 10000 else 1 end);
  if v_related and v_free is not null then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(v_free) u (key) where u.key not in (select g.key from pawl.queue_next_units(p_queue, p_shard, v_free, 0) g);
  end if;
  return v_moved;
end $$;

-- Removes jobs of free keys that are not in queue_job, since something other than Pawl has deleted rows. A claim whose transaction stays open
-- cannot do that itself: what queue_drop_orphans does would be undone. p_most: how many of the next jobs of each key are checked, a unit at most.
-- The keys continue. Answers how many jobs it removed. The caller has the keys' locks.
create or replace function pawl.queue_remove_orphans(p_queue smallint, p_shard smallint, p_keys text[], p_most int) returns bigint
language plpgsql /* planner: loop */ as $$
declare
  v_keys text[];
begin
  with ready as (
    delete from pawl.queue_ready r where r.ctid = any (array(
      select x.tid from unnest(p_keys) u (key) cross join lateral (
        select r.ctid as tid, r.id from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue and r.key = u.key order by r.id limit p_most) x
      where not exists (select 1 from pawl.queue_job j where j.shard = p_shard and j.id = x.id))) returning r.key
  ), parked as (
    delete from pawl.queue_parked p where p.ctid = any (array(
      select x.tid from unnest(p_keys) u (key) cross join pawl.queue_kind k cross join lateral (
        select p.ctid as tid, p.id from pawl.queue_parked p
        where p.shard = p_shard and p.queue = p_queue and p.key = u.key and p.kind = k.id order by p.id limit p_most) x
      where k.queue = p_queue and not exists (select 1 from pawl.queue_job j where j.shard = p_shard and j.id = x.id))) returning p.key
  )
  select array_agg(g.key) into v_keys from (select r.key from ready r union all select p.key from parked p) g;
  perform pawl.queue_promote_head(p_queue, p_shard, k.key, k.epoch) from pawl.queue_key k
  where k.shard = p_shard and k.queue = p_queue and k.key = any (v_keys) and not k.held
    and not exists (select 1 from pawl.queue_ready r where r.shard = p_shard and r.queue = p_queue and r.key = k.key and r.epoch = k.epoch);
  return coalesce(cardinality(v_keys), 0);
end $$;
