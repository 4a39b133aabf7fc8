-- Reloads of hot copies: which process fetches which bytes for which host now, so that the others wait instead of fetching them, too.
-- A reload is a lease, not an advisory lock of a session: that would hold a connection as long as the bytes move.

-- Takes the reload, or renews it, and answers 0 to its owner. Answers any other caller how many ms the owner has at most.
create or replace function pawl.file_reload_take(
  p_space text, p_scope text, p_sha256 text, p_owner uuid, p_lease_ms bigint, p_host text, p_pid int
) returns float8
language plpgsql as $$
declare
  v_now timestamptz := clock_timestamp();
  v_left float8;
begin
  insert into pawl.file_reload as r (space, scope, sha256, owner, host, pid, started_at, expires_at)
  values (p_space, p_scope, p_sha256, p_owner, p_host, p_pid, v_now, v_now + p_lease_ms * interval '1 ms')
  on conflict (space, scope, sha256) do update
  set owner = excluded.owner, host = excluded.host, pid = excluded.pid, expires_at = excluded.expires_at,
    started_at = case when r.owner = excluded.owner then r.started_at else excluded.started_at end
  where r.owner = excluded.owner or r.expires_at <= clock_timestamp();
  if found then
    return 0;
  end if;
  select greatest(1, extract(epoch from r.expires_at - clock_timestamp()) * 1000) into v_left
  from pawl.file_reload r where r.space = p_space and r.scope = p_scope and r.sha256 = p_sha256;
  return coalesce(v_left, 1);
end $$;

create or replace function pawl.file_reload_end(p_space text, p_scope text, p_sha256 text, p_owner uuid) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  delete from pawl.file_reload r
  where r.space = p_space and r.scope = p_scope and r.sha256 = p_sha256 and r.owner = p_owner
$$;

-- The reloads of one version's bytes that are under way.
create or replace function pawl.file_reloads(p_space text, p_sha256 text) returns setof jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
  select jsonb_build_object('scope', r.scope, 'host', r.host, 'pid', r.pid, 'sinceMs', extract(epoch from r.started_at) * 1000,
    'expiresMs', extract(epoch from r.expires_at) * 1000)
  from pawl.file_reload r
  where r.space = p_space and r.sha256 = p_sha256 and r.expires_at > clock_timestamp()
$$;
