-- Every change once, in an order that no late commit upsets: batches between two snapshots. A batch has the changes that are visible in the later
-- snapshot and were not in the earlier one, sorted by id. No transaction that is open elsewhere makes anything wait: a change that commits late comes in
-- the batch after its commit. Changes of one row come in the order of the row's own history, since the second writer had to wait for the first before
-- its trigger drew a number.

-- Opens a batch: notes up to where it goes. It runs in a transaction of its own, which writes no change: a snapshot counts the transaction that takes it
-- as done.
create or replace function pawl.capture_open_batch(p_line smallint) returns void
language plpgsql as $$
declare
  v_line pawl.capture_line;
begin
  select l.* into v_line from pawl.capture_line l where l.id = p_line;
  if not found then
    raise exception 'there is no line % any more: its capture was detached', p_line using errcode = 'PW002';
  end if;
  if pawl.capture_is_foreign(v_line) then
    raise exception 'the log of "%" comes from another database: it was restored from a dump, copied or upgraded, and its transaction numbers are not valid here; run rebase(), which loses nothing', v_line.name
      using errcode = 'PW003';
  end if;
  if v_line.until is null then
    -- Locked first: a snapshot from before the end of another caller's batch would be older than the changes that this caller was given.
    perform from pawl.capture_line l where l.id = p_line for update;
    -- The snapshot is taken before the number is read, so every change that it shows has a number up to that.
    update pawl.capture_line l
    set until = pg_current_snapshot(), after = 0, batch = gen_random_uuid(), top = coalesce(pg_sequence_last_value('pawl.capture_change_id_seq'), 0)
    where l.id = p_line and l.until is null;
  end if;
end $$;

-- Answers the next changes of the open batch, at most p_limit, and those that begin within p_bytes: a change has up to 64 KiB for each column, before and
-- after. more: there may be others. The line is the caller's until the end of the transaction. While another caller has it, mine is false, and no changes
-- are answered.
create or replace function pawl.capture_take_batch(p_line smallint, p_limit int, p_bytes bigint, p_ms int, out mine boolean, out changes json, out more boolean)
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
  with next as materialized (
    select c.*, sum(octet_length(concat(c.before, c.after, c.key, c.old_key))) over (order by c.id rows between unbounded preceding and 1 preceding) as ahead
    from (
      select c.* from (
        select c.* from pawl.capture_change c
        where c.capture = v_line.capture and c.xid >= pg_snapshot_xmax(v_line.seen) and c.xid < pg_snapshot_xmax(v_line.until) and c.id > v_line.after
        union all
        select c.* from pg_snapshot_xip(v_line.seen) x (xid) join pawl.capture_change c on c.capture = v_line.capture and c.xid = x.xid
        where c.id > v_line.after
      ) c
      where pg_visible_in_snapshot(c.xid, v_line.until)
      order by c.id limit p_limit
    ) c
  ), fit as (
    select c.id::text as id, c.at, c.source, c.op, c.key, c.old_key as "oldKey", c.before, c.after, c.actor, c.reason, c.db_user as "dbUser"
    from next c where coalesce(c.ahead, 0) < p_bytes order by c.id
  )
  select (select json_agg(f) from fit f), (select count(*) >= p_limit or coalesce(bool_or(n.ahead >= p_bytes), false) from next n) into changes, more;
end $$;

-- Acknowledges changes, in the transaction that took them: the next changes come after p_after. Null: the batch is over.
create or replace function pawl.capture_advance(p_line smallint, p_after bigint) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.capture_line l
  set seen = case when p_after is null then l.until else l.seen end,
    until = case when p_after is null then null else l.until end,
    after = coalesce(p_after, 0)
  where l.id = p_line
$$;

-- Takes the log as it is. Changes that every line has had are stamped as long past, the others as of now. Changes of transactions that are under way stay
-- as they are, and come when these commit. In a log from another database, that holds for the changes that were in it when it was taken there, up to
-- "top"; later changes were never given to any line. If a line was ahead of another one, it is given the changes again that the other one had not had
-- yet. Answers how many changes are stamped as of now.
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
  -- Taken before the rows are read: changes that commit from now on are not in it, and so are given later.
  v_now := pg_current_snapshot();
  update pawl.capture_change c
  set xid = case when exists (
      select from pawl.capture_line l where l.capture = p_capture and l.guarantee = 'ordered'
        and (c.id > l.top or not pg_visible_in_snapshot(c.xid, l.seen)
          and not (l.until is not null and pg_visible_in_snapshot(c.xid, l.until) and c.id <= l.after))) then v_own else '3'::xid8 end
  where c.capture = p_capture and (v_is_foreign or pg_visible_in_snapshot(c.xid, v_now));
  select count(*) into v_left from pawl.capture_change c where c.capture = p_capture and c.xid = v_own;
  -- A snapshot counts its own transaction as done; this one must not.
  v_seen := format('%s:%s:%s', least(pg_snapshot_xmin(v_now)::text::numeric, v_own::text::numeric), pg_snapshot_xmax(v_now),
    (select string_agg(x.xid::text, ',' order by x.xid) from (select pg_snapshot_xip(v_now) union select v_own) x (xid)
     where x.xid < pg_snapshot_xmax(v_now)))::pg_snapshot;
  update pawl.capture_line l
  set seen = v_seen, until = null, after = 0, database = pawl.capture_database(),
    top = coalesce(pg_sequence_last_value('pawl.capture_change_id_seq'), 0)
  where l.capture = p_capture and l.guarantee = 'ordered';
  return v_left;
end $$;

-- The changes of an entity, newest first. p_before: the id of the last change that the caller has seen.
create or replace function pawl.capture_history(
  p_capture smallint, p_source smallint, p_key text, p_direct smallint[], p_since timestamptz, p_until timestamptz, p_actor text, p_like text,
  p_before bigint, p_limit int
) returns setof pawl.capture_change
language sql stable
set enable_seqscan = off set jit = off as $$
  select c.* from pawl.capture_change c
  where c.capture = p_capture and (p_source is null or c.source = p_source) and (p_direct is null or c.source = any (p_direct))
    and (p_key is null or left(c.key, 200) = left(p_key, 200) and c.key = p_key or left(c.old_key, 200) = left(p_key, 200) and c.old_key = p_key)
    and (p_since is null or c.at >= p_since) and (p_until is null or c.at < p_until) and (p_actor is null or c.actor = p_actor)
    and (
      p_like is null
      or exists (select from json_each_text(c.before) v where v.value ilike p_like)
      or exists (select from json_each_text(c.after) v where v.value ilike p_like)
    )
    and (p_before is null or c.id < p_before)
  order by c.id desc limit p_limit
$$;
