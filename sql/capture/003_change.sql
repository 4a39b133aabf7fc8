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
alter table pawl.capture_line alter column top set default coalesce(pg_catalog.pg_sequence_last_value('pawl.capture_change_id_seq'), 0);
create index capture_change_key on pawl.capture_change (capture, key, id);
create index capture_change_old_key on pawl.capture_change (capture, old_key, id) where old_key is not null;
create index capture_change_xid on pawl.capture_change (capture, xid, id);

-- What no month has been made for: a writer must never fail because nobody looked after the months.
create table pawl.capture_change_rest partition of pawl.capture_change default;
