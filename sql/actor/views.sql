-- What people and dashboards read. The views are the contract; the tables below them are not.

create or replace view pawl.actor as
select a.id, t.name as type, a.state, a.key, a.parent, a.fields, a.result, a.attempt, a.error, a.children as open_children,
  case
    when a.finished_at is not null then 'final'
    when coalesce(a.worker, a.tx_worker) is not null then 'running'
    when a.paused_at is not null or t.paused_at is not null or a.held = 'the state is paused' then 'paused'
    when a.held is not null and a.held <> pawl.actor_isolation_reason(2) then 'held'
    when a.wake_at is null then 'hibernating'
    when a.wake_at <= clock_timestamp() then 'due'
    when a.attempt > 0 then 'backing off'
    else 'napping'
  end as status,
  a.entered_at, a.wake_at, a.deadline_at, a.created_at, a.finished_at
from pawl.actor_instance a join pawl.actor_type t on t.id = a.type;

-- How often each semaphore was raised and not yet lowered.
create or replace view pawl.semaphore as
select s.actor_id, s.name, sum(s.val)::bigint as val
from (
  select a.id as actor_id, e.key as name, e.value::bigint as val
  from pawl.actor_instance a cross join lateral jsonb_each_text(a.semaphores) e where a.semaphores <> '{}'
  union all
  select i.actor, i.name, i.n from pawl.actor_inbox i where i.name !~ '^[$]'
) s
group by s.actor_id, s.name;

create or replace view pawl.actor_history as
select h.at, h.actor as actor_id, t.name as type, h.from_state, h.to_state, h.reason, h.attempt, h.worker, h.error
from pawl.actor_transition h join pawl.actor_type t on t.id = h.type;

-- What each turn changed in the fields, of types that keep them. A turn that changed nothing has no row.
create or replace view pawl.actor_field_history as
select s.at, s.actor as actor_id, t.name as type, s.epoch, s.state, s.fields as before,
  coalesce((select n.fields from pawl.actor_snapshot n where n.actor = s.actor and n.epoch > s.epoch order by n.epoch limit 1), a.fields) as after
from pawl.actor_snapshot s join pawl.actor_type t on t.id = s.type join pawl.actor_instance a on a.id = s.actor;

create or replace view pawl.page as
select p.id, p.tag, (array['info', 'warning', 'error', 'critical'])[p.severity] as severity,
  case when p.resolved_at is not null then 'resolved' when p.acked_at is not null then 'acked' else 'open' end as status,
  p.summary, p.details, p.actor as actor_id, p.root, p.notified_at is null as suppressed, p.count, p.opened_at, p.seen_at, p.acked_at, p.acked_by, p.resolved_at
from pawl.actor_page p;
