-- Consumers that write to another database, one that is not captured. It has the same migrations, and these tables say there how
-- far its copies have come, in the transactions that write them. Workers of the version before may keep running.

-- Here: drawn while the lock of a key is held and before the entity is read, so that of two deliveries of a key the one that
-- read later has the higher number.
create sequence pawl.capture_version_seq;

-- Here: under which name the other database knows this line, and how many deliveries it has been given of an ordered one.
alter table pawl.capture_line add column copy uuid not null default gen_random_uuid(), add column delivery bigint not null default 0;

-- There: the version of each row of a copy, of those that were removed, too.
create table pawl.capture_copy_key (
  copy     uuid not null,
  version  bigint not null,
  key      text not null
);
create unique index capture_copy_key_key on pawl.capture_copy_key (copy, md5(key));  -- a key may be longer than an index takes

-- There: the last delivery of an ordered line, and up to which change of which batch it went.
create table pawl.capture_copy_place (
  copy      uuid primary key,
  delivery  bigint not null,
  batch     pg_snapshot not null,
  after     bigint not null
);

-- There: which of the keys may be written with this version; they are the caller's until the end of the transaction. Whoever comes with
-- an older version is late: a worker that stood still, and whose keys others have been given meanwhile.
-- "newest": the highest version that was in the way.
create function pawl.capture_copy_take(p_copy uuid, p_version bigint, p_keys text[], p_ms int, out keys text[], out newest bigint)
language plpgsql as $$
begin
  perform pawl.capture_limit(p_ms);
  with taken as (
    insert into pawl.capture_copy_key as c (copy, version, key) select p_copy, p_version, k from unnest(p_keys) k order by k
    on conflict (copy, md5(key)) do update set version = excluded.version where c.version < excluded.version
    returning c.key
  )
  select coalesce(array_agg(t.key), '{}') into keys from taken t;
  if cardinality(keys) < cardinality(p_keys) then
    select max(c.version) into newest from pawl.capture_copy_key c
    where c.copy = p_copy and md5(c.key) = any (array(select md5(k) from unnest(p_keys) k)) and c.version >= p_version;
  end if;
end $$;

-- There: the number of the last change of this batch that was written already; 0 when none was. p_delivery: how many the other side
-- knows to have arrived. One more can have, if its acknowledgement was lost. The place is the caller's until the end.
create function pawl.capture_copy_open(p_copy uuid, p_delivery bigint, p_batch pg_snapshot, p_ms int) returns bigint
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
  elsif v_place.delivery > p_delivery + 1 or (v_place.delivery = p_delivery + 1 and v_place.batch::text <> p_batch::text) then
    raise exception 'this database has had % deliveries, and the captured one knows of %: that one was restored to an earlier time; copy everything once more, then run rebase()',
      v_place.delivery, p_delivery using errcode = 'PW003';
  end if;
  return case when v_place.batch::text = p_batch::text then v_place.after else 0 end;
end $$;

create function pawl.capture_copy_advance(p_copy uuid, p_delivery bigint, p_batch pg_snapshot, p_after bigint) returns void
language sql as $$
  update pawl.capture_copy_place p set delivery = p_delivery, batch = p_batch, after = p_after where p.copy = p_copy
$$;

-- Here: after one of the two was restored. From now on the numbers are higher than any that the other side has seen.
create function pawl.capture_copy_rebase(p_line smallint, p_version bigint) returns void
language sql as $$
  select setval('pawl.capture_version_seq', greatest(p_version, (select s.last_value from pawl.capture_version_seq s)) + 1)
$$;
