-- Single changes: the history of an entity, and what is delivered in order. Written by the same triggers as capture_dirty, only for
-- tables that ask for it, one row for each changed row; never updated or deleted. Old months are dropped as partitions.
--
-- Values are text, cut where they are long, and only of the columns that were listed. actor and reason are what the writer
-- said of itself (set_config('pawl.actor', …, true)): a claim, not a proof. db_user is the role it had logged in as.

create sequence pawl.capture_change_id_seq;  -- cache 1: of two changes of a row the later has the higher id

create table pawl.capture_change (
  id       bigint not null default nextval('pawl.capture_change_id_seq'),
  at       timestamptz not null default clock_timestamp(),
  xid      xid8 not null default pg_current_xact_id(),
  capture  smallint not null,
  source   smallint not null,  -- as in capture_dirty: which table
  op       text not null,      -- insert, update, delete, truncate
  key      text,               -- of the entity, or what links the table to it; of an update the one after it
  old_key  text,               -- of an update that changed it
  before   json,
  after    json,
  actor    text default nullif(current_setting('pawl.actor', true), ''),
  reason   text default nullif(current_setting('pawl.reason', true), ''),
  db_user  name not null default session_user
) partition by range (at);
alter sequence pawl.capture_change_id_seq owned by pawl.capture_change.id;
create index capture_change_key on pawl.capture_change (capture, key, id);
create index capture_change_old_key on pawl.capture_change (capture, old_key, id) where old_key is not null;
create index capture_change_xid on pawl.capture_change (capture, xid, id);

-- What no month has been made for: a writer must never fail because nobody looked after the months.
create table pawl.capture_change_rest partition of pawl.capture_change default;

-- Makes the months from this one to p_ahead later. One for which rows are in the rest already is left out.
create function pawl.capture_make_months(p_ahead int) returns int
language plpgsql as $$
declare
  v_month timestamptz;
  v_name text;
  v_made int := 0;
begin
  perform pg_advisory_xact_lock(hashtextextended('capture_make_months', -1000000));
  for v_month in
    select date_trunc('month', clock_timestamp() at time zone 'utc') at time zone 'utc' + i * interval '1 month' from generate_series(0, p_ahead) i
  loop
    v_name := 'capture_change_' || to_char(v_month at time zone 'utc', 'YYYYMM');
    if to_regclass('pawl.' || v_name) is null
      and not exists (select from pawl.capture_change_rest r where r.at >= v_month and r.at < v_month + interval '1 month') then
      execute format('create table pawl.%I partition of pawl.capture_change for values from (%L) to (%L)', v_name, v_month, v_month + interval '1 month');
      v_made := v_made + 1;
    end if;
  end loop;
  return v_made;
end $$;

-- Drops months that ended longer ago than p_age, but none that holds something a line in order has not read yet.
create function pawl.capture_drop_months(p_age interval) returns text[]
language plpgsql as $$
declare
  v_month record;
  v_unread boolean;
  v_dropped text[] := '{}';
begin
  perform pg_advisory_xact_lock(hashtextextended('capture_make_months', -1000000));
  for v_month in
    select c.relname::text as name, to_timestamp(substr(c.relname, 16), 'YYYYMM') as at
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'pawl.capture_change'::regclass and c.relname ~ '^capture_change_[0-9]{6}$' order by 1
  loop
    continue when (v_month.at at time zone 'utc')::timestamp + interval '1 month' > (clock_timestamp() at time zone 'utc')::timestamp - p_age;
    execute format($q$
      select exists (
        select from pawl.%I c join pawl.capture_line l on l.capture = c.capture and l.guarantee = 'ordered'
        where not pg_visible_in_snapshot(c.xid, l.seen))$q$, v_month.name) into v_unread;
    continue when v_unread;
    execute format('drop table pawl.%I', v_month.name);
    v_dropped := v_dropped || v_month.name;
  end loop;
  return v_dropped;
end $$;
