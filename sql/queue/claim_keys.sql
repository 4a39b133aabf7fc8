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
  v_kept text[];
  v_epoch bigint;
  v_related boolean;
  v_got pawl.queue_unit_job[];
  v_large text[];
  v_lasts bigint[];
begin
  rest := '';
  processes := '';
  taken := 0;
  tried := false;
  complete := false;  -- whether every key was looked at: if not, the pass must come by here again
  if p_limit <= 0 then
    return;
  end if;
  -- Keys in the order of their first job. 256 at most: each takes a slot of the server's lock table for a moment.
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
  -- A new statement, which sees what was committed before the locks were granted. A waiting key may be taken by the claim that found
  -- its head; any other key with a row is busy.
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

  select coalesce(bool_or(k.coalesce <> 'none' or cardinality(k.after) > 0), false) into v_related
  from pawl.queue_kind k where k.queue = p_queue;
  v_epoch := nextval('pawl.queue_claim_id');
  if not v_related then
    select c.chains, coalesce(c.rest, ''), c.processes, c.taken, complete and not c.cut into chains, rest, processes, taken, complete
    from pawl.queue_claim_chains(p_queue, p_shard, p_worker, p_limit, p_chain, p_now, v_epoch, v_free, v_waiting) c;
    return;
  end if;
  v_got := array(select row(g.*)::pawl.queue_unit_job from pawl.queue_next_units(p_queue, p_shard, v_free) g);
  -- Asked after the jobs were read: among them may be some that were enqueued after a pause.
  if (select d.paused_at is not null from pawl.queue_definition d where d.id = p_queue) then
    complete := false;
    return;
  end if;
  if p_parks then
    perform pawl.queue_await_predecessor(p_queue, p_shard, u.key)
    from unnest(v_free) u (key) where u.key not in (select g.key from unnest(v_got) g);
  end if;
  -- A unit ends where its payloads pass 16 MB, as they are stored, and never before its first job: what is left of it is the next
  -- unit. Its answer could not come in time, however often it was asked for.
  select array_agg(c.key), array_agg(c.last) into v_large, v_lasts from (
    select s.key, max(s.id) filter (where s.nth = 1 or s.upto <= 16777216) as last, max(s.id) as id from (
      select g.key, g.id, row_number() over w as nth, sum(pg_column_size(o.payload)) over w as upto
      from unnest(v_got) with ordinality g (key, id, kind, attempt, priority, tid, parked, broken_by, whole, lost, ord)
      cross join lateral (select o.payload from pawl.queue_job o where o.shard = p_shard and o.id = g.id offset 0) o
      where g.whole and g.kind in (select k.id from pawl.queue_kind k where k.queue = p_queue and k.coalesce = 'all')
      window w as (partition by g.key order by g.ord)
    ) s
    group by s.key
  ) c where c.last < c.id;
  if v_large is not null then
    v_got := array(select g from unnest(v_got) g
      where not exists (select from unnest(v_large, v_lasts) c (key, last) where c.key = g.key and g.id > c.last));
  end if;
  -- Whole keys, in order: as many units as there is room for, however many jobs each has, but no more when there are two thousand
  -- jobs. The first one comes in any case.
  select array_agg(c.key order by c.ord) into v_kept from (
    select g.key, row_number() over (order by g.ord) as ord, sum(g.n) over (order by g.ord) - g.n as before
    from (select g.key, min(g.ord) as ord, count(*) as n from unnest(v_got) with ordinality g (key, id, kind, attempt, priority, tid, parked, broken_by, whole, lost, ord) group by g.key) g
  ) c where c.ord <= p_limit and c.before < 2000;
  if v_kept is null then
    return;
  end if;
  if cardinality(v_kept) < cardinality(v_free) then
    complete := false;
    v_got := array(select g from unnest(v_got) g where g.key in (select k.key from unnest(v_kept) k (key)));
  end if;

  insert into pawl.queue_key as k (shard, queue, key, epoch, held)
  select p_shard, p_queue, u.key, v_epoch, true from unnest(v_kept) u (key)
  on conflict (shard, queue, key) do update set epoch = excluded.epoch, held = true;
  delete from pawl.queue_ready r where r.ctid = any (array(select g.tid from unnest(v_got) g where not g.parked));
  delete from pawl.queue_parked p where p.ctid = any (array(select g.tid from unnest(v_got) g where g.parked));
  taken := cardinality(v_got);

  with job as materialized (
    -- A unit's jobs of one attempt are one claim: a claim each is 10,000 rows, and was a join of 10,000 with 10,000.
    select x.*, dense_rank() over (order by x.part) as part_nth, dense_rank() over (partition by x.whole order by x.key, x.kind) as unit_nth
    from (
      select g.*, case when g.whole then concat('unit ', g.kind, ' ', g.attempt, ' ', g.lost, ' ', g.key)
        when g.attempt > 0 or g.lost > 0 then 'job ' || g.id else 'batch' end as part
      from unnest(v_got) with ordinality g (key, id, kind, attempt, priority, tid, parked, broken_by, whole, lost, ord)) x
  ), unit as materialized (
    select j.key, j.kind, gen_random_uuid() as process, row_number() over () as number,
      case when (select k.coalesce from pawl.queue_kind k where k.id = j.kind) = 'latest' then max(j.id) end as newest,
      min(j.id) as oldest
    from job j where j.whole group by j.key, j.kind
  ), part as materialized (
    select nextval('pawl.queue_claim_id') as claim, p.*, gen_random_uuid() as process from (
      select j.part, j.attempt, j.whole, case when j.whole then j.key end as key, case when j.whole then j.kind end as kind,
        max(j.lost) as lost, range_agg(int8range(j.id, j.id + 1)) as ids
      from job j group by 1, 2, 3, 4, 5
    ) p
  ), claim as materialized (
    select p.part, p.claim, p.attempt, p.lost, p.whole, p.ids, coalesce(u.process, p.process) as process
    from part p left join unit u on u.key = p.key and u.kind = p.kind
  ), running as (
    insert into pawl.queue_running (id, worker, claimed_at, process_id, shard, queue, attempt, lost, unit, ids)
    select c.claim, p_worker, p_now, c.process, p_shard, p_queue, c.attempt + 1, c.lost, c.whole, c.ids from claim c
  ), listed as materialized (  -- by place: a join compares each job with each unit, since the planner does not know how many there are
    select (select array_agg(c.claim order by c.part) from claim c) as claims,
      (select array_agg(u.number order by u.key, u.kind) from unit u) as numbers, (select array_agg(u.newest order by u.key, u.kind) from unit u) as newest,
      (select array_agg(u.oldest order by u.key, u.kind) from unit u) as oldest
  ), claimed as materialized (
    select j.*, l.claims[j.part_nth] as claim, case when j.whole then l.numbers[j.unit_nth] end as number,
      case when j.whole then l.oldest[j.unit_nth] end as oldest, coalesce(j.whole and j.id < l.newest[j.unit_nth], false) as is_bare
    from job j cross join listed l
  )
  select
    (select string_agg(',"' || c.claim || '":"' || c.process || '"', '') from claim c),
    (select string_agg(k.object, '' order by k.ord) from (
      select min(j.ord) as ord, concat(
        ',{"key":', to_json(j.key)::text, ',"epoch":', v_epoch,
        ',"ids":[', string_agg(j.id::text, ','),
        '],"claims":[', string_agg(j.claim::text, ','),
        '],"kinds":[', string_agg(j.kind::text, ','),
        '],"attempts":[', string_agg((j.attempt + 1)::text, ','),
        '],"origins":[', string_agg(j.origin, ','),
        '],"units":[', string_agg(coalesce(j.number::text, 'null'), ','),
        '],"brokenBy":[', string_agg(coalesce(j.broken_by::text, 'null'), ','),
        '],"payloads":[', string_agg(j.payload, ','),
        '],"latest":[', string_agg(j.number::text, ',') filter (where j.is_bare and j.id = j.oldest), ']}') as object
      from (  -- sorted here, and not by each aggregate
        select j.*, pawl.queue_origin(o.created_at, o.options) as origin, case when j.is_bare then 'null' else o.payload::text end as payload
        from claimed j cross join lateral (
          select o.created_at, o.options, o.payload from pawl.queue_job o where o.shard = p_shard and o.id = j.id limit 1) o
        order by j.key, j.ord
      ) j
      group by j.key) k)
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
