-- Taking the jobs of a worker that an operator knows to be dead, without waiting for the end of its lease.

-- Ends a worker's lease now, and gives its jobs back as queue_rescue() does: charged, and with its suspects. If the worker lives anyway, it learns
-- at once that it was declared dead, and nothing that it settles afterwards is written. Answers {jobs, left}: how many jobs it gave up, and how
-- many an open transaction still holds, which the next rescue takes. Answers null if a lock was not free within 500 ms: call again.
--
-- The worker's row is locked first, as in a rescue: a claim of this worker that is under way has committed by then, or claims nothing.
create or replace function pawl.queue_release_worker(p_worker bigint) returns json
language plpgsql /* planner: probe */ set lock_timeout = '500ms' as $$
declare
  v_queue smallint;
  v_before bigint;
  v_left bigint;
begin
  select w.queue into v_queue from pawl.queue_worker w where w.id = p_worker for update;
  if not found then
    raise exception 'there is no worker %; the ids of workers are in pawl.worker', p_worker using errcode = 'PW002';
  end if;
  v_before := pawl.queue_held_jobs(p_worker);
  update pawl.queue_worker w set expires_at = clock_timestamp() - interval '1 millisecond' where w.id = p_worker;
  perform pawl.queue_rescue(v_queue, p_notes => true);
  v_left := pawl.queue_held_jobs(p_worker);
  perform pg_notify('pawl_queue', 'cancel ' || v_queue);
  return json_build_object('jobs', v_before - v_left, 'left', v_left);
exception when lock_not_available then
  return null;
end $$;

-- How many jobs a worker has: the jobs of its claims, and the jobs that it has noted as running in open transactions.
create or replace function pawl.queue_held_jobs(p_worker bigint) returns bigint
language sql stable as $$
  select coalesce((select sum(pawl.queue_size(r.ids)) from pawl.queue_running r where r.worker = p_worker), 0)
    + coalesce((select cardinality(w.holding) from pawl.queue_worker w where w.id = p_worker), 0)
$$;
