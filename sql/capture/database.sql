-- Which database this is, and which tables a capture is about.

-- The database that a statement runs in. A dump that was read back, a copy of the database and an upgraded cluster are other databases.
-- pg_control_system() may be forbidden, and then clusters are not told apart.
create or replace function pawl.capture_database() returns text
language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
  v_oid text := (select d.oid::text from pg_catalog.pg_database d where d.datname = pg_catalog.current_database());
begin
  return (select c.system_identifier from pg_catalog.pg_control_system() c)::text || ':' || v_oid;
exception when insufficient_privilege then
  return '?:' || v_oid;
end $$;

create or replace function pawl.capture_is_database(p_one text, p_other text) returns boolean
language sql immutable
set search_path = pg_catalog, pg_temp as $$
  select p_one = p_other
    or (p_one like '?%' or p_other like '?%') and split_part(p_one, ':', 2) = split_part(p_other, ':', 2)
$$;

-- Whether the numbers of a line are another database's: then they do not show what was delivered. Numbers that are not ahead of the present ones prove
-- nothing, since the present ones catch up.
create or replace function pawl.capture_is_foreign(p_line pawl.capture_line) returns boolean
language sql stable as $$
  select not pawl.capture_is_database(p_line.database, pawl.capture_database())
    or pg_snapshot_xmax(p_line.seen) > pg_snapshot_xmax(pg_current_snapshot())
$$;

-- The tables of these names with all their partitions, with their numbers, and the database in which they have these numbers.
create or replace function pawl.capture_relations(p_names text[]) returns json
language sql stable
set search_path = pg_catalog, pg_temp as $$
  select json_build_object('database', pawl.capture_database(), 'tables', coalesce(json_object_agg(r.name, r.oid), '{}'))
  from (
    select distinct format('%I.%I', n.nspname, c.relname) as name, c.oid::text as oid
    from unnest(p_names) s (name)
    cross join lateral (
      select to_regclass(s.name)::oid as oid union all select t.relid::oid from pg_partition_tree(to_regclass(s.name)) t
    ) o
    join pg_class c on c.oid = o.oid join pg_namespace n on n.oid = c.relnamespace
  ) r
$$;

-- Whether Citus keeps rows of a table on other nodes: in shards, or as copies. A trigger on another node cannot write to the log here.
create or replace function pawl.capture_is_elsewhere(p_relation oid) returns boolean
language plpgsql stable
set search_path = pg_catalog, pg_temp as $$
declare
  v_is boolean;
begin
  if to_regclass('pg_catalog.pg_dist_partition') is null then
    return false;
  end if;
  execute 'select d.partmethod <> ''n'' or d.repmodel <> ''s'' or d.colocationid <> 0 from pg_dist_partition d where d.logicalrelid = $1'
    into v_is using p_relation;
  return coalesce(v_is, false);
end
$$;
