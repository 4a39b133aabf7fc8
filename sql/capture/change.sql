-- Every change once, in an order that no late commit upsets: batches between two snapshots. A batch has what is visible in the later
-- one and was not in the earlier one, sorted by id. No transaction that is open somewhere keeps anything waiting, and what
-- commits late comes in the batch after its commit. Of changes of one row the order is that of the row's own history, since
-- the second writer had to wait for the first before its trigger drew a number.

-- Says up to where the next batch goes. In a transaction of its own, which writes no change: a snapshot counts the transaction that
-- takes it as done.
create or replace function pawl.capture_open_batch(p_line smallint) returns void
language plpgsql as $$
declare
  v_line pawl.capture_line;
begin
  select l.* into v_line from pawl.capture_line l where l.id = p_line;
  if pawl.capture_is_foreign(v_line) then
    raise exception 'the log of "%" comes from another database: it was restored from a dump, copied or upgraded, and its transaction numbers mean nothing here; run rebase(), which loses nothing', v_line.name
      using errcode = 'PW003';
  end if;
  if v_line.until is null then
    -- Locked first: a snapshot from before the end of somebody else's batch would be older than what that one has been given.
    perform from pawl.capture_line l where l.id = p_line for update;
    -- The snapshot is taken before the number is read, so whatever it shows has a number up to that.
    update pawl.capture_line l
    set until = pg_current_snapshot(), after = 0, batch = gen_random_uuid(), top = coalesce(pg_sequence_last_value('pawl.capture_change_id_seq'), 0)
    where l.id = p_line and l.until is null;
  end if;
end $$;

-- The next changes of the batch that is open. The line is the caller's until the end of the transaction; nothing is given
-- while it is somebody else's.
create or replace function pawl.capture_take_changes(p_line smallint, p_limit int, p_ms int, out mine boolean, out changes json)
language plpgsql
set enable_seqscan = off set jit = off as $$
declare
  v_line pawl.capture_line;
begin
  perform pawl.capture_limit(p_ms);
  select l.* into v_line from pawl.capture_line l where l.id = p_line and l.until is not null for update skip locked;
  mine := found;
  if not found then
    return;
  end if;
  select json_agg(x) into changes from (
    select c.id::text as id, c.at, c.source, c.op, c.key, c.old_key as "oldKey", c.before, c.after, c.actor, c.reason, c.db_user as "dbUser"
    from (
      select c.* from pawl.capture_change c
      where c.capture = v_line.capture and c.xid >= pg_snapshot_xmax(v_line.seen) and c.xid < pg_snapshot_xmax(v_line.until) and c.id > v_line.after
      union all
      select c.* from pg_snapshot_xip(v_line.seen) x (xid) join pawl.capture_change c on c.capture = v_line.capture and c.xid = x.xid
      where c.id > v_line.after
    ) c
    where pg_visible_in_snapshot(c.xid, v_line.until)
    order by c.id limit p_limit
  ) x;
end $$;

-- Acknowledges, in the transaction that took them: the next changes come after p_after, or the batch is over.
create or replace function pawl.capture_advance(p_line smallint, p_after bigint) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.capture_line l
  set seen = case when p_after is null then l.until else l.seen end,
    until = case when p_after is null then null else l.until end,
    after = coalesce(p_after, 0)
  where l.id = p_line
$$;

-- Takes the log as it is. What every line has had is stamped as long past, the rest as of now; what transactions write that are under
-- way stays as it is, and comes when they commit. Of a log from another database that holds for what was in it when it was taken
-- there, up to "top"; what came after was never given to anybody. A line that was ahead of another is given again what that one had
-- not had yet.
create or replace function pawl.capture_rebase(p_capture smallint) returns bigint
language plpgsql as $$
declare
  v_own xid8 := pg_current_xact_id();
  v_now pg_snapshot;
  v_seen pg_snapshot;
  v_is_foreign boolean;
  v_left bigint;
begin
  perform from pawl.capture_line l where l.capture = p_capture and l.guarantee = 'ordered' for update;
  v_is_foreign := exists (
    select from pawl.capture_line l where l.capture = p_capture and l.guarantee = 'ordered' and pawl.capture_is_foreign(l));
  -- Before the rows are read: what commits from now on is not in it, and so is given later.
  v_now := pg_current_snapshot();
  update pawl.capture_change c
  set xid = case when exists (
      select from pawl.capture_line l where l.capture = p_capture and l.guarantee = 'ordered'
        and (c.id > l.top or not pg_visible_in_snapshot(c.xid, l.seen)
          and not (l.until is not null and pg_visible_in_snapshot(c.xid, l.until) and c.id <= l.after))) then v_own else '3'::xid8 end
  where c.capture = p_capture and (v_is_foreign or pg_visible_in_snapshot(c.xid, v_now));
  select count(*) into v_left from pawl.capture_change c where c.capture = p_capture and c.xid = v_own;
  -- A snapshot counts its own transaction as done; this one is not.
  v_seen := format('%s:%s:%s', least(pg_snapshot_xmin(v_now)::text::numeric, v_own::text::numeric), pg_snapshot_xmax(v_now),
    (select string_agg(x.xid::text, ',' order by x.xid) from (select pg_snapshot_xip(v_now) union select v_own) x (xid)
     where x.xid < pg_snapshot_xmax(v_now)))::pg_snapshot;
  update pawl.capture_line l
  set seen = v_seen, until = null, after = 0, database = pawl.capture_database(),
    top = coalesce(pg_sequence_last_value('pawl.capture_change_id_seq'), 0)
  where l.capture = p_capture and l.guarantee = 'ordered';
  return v_left;
end $$;

-- What happened to an entity, newest first. p_before: the id of the last one that was seen.
create or replace function pawl.capture_history(
  p_capture smallint, p_source smallint, p_key text, p_direct smallint[], p_since timestamptz, p_until timestamptz, p_actor text, p_like text,
  p_before bigint, p_limit int
) returns setof pawl.capture_change
language sql stable
set enable_seqscan = off set jit = off as $$
  select c.* from pawl.capture_change c
  where c.capture = p_capture and (p_source is null or c.source = p_source) and (p_direct is null or c.source = any (p_direct))
    and (p_key is null or c.key = p_key or c.old_key = p_key)
    and (p_since is null or c.at >= p_since) and (p_until is null or c.at < p_until) and (p_actor is null or c.actor = p_actor)
    and (p_like is null or c.before::text ilike p_like or c.after::text ilike p_like)
    and (p_before is null or c.id < p_before)
  order by c.id desc limit p_limit
$$;
