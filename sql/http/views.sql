-- The audit: what people did through the HTTP API. The view is a public contract. The table that it reads is not.

create or replace view pawl.audit as
select a.id, a.at, a.ended_at, a.who, a.remote, a.user_agent, a.action, a.target, a.details, a.status,
  case when a.status is null then 'unknown' when a.status < 400 then 'done' else 'refused' end as outcome, a.error
from pawl.http_audit a;
