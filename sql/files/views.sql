-- What people read: documents as they are, and their versions. The views are the contract; the tables below them are not.

-- The stable read contract. A document that was removed is no row here.
create or replace view pawl.file as
select d.space as namespace, d.id, d.version, o.size, encode(o.sha256, 'hex') as sha256, o.content_type, o.meta, o.author,
  o.live_at as written_at, o.object
from pawl.file_document d
join pawl.file_object o on o.object = d.object;

-- Every version of every document. is_readable: its bytes are still there.
create or replace view pawl.file_version as
select o.space as namespace, o.id, o.version, o.state, o.state in ('live', 'retired') as is_readable, o.size,
  encode(o.sha256, 'hex') as sha256, o.content_type, o.meta, o.author, o.host, o.pid, o.live_at as written_at, o.retired_at,
  case when o.state = 'retired' then o.collect_at end as kept_until, o.object
from pawl.file_object o
where o.version is not null;
