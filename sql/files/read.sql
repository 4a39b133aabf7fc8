-- Reading: which object has the bytes of a document, and what became of its versions.

-- A version to be read, with its checks; p_version null: the live one. Null if there is none. A condemned version comes without checks.
create or replace function pawl.file_current(p_space text, p_id text, p_version bigint) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select pawl.file_json(o) || jsonb_build_object('checks',
    case when o.state in ('live', 'retired') then translate(encode(o.checks, 'base64'), e'\n', '') end)
  from pawl.file_document d
  join pawl.file_object o on o.object = d.object
  where p_version is null and d.space = p_space and d.id = p_id
  union all
  select pawl.file_json(o) || jsonb_build_object('checks',
    case when o.state in ('live', 'retired') then translate(encode(o.checks, 'base64'), e'\n', '') end)
  from pawl.file_object o
  where p_version is not null and o.space = p_space and o.id = p_id and o.version = p_version
$$;

-- Documents in the order of their ids, byte by byte.
create or replace function pawl.file_list(p_space text, p_prefix text, p_after text, p_limit int) returns setof jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select pawl.file_json(o)
  from pawl.file_document d
  join pawl.file_object o on o.object = d.object
  where d.space = p_space and d.id >= p_prefix collate "C" and starts_with(d.id, p_prefix)
    and (p_after is null or d.id > p_after collate "C")
  order by d.id
  limit p_limit
$$;

-- Versions of a document, newest first, with what became of them.
create or replace function pawl.file_history(p_space text, p_id text, p_before bigint, p_limit int) returns setof jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select pawl.file_json(o)
  from pawl.file_object o
  where o.space = p_space and o.id = p_id and o.version < coalesce(p_before, 9223372036854775807)
  order by o.version desc
  limit p_limit
$$;

-- The present state of an object whose publication has no known outcome. Waits for a transaction that is still publishing it.
create or replace function pawl.file_outcome(p_object uuid) returns jsonb
language plpgsql as $$
declare
  v_object pawl.file_object;
begin
  select * into v_object from pawl.file_object o where o.object = p_object for no key update;
  return pawl.file_json(v_object);
end $$;

-- The processes at the gate of a document: holders and waiters, in the order in which they came.
create or replace function pawl.file_gate_queue(p_space text, p_id text) returns setof jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object(
    'pid', l.pid, 'mode', case l.mode when 'ShareLock' then 'share' else 'exclusive' end, 'holds', l.granted,
    'sinceMs', extract(epoch from coalesce(l.waitstart, a.xact_start)) * 1000, 'applicationName', a.application_name,
    'blockedBy', to_jsonb(case when l.granted then '{}' else pg_blocking_pids(l.pid) end))
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'advisory' and l.objsubid = 1
    and l.database = (select d.oid from pg_database d where d.datname = current_database())
    and (l.classid::bigint << 32) | l.objid::bigint = pawl.file_gate(p_space, p_id)
  order by l.granted desc, coalesce(l.waitstart, a.xact_start)
$$;

-- One version, as the library reads it.
create or replace function pawl.file_json(o pawl.file_object) returns jsonb
language sql stable as $$
  select jsonb_build_object(
    'id', o.id, 'object', o.object, 'version', o.version, 'state', o.state, 'size', o.size,
    'sha256', encode(o.sha256, 'hex'), 'contentType', o.content_type, 'meta', o.meta, 'author', o.author,
    'writtenMs', extract(epoch from o.live_at) * 1000, 'retiredMs', extract(epoch from o.retired_at) * 1000,
    'keptUntilMs', case when o.state = 'retired' then extract(epoch from o.collect_at) * 1000 end)
$$;
