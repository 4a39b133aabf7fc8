-- What may be asked for one job alone. queue_job.options has it as an object of these, and is null for nearly all jobs:
--   schedule  {name, at}: the schedule that enqueued the job, and its tick
--   meta      an object of the caller's, which nothing here reads
-- src/queue/job-options.ts has the same table for programs, which check it themselves.

-- The options of a request to pawl.enqueue(), checked, as they are stored; null when there are none.
create or replace function pawl.queue_job_options(request jsonb) returns json
language plpgsql stable as $$
declare
  v_options jsonb := '{}';
  v_at timestamptz;
begin
  if jsonb_typeof(request -> 'schedule') <> 'null' then
    begin
      v_at := request -> 'schedule' ->> 'at';
      if request -> 'schedule' ->> 'name' is null or v_at is null or not isfinite(v_at) then
        raise exception 'name or at is missing';
      end if;
    exception when others then
      raise exception 'schedule must be an object of a name and a timestamp, {name, at}: %', sqlerrm using errcode = 'PW001', column = 'schedule';
    end;
    v_options := v_options || jsonb_build_object('schedule', jsonb_build_object('name', request -> 'schedule' ->> 'name', 'at', v_at));
  end if;
  if jsonb_typeof(request -> 'meta') <> 'null' then
    if jsonb_typeof(request -> 'meta') <> 'object' or octet_length((request -> 'meta')::text) > 16384 then
      raise exception 'meta must be an object of at most 16384 bytes as JSON, got %', left(request ->> 'meta', 100) using errcode = 'PW001', column = 'meta';
    end if;
    perform pawl.refuse_huge_numbers('meta', request -> 'meta');
    v_options := v_options || jsonb_build_object('meta', request -> 'meta');
  end if;
  return nullif(v_options, '{}')::json;
end $$;
