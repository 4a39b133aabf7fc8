-- Consumers that write to another database, which is not captured. That database has the same migrations, and its tables say how far its copies have
-- come, in the transactions that write the copies. "Here" is the captured database, "there" the other one.
--
-- Either database may go back in time: after a crash that loses commits that were not flushed, after the promotion of a standby that lacks the last
-- commits, after a restore. Two things show it, and neither is a number that can catch up:
-- - An unlogged table is empty after a crash and on a promoted standby. Each of its rows also names the time at which the server was started. While it
--   has such a row of a line, nothing has been lost here since the line was last inspected.
-- - capture_line.reached is a position in the log of the captured database, stored in that database: where it is present, so is everything before it. A
--   row that was read behind that position may never have existed. So each row of a copy names the position at which it was read.
-- Inspecting a line begins an epoch of its copy. After that, no delivery of an earlier epoch is taken, however late it comes.

-- Here: the version of a delivery. The versions of an epoch are above those of all earlier epochs, wherever the sequence stands after a crash.
create or replace function pawl.capture_copy_next_version(p_line smallint, out copy uuid, out epoch bigint, out version bigint, out is_known boolean)
language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  select l.copy, l.epoch, (l.epoch << 40) + nextval('pawl.capture_version_seq'::regclass),
    exists (select from pawl.capture_known k where k.line = p_line and k.server = pg_postmaster_start_time())
  into copy, epoch, version, is_known
  from pawl.capture_line l where l.id = p_line;
end $$;

-- Here: the line is the caller's until the end of the transaction. "is_done": another caller has inspected the line since p_epoch.
create or replace function pawl.capture_copy_inspect(
  p_line smallint, p_epoch bigint, out is_done boolean, out copy uuid, out epoch bigint, out reached pg_lsn, out database text, out timeline int
)
language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  select l.copy, l.epoch, l.reached into copy, epoch, reached from pawl.capture_line l where l.id = p_line for update;
  is_done := epoch <> p_epoch and exists (select from pawl.capture_known k where k.line = p_line and k.server = pg_postmaster_start_time());
  database := pawl.capture_database();
  timeline := ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::int;
end $$;

-- There: begins an epoch. Waits for the deliveries of the epoch before; none of them is taken any more. "is_known": nothing that was acknowledged was
-- lost in this database. "keys": those read behind p_reached, which the captured database may not know.
create or replace function pawl.capture_copy_begin(
  p_copy uuid, p_epoch bigint, p_reached pg_lsn, p_database text, p_timeline int, p_limit int, p_ms int,
  out epoch bigint, out is_known boolean, out keys text[]
)
language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
  v_last pawl.capture_copy_epoch;
begin
  perform pawl.capture_limit(p_ms);
  perform pg_advisory_xact_lock(hashtextextended(p_copy::text, (-1000000)::bigint));
  select e.* into v_last from pawl.capture_copy_epoch e where e.copy = p_copy;
  if not pawl.capture_is_database(v_last.database, p_database) then
    raise exception 'the copy belongs to the database %, and this is %: it was restored from a dump, copied or upgraded; run rebase(), which takes the copy over',
      v_last.database, p_database using errcode = 'PW003';
  elsif v_last.timeline > p_timeline then
    raise exception 'the copy follows timeline %, and this server is on timeline %: another server was promoted, or this one was restored to an earlier time; run rebase() to follow this server',
      v_last.timeline, p_timeline using errcode = 'PW003';
  end if;
  if v_last.copy is null and p_epoch = 0 then
    is_known := true;
    insert into pawl.capture_copy_known as k (copy, since, database) values (p_copy, 0, pawl.capture_database())
    on conflict (copy) do update set since = excluded.since, database = excluded.database;
  else
    is_known := coalesce(v_last.epoch >= p_epoch, false)
      and exists (
        select from pawl.capture_copy_known k where k.copy = p_copy and k.since <= p_epoch and pawl.capture_is_database(k.database, pawl.capture_database()));
  end if;
  epoch := greatest(p_epoch, v_last.epoch) + 1;
  insert into pawl.capture_copy_epoch as e (copy, epoch, database, timeline) values (p_copy, capture_copy_begin.epoch, p_database, p_timeline)
  on conflict (copy) do update set epoch = excluded.epoch, database = excluded.database, timeline = excluded.timeline;
  if not is_known then
    insert into pawl.capture_copy_known as k (copy, since, database) values (p_copy, capture_copy_begin.epoch, pawl.capture_database())
    on conflict (copy) do update set since = excluded.since, database = excluded.database;
  end if;
  keys := array(select c.key from pawl.capture_copy_key c where c.copy = p_copy and c.position > p_reached limit p_limit);
end $$;

-- Here: the line was inspected. p_keys: the keys of the copy that may never have existed; null: any key.
create or replace function pawl.capture_copy_inspected(p_line smallint, p_epoch bigint, p_keys text[]) returns void
language sql
set search_path = pg_catalog, pg_temp as $$
  insert into pawl.capture_dirty (line, source, key) select p_line, 0::smallint, k from unnest(p_keys) k order by k;
  insert into pawl.capture_dirty (line, source, key) select p_line, (-1)::smallint, '' where p_keys is null;
  update pawl.capture_line l set epoch = p_epoch, reached = pg_current_wal_insert_lsn() where l.id = p_line;
  insert into pawl.capture_known as k (line, server) values (p_line, pg_postmaster_start_time())
  on conflict (line) do update set server = excluded.server;
$$;

-- Here: the log certainly reaches to where it is now, once this is committed. Passes over a line that another transaction has locked.
create or replace function pawl.capture_copy_note_position(p_line smallint) returns void
language sql
set search_path = pg_catalog, pg_temp as $$
  update pawl.capture_line l set reached = pg_current_wal_insert_lsn()
  where l.id = (select k.id from pawl.capture_line k where k.id = p_line for update skip locked)
$$;

-- There: which of the keys may be written with this version; they are the caller's until the end of the transaction. A caller with an older version is
-- late: a worker that stood still, and whose keys were given to others meanwhile. "is_current": no other epoch has begun, and nothing was lost in this
-- database. Otherwise no key is taken.
create or replace function pawl.capture_copy_take(
  p_copy uuid, p_epoch bigint, p_version bigint, p_position pg_lsn, p_keys text[], p_ms int, out is_current boolean, out keys text[]
)
language plpgsql
set search_path = pg_catalog, pg_temp as $$
begin
  perform pawl.capture_limit(p_ms);
  perform pg_advisory_xact_lock_shared(hashtextextended(p_copy::text, (-1000000)::bigint));
  is_current := exists (
    select from pawl.capture_copy_epoch e join pawl.capture_copy_known k on k.copy = e.copy
    where e.copy = p_copy and e.epoch = p_epoch and k.since <= p_epoch and pawl.capture_is_database(k.database, pawl.capture_database()));
  if not is_current then
    keys := '{}';
    return;
  end if;
  with taken as (
    insert into pawl.capture_copy_key as c (copy, version, position, key) select p_copy, p_version, p_position, k from unnest(p_keys) k order by k
    on conflict (copy, md5(key)) do update set version = excluded.version, position = excluded.position where c.version < excluded.version
    returning c.key
  )
  select coalesce(array_agg(t.key), '{}') into keys from taken t;
end $$;

-- There: the number of the last change of this batch that was written already; 0 if none was. p_delivery: how many deliveries the captured database knows
-- to have arrived. One more may have arrived, if its acknowledgement was lost. The place is the caller's until the end of the transaction.
create or replace function pawl.capture_copy_open(p_copy uuid, p_delivery bigint, p_batch uuid, p_ms int) returns bigint
language plpgsql as $$
declare
  v_place pawl.capture_copy_place;
begin
  perform pawl.capture_limit(p_ms);
  if p_delivery = 0 then
    insert into pawl.capture_copy_place (copy, delivery, batch, after) values (p_copy, 0, p_batch, 0) on conflict do nothing;
  end if;
  select p.* into v_place from pawl.capture_copy_place p where p.copy = p_copy for update;
  if not found or v_place.delivery < p_delivery then
    raise exception 'this database has had % deliveries, and % had been acknowledged: it was restored to an earlier time, and lacks what came after; copy everything once more, then run rebase()',
      coalesce(v_place.delivery, 0), p_delivery using errcode = 'PW003';
  elsif v_place.delivery > p_delivery + 1 or (v_place.delivery = p_delivery + 1 and v_place.batch <> p_batch) then
    raise exception 'this database has had % deliveries, and the captured one knows of %: that one was restored to an earlier time; copy everything once more, then run rebase()',
      v_place.delivery, p_delivery using errcode = 'PW003';
  end if;
  return case when v_place.batch = p_batch then v_place.after else 0 end;
end $$;

create or replace function pawl.capture_copy_advance(p_copy uuid, p_delivery bigint, p_batch uuid, p_after bigint) returns void
language sql set search_path = pg_catalog, pg_temp as $$
  update pawl.capture_copy_place p set delivery = p_delivery, batch = p_batch, after = p_after where p.copy = p_copy
$$;

-- Here: makes the next delivery inspect the line first.
create or replace function pawl.capture_copy_forget(p_line smallint) returns void
language sql
set search_path = pg_catalog, pg_temp as $$
  delete from pawl.capture_known k where k.line = p_line
$$;

-- There: gives a copy to another database, or to one that went back behind a promotion.
create or replace function pawl.capture_copy_transfer(p_copy uuid, p_database text, p_timeline int) returns void
language sql
set search_path = pg_catalog, pg_temp as $$
  update pawl.capture_copy_epoch e set database = p_database, timeline = p_timeline where e.copy = p_copy
$$;
