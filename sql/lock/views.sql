-- What people read. The views are the contract; the tables below them are not.

-- Present holders and waiters. A holder whose lease has run out is no holder any more, though its row may linger.
create or replace view pawl.lock as
select
  g.space as namespace, g.name, 'held' as state, pawl.lock_mode(g.capacity) as mode,
  case when g.capacity between 2 and 2147483646 then g.capacity end as permits,
  g.token, null::bigint as ticket, g.host, g.pid, g.process, g.granted_at as since,
  case when g.lease_ms is not null then g.expires_at end as expires_at,
  case when g.lease_ms is not null then g.expires_at - g.lease_ms * interval '1 ms' end as last_heartbeat_at, g.job
from pawl.lock_grant g
where g.token is not null and g.expires_at > clock_timestamp()
union all
select
  w.space, w.name, 'waiting', pawl.lock_mode(w.capacity),
  case when w.capacity between 2 and 2147483646 then w.capacity end,
  null, w.ticket, w.host, w.pid, w.process, w.enqueued_at, w.expires_at, null, w.job
from pawl.lock_waiter w
where w.expires_at > clock_timestamp();

-- Past holders. outcome: released by its owner, broken by an operator, expired without a heartbeat.
create or replace view pawl.lock_history as
select
  p.space as namespace, p.name, p.token, pawl.lock_mode(p.capacity) as mode,
  case when p.capacity between 2 and 2147483646 then p.capacity end as permits,
  p.host, p.pid, p.process, p.granted_at, p.ended_at, p.outcome, p.reason, p.job
from pawl.lock_past p;
