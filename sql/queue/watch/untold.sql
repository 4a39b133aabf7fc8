-- Ends of jobs that no worker has brought about: cancelled or completed by hand, expired, ended since what they come after did, or settled by
-- the caller that had claimed them. One worker whose program listens for ends tells each of them. Where none listens, nothing is written.

-- Jobs of a shard have just ended, in this transaction.
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
  on conflict do nothing;
end $$;

-- Takes those of a queue, a thousand at most, for the caller to tell; null when there is none. One that is new again is not described.
create or replace function pawl.queue_take_untold(p_queue smallint) returns json
language plpgsql /* planner: probe */ as $$
declare
  v_ids bigint[];
begin
  with gone as (
    delete from pawl.queue_untold u where u.ctid = any (array(
      select o.ctid from pawl.queue_untold o where o.queue = p_queue order by o.id limit 1000 for update skip locked)) returning u.id
  )
  select array_agg(g.id order by g.id) into v_ids from gone g;
  return case when v_ids is not null then pawl.queue_describe_ended(p_queue, v_ids) end;
end $$;
