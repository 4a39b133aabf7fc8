import { id } from '../../../engine/postgres/index.ts';
import { literal } from '../../declare/sql-text.ts';

/** `share row exclusive` stops writers, `access exclusive` readers, too. */
export type BarrierMode = 'share row exclusive' | 'access exclusive';

/** While a transaction waits for a table, new writers wait behind it. To give up is better than to block all of them. */
export const LOCK_TIMEOUT = '10s';

/** A role that may drop the functions may detach, also if the tables belong to others. */
const MAY_NOT = `
    when insufficient_privilege then
      return;`;

/**
 * Waits for the transactions that use one of the tables, and lets no other one begin. So no change falls between two
 * declarations.
 *
 * A writer may have one of the tables and go on to another one. If that one were locked here meanwhile, each would wait for the
 * other, and after `deadlock_timeout` the server might end the writer. So while some tables are locked, this waits for the others
 * for half that time only. Then it lets all of them go, and begins with the table that was in use.
 */
export function barrier(
  relations: readonly { readonly schema: string; readonly name: string }[],
  mode: BarrierMode,
): string {
  const tables = relations.map(({ schema, name }) => literal(id(schema, name))).sort();
  return `do $barrier$
declare
  tables text[] := array[${tables.join(', ')}];
  first text := tables[1];
  following text;
  half interval := pg_catalog.current_setting('deadlock_timeout')::interval / 2::float8;
  gives_up timestamptz := pg_catalog.clock_timestamp() + interval '${LOCK_TIMEOUT}';
  lets_go timestamptz;
begin
  loop
    begin
      following := null;
      execute pg_catalog.format('lock table %s in ${mode} mode', first);
      lets_go := pg_catalog.clock_timestamp() + half;
      foreach following in array tables loop
        perform pg_catalog.set_config('lock_timeout',
          greatest(1, (extract(epoch from lets_go - pg_catalog.clock_timestamp()) * 1000::numeric)::int)::text, true);
        execute pg_catalog.format('lock table %s in ${mode} mode', following);
      end loop;
      perform pg_catalog.set_config('lock_timeout', '${LOCK_TIMEOUT}', true);
      return;
    exception when lock_not_available then -- this lets the tables go, and sets lock_timeout as before
      if following is null or pg_catalog.clock_timestamp() > gives_up then
        raise;
      end if;
      first := following;${mode === 'access exclusive' ? MAY_NOT : ''}
    end;
  end loop;
end $barrier$`;
}
