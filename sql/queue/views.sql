-- What people read. The views are the contract; the tables below them are not.
--   pawl.job          every job with its status; `where id = …` costs index probes
--   pawl.job_history  every move of every job, oldest first within a job
--   pawl.queue        the queues that are declared
--   pawl.worker       the workers that live, or were lost a moment ago

create or replace view pawl.job as
select j.id, q.name as queue, k.name as kind, j.key, l.status, j.priority, coalesce(l.attempt, 0::smallint) as attempt, j.payload,
  j.created_at as enqueued_at, coalesce(l.run_at, j.run_at) as run_at, l.claimed_at, l.settled_at, l.process_id, l.error,
  o.progress, coalesce(o.result, s.result) as result, j.shard, j.options #>> '{schedule,name}' as schedule,
  (j.options #>> '{schedule,at}')::timestamptz as tick_at, j.options,
  coalesce((j.options ->> 'attempts')::smallint, k.attempts, q.attempts) as attempts, j.group_name as "group"
from pawl.queue_job j
join pawl.queue_definition q on q.id = j.queue
join pawl.queue_kind k on k.id = j.kind
cross join lateral pawl.queue_job_place(j.shard, j.id, j.queue, j.kind, j.priority, j.key, j.group_name) l
left join pawl.queue_output o on o.shard = j.shard and o.id = j.id
left join pawl.queue_output s on s.shard = o.shard and s.id = o.result_of;

create or replace view pawl.job_history as
select j.id as job, h.at, h.from_status, h.to_status, h.attempt, h.process_id, h.worker, h.reason, h.error, j.shard
from pawl.queue_job j cross join lateral pawl.queue_history(j.shard, j.id) h;

create or replace view pawl.queue as
select d.name, d.shards, d.keyed, d.attempts, d.history, d.paused_at, d.created_at,
  array(select k.name from pawl.queue_kind k where k.queue = d.id order by k.name) as kinds,
  (select count(*)::int from pawl.queue_worker w where w.queue = d.id and w.expires_at > clock_timestamp()) as workers,
  pawl.queue_shown_parts(d.paused_parts) as paused_parts,
  (select count(*)::int from (select from pawl.queue_blocked b where b.queue = d.id limit 10000) x) as blocked_keys,
  nullif(d.per_group, pawl.queue_unlimited()) as per_group, d.rate_limit, d.rate_per
from pawl.queue_definition d
where d.removed_at is null or not pawl.queue_is_gone(d);

create or replace view pawl.worker as
select w.id, d.name as queue, w.host, w.pid, w.hold, w.concurrency,
  (select coalesce(sum(pawl.queue_size(r.ids)), 0)::bigint + cardinality(w.holding) from pawl.queue_running r where r.worker = w.id) as in_progress,
  w.started_at, w.beat_at, w.expires_at, w.expires_at > clock_timestamp() as is_live, w.takes
from pawl.queue_worker w join pawl.queue_definition d on d.id = w.queue;
