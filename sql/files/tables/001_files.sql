-- Files: bytes outside, truth inside.
--
--   file_store     one row per namespace: which content store its objects are in, and how often it was swept
--   file_document  one row per document: its version, and the object that has its bytes now. null: removed
--   file_object    one row per object ever begun, committed before its first byte is sent. The row decides about the object, never the
--                  object about the row, and never its age: Pawl did not write an object that has no row here
--
-- The states of an object, each change a guarded update of its row:
--
--   pending ──publish, in the caller's transaction──▶ live ──replaced or removed──▶ retired
--      │ its deadline has passed, or its upload failed                                │ kept long enough
--      └──────────────────────────────▶ deleting ◀────────────────────────────────────┘
--                                           │ deleted in the store
--                                           ▼
--                                        deleted, and once more when its tombstone is old: a request may arrive late
--
-- `pending → live` and `pending → deleting` need the same row, so exactly one of them happens. A retired object is condemned first, which keeps new readers
-- out. It is deleted when the readers from before have had their time, however long the transaction was that retired it.
--
-- collect_at is the only time that the collector reads, and it is the database's. If it is null there is nothing to do, so the index holds only what can
-- be collected, however much is stored.
--
-- Locks are taken in this order: the gate of the document, its row, rows of objects. The collector takes rows of objects
-- alone, and passes over rows that are locked.

create table pawl.file_store (
  space          text collate "C" primary key,
  store          uuid not null,          -- what the marker in the store says
  kind           text not null,          -- for messages: disk, s3
  pass           bigint not null default 0,
  probe          jsonb,                  -- what the store was found to support
  halted_at      timestamptz,
  halted_because text,
  attached_at    timestamptz not null default clock_timestamp()
);

create table pawl.file_document (
  space       text collate "C" not null,
  id          text collate "C" not null,
  version     bigint not null,           -- rises with every publication and every removal, and never starts again
  object      uuid,
  changed_at  timestamptz not null,
  primary key (space, id)
) with (fillfactor = 80);

create table pawl.file_object (
  object        uuid primary key,
  space         text collate "C" not null,
  id            text collate "C" not null,
  state         text not null check (state in ('pending', 'live', 'retired', 'deleting', 'deleted')),
  version       bigint,                  -- null: was never published
  size          bigint,
  sha256        bytea,
  checks        bytea,                   -- CRC-32 of each block of 1 MiB, 4 bytes each: so that a range can be checked, too
  content_type  text,
  meta          jsonb,
  author        text,
  upload        text,                    -- a multipart upload under way in the store
  host          text not null,
  pid           integer not null,
  created_at    timestamptz not null,
  live_at       timestamptz,
  retired_at    timestamptz,
  deleted_at    timestamptz,
  deletions     smallint not null default 0,
  collect_at    timestamptz
);
create index file_object_version on pawl.file_object (space, id, version) where version is not null;
create index file_object_collect on pawl.file_object (space, collect_at) where collect_at is not null;

-- Reloads of hot copies: which process fetches which bytes for which host now, so that the others wait instead of fetching them, too.
-- See reload.sql.
create table pawl.file_reload (
  space       text collate "C" not null,
  scope       text collate "C" not null,  -- a host, or '*' for all of them
  sha256      text collate "C" not null,
  owner       uuid not null,
  host        text not null,
  pid         integer not null,
  started_at  timestamptz not null,
  expires_at  timestamptz not null,
  primary key (space, scope, sha256)
);
