-- How a job is related to other jobs, for people. Reads only.

-- The jobs that a job comes after, the jobs that come after it and still wait for it, and the batches in which it is outstanding:
-- {parents, children: [{id, queue, kind, status}], afterError, afterCancel, afterBatches, batches: [id]}. Fifty of each at most.
create or replace function pawl.queue_relations(p_id bigint) returns json
language plpgsql stable /* planner: loop */ as $$
declare
  v_shard smallint := pawl.queue_shard_of(p_id);
  v_watch pawl.queue_watch;
begin
  select w.* into v_watch from pawl.queue_watch w where w.id = pawl.queue_watch_of(v_shard, p_id);
  return (
    select json_build_object(
      'parents', pawl.queue_briefly(array(
        select i.id from unnest(v_watch.parents) s (span) cross join lateral generate_series(lower(s.span), upper(s.span) - 1) i (id) order by 1 limit 50)),
      'children', pawl.queue_briefly(array(
        select i.id from unnest(n.watches) w (id)
        cross join lateral (select c.* from pawl.queue_child c where c.watch = w.id offset 0) c
        cross join lateral generate_series(c.first, c.first + c.n - 1) i (id) order by 1 limit 50)),
      'afterError', v_watch.after_error, 'afterCancel', v_watch.after_cancel,
      'afterBatches', coalesce(v_watch.batches, '{}')::text[],
      'batches', array(select w.id::text from unnest(n.watches) u (id) join pawl.queue_watch w on w.id = u.id where w.sort = 'batch' order by w.id limit 50))
    from (
      select coalesce(array_agg(distinct e.watch), '{}') as watches from pawl.queue_watch_part p
      cross join lateral unnest(coalesce(p.watches, array[p.watch]), coalesce(p.parents, array[p.outstanding])) e (watch, parents)
      where p.shard = v_shard and p.bucket = p_id / 256 and p.outstanding @> p_id and e.parents @> p_id) n);
end $$;

create or replace function pawl.queue_briefly(p_ids bigint[]) returns json
language sql stable /* planner: loop */ as $$
  select coalesce(json_agg(json_build_object('id', j.id::text, 'queue', q.name, 'kind', k.name, 'status', pawl.queue_status(j.shard, j.id)) order by j.id), '[]')
  from unnest(p_ids) u (id)
  cross join lateral (select pawl.queue_shard_of(u.id) as shard offset 0) s
  cross join lateral (select j.id, j.shard, j.queue, j.kind from pawl.queue_job j where j.shard = s.shard and j.id = u.id offset 0) j
  join pawl.queue_definition q on q.id = j.queue join pawl.queue_kind k on k.id = j.kind
$$;
