-- Sessions of the dashboard that somebody ended before their time. A session itself is a signed cookie, of which nothing is kept;
-- that it is over must be known to every process whose cookies have the same secret. One row a logout, until its cookie is over.
-- Older processes may keep running: they do not know of this table, and take such a cookie until then.

create table pawl.http_session_ended (
  id    text primary key,
  until timestamptz not null
);
