/**
 * What Pawl reads and calls of Citus, as far as one server can have it: the extension's row, its catalogs, and functions of the same names.
 * All rows stay where they are. `both_note` has a row for each write to `pawl.both`, by a trigger for each statement: {@link NOTE_BOTH}.
 */
export const CITUS_STAND_IN = `
set allow_system_table_mods = on;
insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) values (99999, 'citus', 10, 11, false, '13.2-1');
create table pg_catalog.pg_dist_partition (logicalrelid regclass, partmethod "char", repmodel "char", colocationid int, partkey text);
create table pg_catalog.pg_dist_shard (logicalrelid regclass, shardid bigint);
create table pg_catalog.pg_dist_local_group (groupid int);
create table pg_catalog.pg_dist_node (nodeid int, groupid int);
grant select on pg_catalog.pg_dist_partition, pg_catalog.pg_dist_shard, pg_catalog.pg_dist_local_group, pg_catalog.pg_dist_node to public;
insert into pg_dist_local_group values (0);
insert into pg_dist_node values (1, 0), (2, 1);
create function pg_catalog.citus_add_local_table_to_metadata(table_name regclass) returns void language plpgsql as $$
declare
  v_shard text := (select relname || '_102008' from pg_class where oid = table_name);
  v_schema text := (select relnamespace::regnamespace from pg_class where oid = table_name);
  v_name text := table_name;
begin
  if not exists (select from pg_dist_node where groupid = 0) then
    raise exception 'operation is not allowed when coordinator is not added into metadata';
  end if;
  execute format('alter table %s rename to %I', table_name, v_shard);
  execute format('create table %s (like %s.%I including all)', v_name, v_schema, v_shard);
  insert into pg_dist_partition values (v_name::regclass, 'n', 's', 0);
end $$;
create function pg_catalog.create_distributed_table(table_name regclass, distribution_column text, shard_count int default 32) returns void
language plpgsql as $$
begin
  if not exists (select from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = any (i.indkey)
    where i.indrelid = table_name and i.indisprimary and a.attname = distribution_column) then
    raise exception 'cannot create constraint on "%"', table_name using errcode = '0A000';
  end if;
  insert into pg_dist_partition values (table_name, 'h', 's', 7, distribution_column);
  insert into pg_dist_shard select table_name, 102000 + i from generate_series(1, shard_count) i;
end $$;
create function pg_catalog.column_to_column_name(table_name regclass, column_var_text text) returns text language sql as $$ select $2 $$;
create function pg_catalog.run_command_on_workers(text, out nodename text, out nodeport int, out success bool, out result text)
  returns setof record language sql as $$ select 'worker-1', 5432, true, 'app' union all select 'worker-2', 5432, true, '' $$;
reset allow_system_table_mods;`;

export const NOTES_OF_BOTH = `
create table both_note (at timestamptz default clock_timestamp());
create function note_both() returns trigger language plpgsql as $$ begin insert into public.both_note default values; return null; end $$;`;

/** After the migrations. */
export const NOTE_BOTH =
  'create trigger note after delete on pawl.both for each statement execute function note_both()';
