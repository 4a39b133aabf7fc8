-- Keys. Producers only insert. A claim that finds a key first takes a transaction-scoped advisory lock on it, without
-- waiting. With the lock it is the only one that may move the key's jobs (other claims, and cancel and retry by hand, take the
-- same lock), so the jobs themselves are never locked. What lasts is the row in queue_key. A job in queue_ready whose
-- key is held or waits is moved to queue_parked, so it is read twice at most, however many wait; the owner brings the
-- next one back when it gives the key up. The move holds a share lock on the key's row, which giving up takes for
-- update: either the claim that parks sees the key gone and leaves the job, or the owner sees the job.

-- The keyed part of a claim: p_keys and p_epochs of the rows that were looked at, in order. p_parks: moves jobs of keys that it
-- cannot take out of the way; where it may not, "tried" says that it holds locks of keys whether it took something or not. "chains" and
-- "rest" are what the claim answers as "chains" and "keys".
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
begin
  rest := '';
  processes := '';
  taken := 0;
  tried := false;
  complete := false;  -- whether every key was looked at: if not, the pass must come by here again
  if p_limit <= 0 then
    return;
  end if;
  -- 1. The locks of keys, in the order of their first job. 256 at most: each takes a slot of the server's lock table for a moment.
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
  -- 2. Which of them are free. A new statement, which sees what was committed before the locks were granted. A waiting key may be taken by
  -- the claim that found its head; any other key with a row is busy.
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

  -- 3. Jobs of the free ones.
  select coalesce(bool_or(k.coalesce <> 'none' or cardinality(k.after) > 0), false) into v_related
  from pawl.queue_kind k where k.queue = p_queue;
  v_epoch := nextval('pawl.queue_claim_id');
  if v_related then
    select u.rest, u.processes, u.taken, complete and not u.cut into rest, processes, taken, complete
    from pawl.queue_claim_units(p_queue, p_shard, p_worker, p_limit, p_now, v_epoch, v_free, p_parks) u;
  else
    select c.chains, coalesce(c.rest, ''), c.processes, c.taken, complete and not c.cut into chains, rest, processes, taken, complete
    from pawl.queue_claim_chains(p_queue, p_shard, p_worker, p_limit, p_chain, p_now, v_epoch, v_free, v_waiting) c;
  end if;
end $$;

-- The next unit of each of these free keys, in a queue of which a kind coalesces or has predecessors: as many as there is room for. "cut"
-- says that some are left. Under the planner settings of its caller.
create or replace function pawl.queue_claim_units(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_now timestamptz, p_epoch bigint, p_keys text[], p_parks boolean,
  out rest text, out processes text, out taken int, out cut boolean
)
language plpgsql as $$
declare
  v_got pawl.queue_unit_job[];
  v_large int[];
  v_lasts bigint[];
  v_kept text[];
  v_last int;
begin
  rest := '';
  processes := '';
  taken := 0;
  cut := true;
  -- 1. The next unit of each key.
  v_got := array(select row(g.*)::pawl.queue_unit_job from pawl.queue_next_units(p_queue, p_shard, p_keys) g);
  -- Asked after the jobs were read: among them may be some that were enqueued after a pause.
  if (select d.paused_at is not null from pawl.queue_definition d where d.id = p_queue) then
    return;
  end if;
  if p_parks then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(p_keys) u (key) where u.key not in (select g.key from unnest(v_got) g);
  end if;
  -- 2. A unit ends where its payloads pass 16 MB, as they are stored, and never before its first job: what is left of it is the next
  -- unit. Its answer could not come in time, however often it was asked for. Eight thousand payloads that stand in their rows have less.
  if cardinality(v_got) > 8000 or pawl.queue_has_large_payloads() then
    select array_agg(c.nth), array_agg(c.last) into v_large, v_lasts from (
      select s.nth, max(s.id) filter (where s.place = 1 or s.upto <= 16777216) as last, max(s.id) as id from (
        select g.nth, g.id, row_number() over w as place, sum(pg_column_size(o.payload)) over w as upto
        from unnest(v_got) g
        cross join lateral (select o.payload from pawl.queue_job o where o.shard = p_shard and o.id = g.id offset 0) o
        where g.whole and g.kind in (select k.id from pawl.queue_kind k where k.queue = p_queue and k.coalesce = 'all')
        window w as (partition by g.nth order by g.id)
      ) s
      group by s.nth
    ) c where c.last < c.id;
    if v_large is not null then
      v_got := array(select g from unnest(v_got) g
        where not exists (select from unnest(v_large, v_lasts) c (nth, last) where c.nth = g.nth and g.id > c.last));
    end if;
  end if;
  -- 3. Whole keys, in order: as many units as there is room for, however many jobs each has, but no more when there are two thousand
  -- jobs. The first one comes in any case.
  select array_agg(c.key order by c.nth), max(c.nth) into v_kept, v_last from (
    select g.nth, g.key, row_number() over (order by g.nth) as units, sum(g.n) over (order by g.nth) - g.n as before
    from (select g.nth, min(g.key) as key, count(*) as n from unnest(v_got) g group by g.nth) g
  ) c where c.units <= p_limit and c.before < 2000;
  if v_kept is null then
    cut := false;
    return;
  end if;
  cut := cardinality(v_kept) < cardinality(p_keys);
  if cut then
    v_got := array(select g from unnest(v_got) g where g.nth <= v_last);
  end if;
  taken := cardinality(v_got);

  -- 4. Their claims.
  insert into pawl.queue_key as k (shard, queue, key, epoch, held)
  select p_shard, p_queue, u.key, p_epoch, true from unnest(v_kept) u (key)
  on conflict (shard, queue, key) do update set epoch = excluded.epoch, held = true;
  delete from pawl.queue_ready r where r.ctid = any (array(select g.tid from unnest(v_got) g where not g.parked));
  delete from pawl.queue_parked p where p.ctid = any (array(select g.tid from unnest(v_got) g where g.parked));

  -- What belongs together is found by numbers: with the texts of keys this took twice as long (2,000 jobs of 100 units, 21 ms).
  with job as materialized (
    -- A unit's jobs of one attempt are one claim: a claim each is 10,000 rows, and was a join of 10,000 with 10,000. Of the other
    -- jobs those that begin for the first time are one.
    select x.*, dense_rank() over (order by x.unit, x.attempt, x.lost, x.again) as part, lead(x.nth) over (order by x.ord) is distinct from x.nth as is_newest
    from (
      select g.*, case when g.whole then g.nth else 0 end as unit, case when not g.whole and (g.attempt > 0 or g.lost > 0) then g.id else 0 end as again
      from unnest(v_got) with ordinality g (nth, key, id, kind, attempt, priority, tid, parked, broken_by, whole, lost, ord)) x
  ), unit as materialized (
    select j.unit, gen_random_uuid() as process from job j where j.whole group by j.unit
  ), part as materialized (
    select nextval('pawl.queue_claim_id') as claim, p.*, gen_random_uuid() as process from (
      select j.part, min(j.unit) as unit, min(j.attempt) as attempt, min(j.lost) as lost, bool_or(j.whole) as whole,
        -- As a rule its jobs were enqueued together. A range each costs 2 us.
        case when max(j.id) - min(j.id) = count(*) - 1 then int8multirange(int8range(min(j.id), max(j.id) + 1))
          else (select range_agg(int8range(u.id, u.id + 1)) from unnest(array_agg(j.id)) u (id)) end as ids
      from job j group by j.part
    ) p
  ), claim as materialized (
    select p.part, p.claim, p.attempt, p.lost, p.whole, p.ids, coalesce(u.process, p.process) as process
    from part p left join unit u on u.unit = p.unit
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids)
    select c.claim, p_worker, p_now, c.process, p_shard, p_queue, c.attempt + 1, c.lost, c.whole, c.ids from claim c
  ), listed as materialized (  -- by place: a join compares each job with each claim, since the planner does not know how many there are
    select array_agg(c.claim order by c.part) as claims from claim c
  ), lean as materialized (
    select k.id from pawl.queue_kind k where k.queue = p_queue and k.coalesce = 'latest'
  )
  select
    (select string_agg(',"' || c.claim || '":"' || c.process || '"', '') from claim c),
    (select string_agg(k.object, '' order by k.nth) from (
      select j.nth, concat(
        ',{"key":', to_json(min(j.key))::text, ',"epoch":', p_epoch,
        ',"ids":[', string_agg(j.id::text, ','),
        '],"claims":[', string_agg(j.claim::text, ','),
        '],"kinds":[', string_agg(j.kind::text, ','),
        '],"attempts":[', string_agg((j.attempt + 1)::text, ','),
        '],"origins":[', string_agg(j.origin, ','),
        '],"units":[', string_agg(case when j.whole then j.nth::text else 'null' end, ','),
        '],"brokenBy":[', string_agg(coalesce(j.broken_by::text, 'null'), ','),
        '],"payloads":[', string_agg(j.payload, ','),
        '],"latest":[', case when bool_or(j.is_bare) then j.nth end, ']}') as object
      from (  -- sorted here, and not by each aggregate
        select j.*, l.claims[j.part] as claim, pawl.queue_origin(o.created_at, o.options, o.group_name) as origin, b.is_bare,
          case when b.is_bare then 'null' else o.payload::text end as payload
        from job j cross join listed l
        cross join lateral (select j.whole and not j.is_newest and j.kind in (select k.id from lean k) as is_bare offset 0) b
        cross join lateral (
          select o.created_at, o.options, o.group_name, o.payload from pawl.queue_job o where o.shard = p_shard and o.id = j.id limit 1) o
        order by j.nth, j.ord
      ) j
      group by j.nth) k)
  into processes, rest;
end $$;

create or replace function pawl.queue_try_key(p_queue smallint, p_shard smallint, p_key text) returns boolean
language sql volatile as $$
  select pg_try_advisory_xact_lock(hashtextextended(p_key, p_queue * 65536 + p_shard))
$$;

-- queue.park. Everything of keys that are busy, a thousand each: the next ones are found by the next pass. The caller has their locks.
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

-- A key none of whose jobs may run because the predecessor is delayed: the predecessor becomes the key's head and the
-- jobs are parked behind it. When the predecessor is locked at the moment, everything stays as it is until the next claim.
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
