-- Which trace a job was enqueued in, so that the span of its run can point there. A table beside the jobs, written only where
-- somebody traces: a job without a trace costs nothing here, and nothing else reads it on its way.
-- Older workers may keep running: they do not look here.

create table pawl.queue_trace (
  id      bigint primary key,
  at      timestamptz not null default clock_timestamp(),
  parent  text not null  -- a traceparent, as W3C Trace Context has it
);
create index queue_trace_at on pawl.queue_trace using brin (at);

-- Removes a bounded amount of those older than a month: jobs that have not run by then run without a link.
create function pawl.queue_trace_prune(p_limit int) returns int
language plpgsql
set enable_seqscan = off set jit = off as $$
declare
  v_gone int;
begin
  delete from pawl.queue_trace t
  where t.id in (
    select o.id from pawl.queue_trace o
    where o.at < clock_timestamp() - interval '30 days'
    limit p_limit);
  get diagnostics v_gone = row_count;
  return v_gone;
end $$;
