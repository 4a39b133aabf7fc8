-- Locks: who holds, who waits, and how earlier holds ended.
--
-- Only a name that is held or waited for, or was so within the hour, has a row. So names may be made up freely.
--   lock_grant    one row per name and holder, and the fence that guards share-lock. An exclusive holder has slot 0, which stays
--                 when it is free and is written again by the next holder: so no index changes (HOT), and no dead rows pile up for
--                 readers to step over. Other holders have a slot of their own, whose number is the token.
--   lock_waiter   one row per name and waiter, in the order of its ticket
--   lock_period   when a name last had its run of oncePer
--   lock_past     past holders: until when each held the lock, and why that ended
--
-- The latch. A decision about a name first takes a transaction-scoped advisory lock on the name's hash, and keeps it until the commit. So each decision
-- sees all earlier ones, and both tickets and the tokens of one name rise in commit order. The latches of a set are taken in the order of their hashes, and
-- last for one statement. Two names with one hash share a latch, which costs a moment. Decisions need read committed: an older snapshot would not show what
-- was decided while the decision waited for the latch. The functions refuse any other isolation (PW005).
--
-- Who fits. Every holder and waiter has a capacity: 1 is exclusive, 2147483647 is shared, n is a permit of a semaphore.
-- A request fits if, counting itself, there are no more of them than the smallest capacity among them. An earlier request
-- that still waits counts as if it held the lock: that makes the queue fair, and keeps readers behind a writer.
--
-- Who grants. A process that releases a lock grants it to the waiters that fit now, in the same statement, and notifies them of their token. Such a grant
-- lasts as long as the waiter's place would have, which the waiter renewed itself: so the waiter knows until when it holds the lock without another
-- statement, and a dead waiter stops the queue no longer than its place would have. From the first heartbeat on, the grant has its whole lease. In some
-- cases the waiter only learns that it is its turn, and takes the lock itself: for a set, whose other names are not latched; without a lease, or with one
-- shorter than the place; or while the end of a holder is not written yet. A waiter that receives no notification takes the lock itself when it polls.
--
-- What must last. A grant and a release are on disk before any process learns of them. A place in the queue need not be: if its owner finds the place gone
-- after a crash of the server, it takes a new one.
--
-- There are no check constraints here: each statement would read their text anew, which took a sixth of its time (Postgres 18).
-- Only the functions write to these tables.
--
-- Time is clock_timestamp() throughout: now() stands still within a transaction, and a lease could be born expired.

-- Taken only under the latch, so for each name in commit order. It is a sequence, since a counter in a row of the name would have to be kept for ever, and
-- would start again if the row was deleted.
create sequence pawl.lock_token;

create table pawl.lock_grant (
  space       text collate "C" not null,
  name        text collate "C" not null,
  slot        bigint not null,       -- 0, or the token
  token       bigint,                -- null: the slot has no holder
  nonce       uuid not null,         -- made by the client for one acquisition: a repeated statement knows its own grant
  capacity    integer not null,
  pid         integer not null,
  lease_ms    bigint,                -- null: held until released or broken
  granted_at  timestamptz not null,
  expires_at  timestamptz not null,  -- -infinity once released or broken, while a guard's transaction keeps the row;
                                     -- infinity while it has no holder
  process     text not null,         -- names the channel of the client process
  host        text not null,
  outcome     text,                  -- released, broken
  reason      text,
  job         bigint,                -- the job of a queue whose handler asked for the lock
  primary key (space, name, slot)
) with (
  fillfactor = 60,
  autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0
);

create table pawl.lock_waiter (
  space        text collate "C" not null,
  name         text collate "C" not null,
  ticket       bigint not null,      -- the same in every name of a set, above all tickets that wait for any of them
  nonce        uuid not null,
  capacity     integer not null,
  pid          integer not null,
  lease_ms     bigint,               -- the lease that it will have; null: only the waiter itself can take the lock
  enqueued_at  timestamptz not null,
  expires_at   timestamptz not null, -- a waiter that does not renew this is dead, and passed over
  process      text not null,
  host         text not null,
  holds        bigint[] not null,    -- tokens that the waiter keeps: the edges of the graph that is searched for cycles
  job          bigint,
  primary key (space, name, ticket)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index lock_waiter_nonce on pawl.lock_waiter (nonce);
create index lock_waiter_holds on pawl.lock_waiter using gin (holds) where holds <> '{}';

create table pawl.lock_period (
  space       text collate "C" not null,
  name        text collate "C" not null,
  started_at  timestamptz not null,
  token       bigint not null,
  failed      boolean not null,      -- the run failed and was counted nevertheless (onError: 'keep')
  period_ms   bigint,
  primary key (space, name)
);

create table pawl.lock_past (
  space       text collate "C" not null,
  name        text collate "C" not null,
  token       bigint not null,
  capacity    integer not null,
  pid         integer not null,
  lease_ms    bigint,
  granted_at  timestamptz not null,
  ended_at    timestamptz not null,
  process     text not null,
  host        text not null,
  outcome     text not null,         -- released, broken, expired
  reason      text,
  job         bigint
);
create index lock_past_name on pawl.lock_past (space, name, token);
create index lock_past_ended on pawl.lock_past using brin (ended_at);
-- Rows of present holders have no such index: otherwise none of them would be written in place any more.
create index lock_past_job on pawl.lock_past (job) where job is not null;

-- Tokens and leases of captured rows whose table has no column for them. One row per captured row, until it is settled. Only the session that has locked the
-- captured row writes it, so no session ever waits for it. Tables are stored by name: an oid would not survive a restore.
create table pawl.lock_row_claim (
  relation    text not null,
  key         text not null,         -- the primary key's values as a jsonb array
  token       bigint not null,
  expires_at  timestamptz,           -- null: until it is settled
  claimed_at timestamptz not null default clock_timestamp(),
  primary key (relation, key)
) with (fillfactor = 70);

-- Rises for each row, because it is drawn only after the row is locked.
create sequence pawl.lock_row_claim_token;
