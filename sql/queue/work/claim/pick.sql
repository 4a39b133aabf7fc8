-- What a claim takes, and how much of it.

-- How many of these jobs one answer can carry: 16 MB of payloads, as they are stored, and one job at least. p_n: how many stand in
-- a row behind each, null for one. Where no payload was ever stored out of line, nothing is asked: none has more than 2 kB then.
create or replace function pawl.queue_count_fitting(p_shard smallint, p_first bigint[], p_n int[]) returns bigint
language plpgsql /* planner: loop */ as $$
begin
  if not pawl.queue_has_large_payloads() then
    return 9223372036854775807;
  end if;
  return (
    select count(*) filter (where s.nth = 1 or s.upto <= 16777216) from (
      select row_number() over w as nth, sum(pg_column_size(j.payload)) over w as upto
      from unnest(p_first, p_n) with ordinality u (first, n, ord)
      cross join lateral (
        select j.id, j.payload from pawl.queue_job j
        where j.shard = p_shard and j.id >= u.first and j.id < u.first + coalesce(u.n, 1) offset 0) j
      window w as (order by u.ord, j.id)
    ) s);
end $$;

-- Whether a payload was ever stored out of line: else none has more than 2 kB.
create or replace function pawl.queue_has_large_payloads() returns boolean
language sql stable as $$
  select pg_relation_size(c.reltoastrelid) > 0 from pg_class c where c.oid = 'pawl.queue_job'::regclass
$$;

-- Whether the next attempt is a job's last one.
create or replace function pawl.queue_is_last(p_shard smallint, p_id bigint, p_kind smallint, p_attempt smallint) returns boolean
language sql stable as $$
  select p_attempt + 1 >= coalesce((j.options ->> 'attempts')::smallint, k.attempts, d.attempts)
  from pawl.queue_kind k join pawl.queue_definition d on d.id = k.queue
  cross join lateral (select j.options from pawl.queue_job j where j.shard = p_shard and j.id = p_id offset 0) j
  where k.id = p_kind
$$;
