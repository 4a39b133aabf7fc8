-- What a claim takes: three searches, and how many of the jobs that they find fit into one answer. Each search reads p_rows ready rows behind
-- (p_priority, p_after), in order, and answers
--   seen: how many rows there were; null: this search is not for these rows, and another search has to read them
--   last_priority, last_id: the claim deals with all rows up to here, and the pass continues behind them; null: it deals with none
--   keyed, keys, epochs: the jobs with a key, which the caller takes
--   taken: how many jobs without a key it takes; tids: their rows, which are locked; firsts, ns: the jobs in each row; takes: how many of these it takes
--   locked: other transactions have locked rows that this worker could take
-- Each search asks whether the queue is paused, in the statement that reads the jobs. Otherwise, if the queue was paused while the preparation
-- waited, the claim would take jobs that were enqueued after the pause. All run under the planner settings of their caller.

-- For rows that all have a key. If the first two rows have a key, the rows behind them usually have one, too. Nothing has to be locked or shared
-- out here. This costs a fifth of queue_pick_mixed (2,100 rows).
create or replace function pawl.queue_pick_keyed(p_queue smallint, p_shard smallint, p_rows int, p_priority smallint, p_after bigint)
returns table (seen bigint, last_priority smallint, last_id bigint, keyed bigint, keys text[], epochs bigint[], taken bigint, locked boolean)
language sql stable as $$
  select case when not coalesce(bool_or(r.key is null or r.lost > 1), false) then count(*) end, (array_agg(r.priority))[count(*)],
    (array_agg(r.id))[count(*)], count(*), array_agg(r.key), array_agg(r.epoch), 0::bigint, false
  from (
    select r.priority, r.id, r.key, r.epoch, r.lost from pawl.queue_ready r
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
      and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
    order by r.priority, r.id limit p_rows
  ) r
$$;

-- For rows of which none has a key, was lost, or is in its last attempt: jobs of a bulk enqueue, and failed jobs that are retried. It locks rows
-- until they have enough jobs, and no more rows: a run of a thousand jobs is one row, and each lock is a write. Two claims at once share the
-- rows: if another claim has locked some of them, this one locks the rows behind.
create or replace function pawl.queue_pick_plain(
  p_queue smallint, p_shard smallint, p_limit int, p_rows int, p_priority smallint, p_after bigint,
  out seen bigint, out last_priority smallint, out last_id bigint, out keyed bigint, out taken bigint, out tids tid[], out firsts bigint[],
  out ns int[], out takes int[], out kinds smallint[], out attempts smallint[], out losts smallint[], out alones boolean[], out locked boolean
)
language plpgsql as $$
declare
  v_tids tid[]; v_priorities smallint[]; v_ids bigint[]; v_kinds smallint[]; v_attempts smallint[]; v_sums bigint[];
  v_taken smallint[];
  v_most int;
  v_upto int;
begin
  select count(*), array_agg(r.tid), array_agg(r.priority), array_agg(r.id), array_agg(r.kind), array_agg(r.attempt), array_agg(r.sum),
    max(case when r.key is not null or r.lost > 0 then 32767 else r.attempt end)
  into seen, v_tids, v_priorities, v_ids, v_kinds, v_attempts, v_sums, v_most
  from (
    select r.*, sum(r.n) over (rows unbounded preceding) as sum from (
      select r.ctid as tid, r.priority, r.id, r.kind, r.attempt, r.lost, r.key, r.n from pawl.queue_ready r
      where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after)
        and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
      order by r.priority, r.id limit p_rows
    ) r
  ) r;
  if v_most = 32767 or (v_most > 0 and pawl.queue_is_any_last(p_shard, v_ids, v_kinds, v_attempts)) then
    seen := null;
    return;
  end if;
  -- First the rows that have enough jobs together. If other claims have locked one of these, all rows.
  v_upto := width_bucket(p_limit - 1, v_sums) + 1;
  loop
    select array_agg(l.priority), array_agg(l.tid), array_agg(l.id), array_agg(l.n), array_agg(l.take), array_agg(l.kind), array_agg(l.attempt),
      coalesce(sum(l.take), 0)
    into v_taken, tids, firsts, ns, takes, kinds, attempts, taken
    from (
      select l.*, least(l.n, p_limit - l.before)::int as take from (
        select l.*, sum(l.n) over (rows unbounded preceding) - l.n as before from (
          select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt from unnest(v_tids[:v_upto]) u (tid) join pawl.queue_ready r on r.ctid = u.tid
          limit p_limit for update of r skip locked
        ) l
      ) l
      where l.before < p_limit
    ) l;
    exit when taken >= p_limit or v_upto >= seen;
    v_upto := seen;
  end loop;
  keyed := 0;
  locked := false;
  if taken < p_limit then  -- every row that is left belongs to another claim
    last_priority := v_priorities[seen];
    last_id := v_ids[seen];
  else  -- the rest of a run gets the id behind the taken jobs, where the pass continues
    last_priority := v_taken[cardinality(v_taken)];
    last_id := firsts[cardinality(firsts)];
  end if;
end $$;

-- For rows of any sort.
--
-- A worker that takes some kinds only (p_kinds) also reads p_rows rows, and passes over the rows of other kinds. There is no index by kinds,
-- since each job would pay for it. So one claim reads no more than p_rows rows, however many are of other kinds, and the next claim of the pass
-- continues behind them. A queue with such workers has no keys in order. A range of priorities is a range of the index.
create or replace function pawl.queue_pick_mixed(
  p_queue smallint, p_shard smallint, p_worker bigint, p_limit int, p_slots int, p_rows int, p_priority smallint, p_after bigint,
  p_kinds smallint[], p_upto smallint,
  out seen bigint, out last_priority smallint, out last_id bigint, out keyed bigint, out keys text[], out epochs bigint[], out taken bigint,
  out tids tid[], out firsts bigint[], out ns int[], out takes int[], out kinds smallint[], out attempts smallint[], out losts smallint[],
  out alones boolean[], out locked boolean
)
language plpgsql as $$
#variable_conflict use_column
begin
  -- queue.pick. "materialized" is a fence around the rows that are read: without it, a nested loop may lock more rows than asked for.
  -- Only rows without a key are locked, one by one until there are enough, so that two claims at once share them.
  with picked as materialized (
    select r.ctid as tid, r.id, r.priority, r.n, r.kind, r.attempt, f.lost, r.epoch, r.key, f.fits,
      f.fits and (r.lost > 0 or (r.attempt > 0 and r.key is null and pawl.queue_is_last(p_shard, r.id, r.kind, r.attempt))) as alone,
      f.lost > 1 and exists (select 1 from pawl.queue_running o where o.worker = p_worker and o.lost > 1) as barred
    from pawl.queue_ready r
    cross join lateral (select p_kinds is null or r.kind = any (p_kinds) as fits, case when p_kinds is null or r.kind = any (p_kinds) then r.lost else 0 end as lost) f
    where r.shard = p_shard and r.queue = p_queue and (r.priority, r.id) > (p_priority, p_after) and r.priority <= p_upto
      and (select d.paused_at is null from pawl.queue_definition d where d.id = p_queue)
    order by r.priority, r.id limit p_rows
  ), locked as materialized (
    select r.ctid as tid from picked p join pawl.queue_ready r on r.ctid = p.tid
    where p.key is null and p.fits limit p_limit for update of r skip locked
  ), counted as (
    select p.*, l.tid is not null as mine,
      coalesce(sum(p.n) filter (where l.tid is not null and p.alone) over w, 0) as alones,
      count(*) filter (where p.lost > 1) over w as twice,
      count(l.tid) over () as locks, count(l.tid) over w as nth
    from picked p left join locked l on l.tid = p.tid window w as (order by p.priority, p.id rows unbounded preceding)
  ), wanted as (
    select c.*, c.lost > 1 and (c.barred or c.twice > 1) as waits,
      case when not c.mine or (c.lost > 1 and (c.barred or c.twice > 1)) then 0
        else greatest(0, least(c.n, case when c.alone then p_slots - (c.alones - c.n) end)) end as want
    from counted c
  ), chosen as (
    select w.*, greatest(0, least(w.want, p_limit - (sum(w.want) over (order by w.priority, w.id rows unbounded preceding) - w.want)))::int as take
    from wanted w
  ), marked as (
    -- past: the claim leaves a job in this row or before it, so the pass has to read the row again. A row that another claim has locked belongs
    -- to that claim. The rest of a run gets the id behind the taken jobs, where this pass continues.
    select c.*, bool_or((c.mine and c.take = 0) or c.waits or (c.key is null and not c.mine and c.locks >= p_limit and c.nth >= c.locks))
      over w or coalesce(bool_or(c.take > 0 and c.take < c.n) over (w rows between unbounded preceding and 1 preceding), false) as past
    from chosen c window w as (order by c.priority, c.id)
  )
  select count(*), (array_agg(c.priority) filter (where not c.past))[count(*) filter (where not c.past)],
    (array_agg(c.id) filter (where not c.past))[count(*) filter (where not c.past)], count(c.key) filter (where not c.waits),
    array_agg(c.key) filter (where c.key is not null and not c.waits), array_agg(c.epoch) filter (where c.key is not null and not c.waits),
    coalesce(sum(c.take), 0),
    array_agg(c.tid) filter (where c.take > 0), array_agg(c.id) filter (where c.take > 0), array_agg(c.n) filter (where c.take > 0),
    array_agg(c.take) filter (where c.take > 0), array_agg(c.kind) filter (where c.take > 0), array_agg(c.attempt) filter (where c.take > 0),
    array_agg(c.lost) filter (where c.take > 0), array_agg(c.alone) filter (where c.take > 0),
    p_kinds is not null and bool_or(c.fits and not c.mine)
  into seen, last_priority, last_id, keyed, keys, epochs, taken, tids, firsts, ns, takes, kinds, attempts, losts, alones, locked
  from marked c;
end $$;

-- How many of these jobs one answer can carry: 16 MB of payloads, as they are stored, and one job at least. p_n: how many jobs the row of each
-- first job has; null: one. If no payload was ever stored out of line, none has more than 2 kB, and the function reads none.
create or replace function pawl.queue_count_fitting(p_shard smallint, p_first bigint[], p_n int[]) returns bigint
language plpgsql /* planner: loop */ as $$
begin
  if not pawl.queue_has_large_payloads() then
    return 9223372036854775807;
  end if;
  return (
    select count(*) filter (where s.nth = 1 or s.upto <= 16777216) from (
      select row_number() over w as nth, sum(pg_column_size(j.payload)) over w as upto
      from unnest(p_first, p_n) with ordinality u (first, n, ord)
      cross join lateral (
        select j.id, j.payload from pawl.queue_job j
        where j.shard = p_shard and j.id >= u.first and j.id < u.first + coalesce(u.n, 1) offset 0) j
      window w as (order by u.ord, j.id)
    ) s);
end $$;

-- Whether a payload was ever stored out of line. If none was, none has more than 2 kB.
create or replace function pawl.queue_has_large_payloads() returns boolean
language sql stable as $$
  select pg_relation_size(c.reltoastrelid) > 0 from pg_class c where c.oid = 'pawl.queue_job'::regclass
$$;

-- Whether the next attempt is a job's last one.
create or replace function pawl.queue_is_last(p_shard smallint, p_id bigint, p_kind smallint, p_attempt smallint) returns boolean
language sql stable as $$
  select p_attempt + 1 >= coalesce((j.options ->> 'attempts')::smallint, k.attempts, d.attempts)
  from pawl.queue_kind k join pawl.queue_definition d on d.id = k.queue
  cross join lateral (select j.options from pawl.queue_job j where j.shard = p_shard and j.id = p_id offset 0) j
  where k.id = p_kind
$$;

-- Whether the next attempt of any of these jobs is its last one. Each is the first job of a row.
create or replace function pawl.queue_is_any_last(p_shard smallint, p_ids bigint[], p_kinds smallint[], p_attempts smallint[]) returns boolean
language plpgsql as $$
begin
  return exists (
    select from unnest(p_ids, p_kinds, p_attempts) u (id, kind, attempt)
    join pawl.queue_kind k on k.id = u.kind
    join pawl.queue_definition d on d.id = k.queue
    cross join lateral (select j.options from pawl.queue_job j where j.shard = p_shard and j.id = u.id offset 0) j
    where u.attempt > 0 and u.attempt + 1 >= coalesce((j.options ->> 'attempts')::smallint, k.attempts, d.attempts));
end $$;
