-- Ends of jobs that no worker has caused: a job was cancelled or completed by hand, expired, ended because jobs that it comes after did, was settled by
-- the caller that had claimed it, or was rescued by a process without a worker. One worker whose program listens for ends reports each of them, and
-- confirms that. Until then the end stays noted, for another worker if that one dies, or never gets the answer. If no worker listens, nothing is
-- written.

-- Notes jobs of a shard that have just ended, in this transaction.
create or replace function pawl.queue_note_untold(p_shard smallint, p_ids bigint[]) returns void
language plpgsql /* planner: loop */ as $$
begin
  if not exists (select 1 from pawl.queue_worker w where w.tells) then
    return;
  end if;
  insert into pawl.queue_untold (id, queue)
  select j.id, j.queue from unnest(p_ids) i (id)
  cross join lateral (select j.id, j.queue from pawl.queue_job j where j.shard = p_shard and j.id = i.id offset 0) j
  where exists (select 1 from pawl.queue_worker w where w.queue = j.queue and w.tells and w.expires_at > clock_timestamp())
  on conflict (queue, id) do update set taken_at = null;  -- it has ended once more
end $$;

-- Takes noted jobs of a queue for the caller to report, those that no worker took in the last 10 s: as many as queue_describe_ended describes.
-- Answers in the form of that function, with "takenAt"; null if there is none. A job that is new again is not described, and its note goes.
create or replace function pawl.queue_lend_untold(p_queue smallint) returns json
language plpgsql /* planner: probe */ as $$
declare
  v_now timestamptz := clock_timestamp();
  v_ids bigint[];
  v_ended json;
  v_told bigint[];
begin
  v_ids := array(
    select o.id from pawl.queue_untold o
    where o.queue = p_queue and (o.taken_at is null or o.taken_at < v_now - interval '10 seconds' or o.taken_at > v_now)
    order by o.id limit 1000 for update skip locked);
  if v_ids = '{}' then
    return null;
  end if;
  v_ended := pawl.queue_describe_ended(p_queue, v_ids);
  v_told := array(select (j.job ->> 'id')::bigint from json_array_elements(case when json_typeof(v_ended -> 'jobs') = 'array' then v_ended -> 'jobs' end) j (job));
  update pawl.queue_untold u set taken_at = v_now where u.queue = p_queue and u.id = any (v_told);
  -- Notes behind the last described job stay: these jobs did not fit into this answer.
  delete from pawl.queue_untold u where u.queue = p_queue and u.id = any (v_ids) and u.id <> all (v_told)
    and (v_told = '{}' or u.id < v_told[cardinality(v_told)]);
  return json_build_object('jobs', case when v_told = '{}' then '[]' else v_ended -> 'jobs' end, 'takenAt', v_now);
end $$;

-- The caller has reported these jobs, which it took at that time. The note of a job that has ended again since stays.
create or replace function pawl.queue_end_untold(p_queue smallint, p_ids bigint[], p_taken_at timestamptz) returns void
language sql /* planner: probe */ as $$
  delete from pawl.queue_untold u where u.ctid = any (array(
    select o.ctid from pawl.queue_untold o where o.queue = p_queue and o.id = any (p_ids) and o.taken_at = p_taken_at for update skip locked))
$$;
