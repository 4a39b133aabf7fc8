-- Debounce: the jobs of a key and kind wait until no further one has come for the kind's wait. Then they are one unit, since the kind coalesces.
--
-- An enqueue only inserts, delayed by the kind's wait. So no producer waits for another one, and no job that commits late is lost. A due job
-- is checked before it becomes ready: while a younger job of its key is not due, it is put off by as long as it has waited, but never beyond its
-- kind's longest wait. So a job is seldom put off, however long its key gets no rest. A job that was put off by hand keeps the time that it was given:
-- the row has the same time as the job itself, and a later one than the enqueue gave it.

-- Puts off due jobs of debounced kinds whose keys get no rest. If a key got some, or its first job has waited for the longest wait, promotes all
-- jobs of the key at once. Nothing else promotes these jobs, unless they were tried before. The caller has the lock of the empty key. Passes over
-- rows that another transaction changes at the moment.
create or replace function pawl.queue_debounce(p_queue smallint, p_shard smallint) returns void
language plpgsql /* planner: loop */ set plan_cache_mode = force_generic_plan as $$
declare
  v_now timestamptz := clock_timestamp();
  v_due record;
  v_rest_at timestamptz;
begin
  for v_due in
    select d.key, d.kind, k.debounce, k.debounce_max, min(j.created_at) as first_at
    from (
      select d.id, d.key, d.kind from pawl.queue_delayed d
      where d.shard = p_shard and d.queue = p_queue and d.run_at <= v_now and d.attempt = 0 and d.epoch is null
      order by d.run_at, d.id limit 1000) d
    cross join lateral (
      select k.debounce, k.debounce_max from pawl.queue_kind k where k.id = d.kind and k.debounce is not null) k
    cross join lateral (select j.created_at from pawl.queue_job j where j.shard = p_shard and j.id = d.id) j
    group by d.key, d.kind, k.debounce, k.debounce_max
  loop
    select j.created_at + v_due.debounce into v_rest_at from pawl.queue_job j
    where j.shard = p_shard and j.queue = p_queue and j.key = v_due.key and j.kind = v_due.kind order by j.id desc limit 1;
    if v_rest_at <= v_now or v_due.first_at + v_due.debounce_max <= v_now then
      with gone as (
        delete from pawl.queue_delayed d where d.ctid = any (array(
          select d.ctid from pawl.queue_delayed d
          where d.shard = p_shard and d.queue = p_queue and d.key = v_due.key and d.kind = v_due.kind and d.run_at < pawl.queue_never()
            and d.attempt = 0 and d.epoch is null and (d.run_at <= v_now or not pawl.queue_is_put_off(p_shard, d.id, d.run_at, v_due.debounce))
          limit 10000 for update skip locked))
        returning d.*
      )
      insert into pawl.queue_ready (id, shard, queue, priority, kind, key)
      select g.id, g.shard, g.queue, g.priority, g.kind, g.key from gone g order by g.priority, g.id;
    else
      update pawl.queue_delayed d
      set run_at = least(j.created_at + v_due.debounce_max, greatest(v_rest_at, v_now + (v_now - j.created_at)))
      from pawl.queue_job j
      where j.shard = p_shard and j.id = d.id and d.ctid = any (array(
        select d.ctid from pawl.queue_delayed d
        where d.shard = p_shard and d.queue = p_queue and d.key = v_due.key and d.kind = v_due.kind and d.run_at < v_rest_at
          and d.attempt = 0 and d.epoch is null and (d.run_at <= v_now or not pawl.queue_is_put_off(p_shard, d.id, d.run_at, v_due.debounce))
        for update skip locked));
    end if;
  end loop;
end $$;

-- Whether a delayed job of a debounced kind was given its time by hand. The enqueue gives it the kind's wait, in a bulk rounded to microseconds.
create or replace function pawl.queue_is_put_off(p_shard smallint, p_id bigint, p_run_at timestamptz, p_debounce interval) returns boolean
language sql stable as $$
  select exists (
    select 1 from pawl.queue_job j
    where j.shard = p_shard and j.id = p_id and j.run_at = p_run_at and j.run_at > j.created_at + p_debounce + interval '1 millisecond')
$$;
