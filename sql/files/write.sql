-- Writing: the row that is committed before the bytes are sent, and the changes of the caller's transaction once the bytes are stored.

-- Notes that an object is about to be written. Committed by itself before the first byte: from then on the collector finds the object.
create or replace function pawl.file_intend(
  p_space text, p_id text, p_object uuid, p_pending_ms bigint, p_host text, p_pid int
) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  insert into pawl.file_object (object, space, id, state, host, pid, created_at, collect_at)
  select p_object, p_space, p_id, 'pending', p_host, p_pid, t.now, t.now + p_pending_ms * interval '1 ms'
  from (select clock_timestamp() as now) t
$$;

-- For an upload that has failed, or is not wanted: the collector may have the object at once. Does nothing to an object that was published, or that an open
-- transaction is publishing.
create or replace function pawl.file_abandon(p_object uuid) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.file_object o
  set collect_at = clock_timestamp()
  where o.object = (
    select i.object from pawl.file_object i where i.object = p_object and i.state = 'pending' for update skip locked
  )
$$;

-- Publishes a version: {space, id, object, size, sha256, checks, contentType, meta, author, ifVersion, retainMs}
--   → {version, previous, writtenMs} | {conflict: actual} | {lost: state}
-- In the caller's transaction. A refusal has changed nothing, and the transaction can go on. ifVersion 0: there must be no such document.
create or replace function pawl.file_publish(p jsonb) returns jsonb
language plpgsql as $$
declare
  v_space text := p ->> 'space';
  v_id text := p ->> 'id';
  v_object uuid := p ->> 'object';
  v_expected bigint := p ->> 'ifVersion';
  v_document pawl.file_document;
  v_actual bigint;
  v_version bigint;
  v_now timestamptz;
begin
  perform pg_advisory_xact_lock(pawl.file_gate(v_space, v_id));
  select * into v_document from pawl.file_document d where d.space = v_space and d.id = v_id for no key update;
  v_actual := case when v_document.object is null then 0 else v_document.version end;
  -- After a removal, both 0 and the version that the removal made are right.
  if v_expected <> v_actual and v_expected is distinct from v_document.version then
    return jsonb_build_object('conflict', v_actual);
  end if;
  v_now := clock_timestamp();
  v_version := coalesce(v_document.version, 0) + 1;
  update pawl.file_object o
  set state = 'live', version = v_version, size = (p ->> 'size')::bigint, sha256 = decode(p ->> 'sha256', 'hex'),
    checks = decode(p ->> 'checks', 'base64'), content_type = p ->> 'contentType', meta = p -> 'meta', author = p ->> 'author',
    upload = null, live_at = v_now, collect_at = null
  where o.object = v_object and o.space = v_space and o.id = v_id and o.state = 'pending';
  if not found then
    return jsonb_build_object('lost', (select o.state from pawl.file_object o where o.object = v_object));
  end if;
  perform pawl.file_retire(v_document.object, v_now, (p ->> 'retainMs')::bigint);
  insert into pawl.file_document as d (space, id, version, object, changed_at)
  values (v_space, v_id, v_version, v_object, v_now)
  on conflict (space, id) do update set version = excluded.version, object = excluded.object, changed_at = excluded.changed_at;
  return jsonb_build_object('version', v_version, 'previous', v_document.version, 'writtenMs', extract(epoch from v_now) * 1000);
end $$;

-- Removes a document: {space, id, ifVersion, retainMs} → {version} | {conflict: actual} | {absent: true}. In the caller's transaction.
create or replace function pawl.file_remove(p jsonb) returns jsonb
language plpgsql as $$
declare
  v_space text := p ->> 'space';
  v_id text := p ->> 'id';
  v_document pawl.file_document;
  v_now timestamptz;
begin
  perform pg_advisory_xact_lock(pawl.file_gate(v_space, v_id));
  select * into v_document from pawl.file_document d where d.space = v_space and d.id = v_id for no key update;
  if v_document.object is null then
    return jsonb_build_object('absent', true);
  end if;
  if (p ->> 'ifVersion')::bigint <> v_document.version then
    return jsonb_build_object('conflict', v_document.version);
  end if;
  v_now := clock_timestamp();
  perform pawl.file_retire(v_document.object, v_now, (p ->> 'retainMs')::bigint);
  update pawl.file_document d set version = d.version + 1, object = null, changed_at = v_now
  where d.space = v_space and d.id = v_id;
  return jsonb_build_object('version', v_document.version + 1);
end $$;

-- The key of a document's advisory lock, its gate. Readers that want the version to stay share it, a writer that changes the document holds it alone, and
-- they are served in the order in which they came. Row locks have no such order: a stream of FOR SHARE keeps a FOR UPDATE waiting for ever.
create or replace function pawl.file_gate(p_space text, p_id text) returns bigint
language sql immutable strict parallel safe as $$
  select hashtextextended(p_space || e'\x1f' || p_id, 7046029254386353131)
$$;

create or replace function pawl.file_retire(p_object uuid, p_now timestamptz, p_retain_ms bigint) returns void
language sql as $$
  update pawl.file_object o
  set state = 'retired', retired_at = p_now, collect_at = p_now + p_retain_ms * interval '1 ms'
  where o.object = p_object and o.state = 'live'
$$;

-- {space, id} → the current version, which stays current until the caller's transaction ends. Nothing is written. Under an isolation that keeps an older
-- snapshot, the row lock fails if the version is not the newest any more (40001).
create or replace function pawl.file_share(p jsonb) returns jsonb
language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared(pawl.file_gate(p ->> 'space', p ->> 'id'));
  if current_setting('transaction_isolation') <> 'read committed' then
    perform from pawl.file_document d where d.space = p ->> 'space' and d.id = p ->> 'id' for share;
  end if;
  return pawl.file_current(p ->> 'space', p ->> 'id', null);
end $$;
