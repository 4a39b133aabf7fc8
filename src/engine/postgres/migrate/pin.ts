/**
 * The schemas in which the functions of Pawl search for names without a schema. Only a superuser can create there, and
 * temporary objects come last. Without this path, a role that may create functions in another schema of a session's path could
 * offer a function of the same name that fits the arguments better. That function would run with the rights of the role that
 * called Pawl's.
 */
export const PINNED_PATH = 'pg_catalog, pg_temp';

/**
 * Pins every function of the schema, at the end of each migration, so that none can be forgotten. A pin costs 0.2 µs a call on
 * Postgres 18, 0.8 µs on 15 (2026-11).
 *
 * Functions in SQL without any SET are not pinned: Postgres may write them into the statement that calls them, and a SET
 * prevents that. Such a function is part of its caller, and `npm run rules` checks that only pinned functions call it.
 * Functions of triggers are not pinned here either, because each write of a user would pay for the pin. The code that makes
 * such a function knows whether the function names exactly what it calls.
 */
export const PIN: string = `do $$
declare
  v_function regprocedure;
begin
  for v_function in
    select p.oid from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = 'pawl'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype and pg_has_role(p.proowner, 'usage')
      and (l.lanname <> 'sql' or p.proconfig is not null)
      and not exists (select from unnest(p.proconfig) c (setting) where starts_with(c.setting, 'search_path='))
  loop
    execute format('alter function %s set search_path = ${PINNED_PATH}', v_function);
  end loop;
end
$$`;
