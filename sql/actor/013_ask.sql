-- What a turn asks for beside its own row, in the transaction that commits it: {create, page, resolve or enqueue}. A key or a tag that
-- an open transaction of somebody else has is not waited for for long: the turn has failed, and is tried again. Those that
-- are behind it wait for nobody.
--
-- Older workers may keep running: they call what this calls.
create function pawl.actor_ask(p_what text, p_json json) returns json
language plpgsql
set lock_timeout = '2s' as $$
begin
  return case p_what
    when 'create' then pawl.actor_create_json(p_json)
    when 'page' then pawl.page_open(p_json)
    when 'resolve' then to_json(pawl.page_resolve(p_json ->> 0))
    when 'enqueue' then to_json(pawl.enqueue(p_json::jsonb))
  end;
end $$;
