import { type Statement, statement } from '../sql.ts';

/**
 * On Citus, a plain COMMIT of a transaction that has also written on another node commits on that node first. If the
 * coordinator is killed between the two commits, the program's rows stay, and the job that was enqueued with them is lost. A
 * write to a table that Citus knows, even of no row, makes Citus commit in two phases. So this statement goes first in each
 * transaction of a program that Pawl writes into.
 */
export const WRITE_TO_BOTH = 'delete from pawl.both where false';

/** The same statement with the one parameter that a call in a caller's transaction has. */
export const WRITE_TO_BOTH_IN = '-- engine.both\ndelete from pawl.both where false and $1::text is null';

export const BOTH: Statement = statement('engine.both', WRITE_TO_BOTH);

/**
 * Makes the table known to Citus, if Citus is there and does not know the table yet. Part of each migration. Citus makes
 * another table of this name, and renames the old one with a number: `both_102008`.
 */
export const MAKE_BOTH = `do $$
declare
  v_known boolean;
  v_lonely boolean;
begin
  create table if not exists pawl.both (nothing integer);
  if exists (select from pg_extension where extname = 'citus') then
    execute 'select exists (select from pg_dist_partition where logicalrelid = ''pawl.both''::regclass),
      exists (select from pg_dist_node) and not exists (select from pg_dist_node where groupid = 0)' into v_known, v_lonely;
    if not v_known then
      if v_lonely then
        raise exception 'Citus does not know its own coordinator, and without that no transaction there is committed in two phases; run this here, with the name by which its other nodes reach it: select citus_set_coordinator_host(''NAME'')'
          using errcode = 'PW006';
      end if;
      execute 'select citus_add_local_table_to_metadata(''pawl.both''::regclass)';
    end if;
  end if;
end
$$`;
