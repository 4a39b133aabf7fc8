import { id } from '../../engine/postgres/index.ts';

/**
 * The schema of the operators that sort values of a type: pg_catalog, except for types of extensions. Null for an extension's
 * type that has no order; its operators are found by the search path, as in any other statement. A bare `=` would find an
 * operator that some role made for just this type (varchar or an enum above all) in a schema of the search path.
 */
export type OperatorSchema = string | null;

/** SQL for that schema: `a` (`pg_attribute`) is the column and `t` (`pg_type`) its type. */
export const OPERATOR_SCHEMA = `coalesce((
    select x.nspname from pg_opclass k join pg_am m on m.oid = k.opcmethod and m.amname = 'btree'
    join pg_amop l on l.amopfamily = k.opcfamily and l.amoplefttype = k.opcintype and l.amoprighttype = k.opcintype and l.amopstrategy = 3
    join pg_operator o on o.oid = l.amopopr join pg_namespace x on x.oid = o.oprnamespace
    where k.opcdefault and k.opcintype = coalesce(nullif(t.typbasetype, 0::oid), t.oid)),
  case when t.typtype <> 'b' or t.typelem <> 0::oid or t.typnamespace = 'pg_catalog'::regnamespace::oid then 'pg_catalog' end)`;

/** An operator by its full name. */
export function operator(sign: '=' | '<' | '>', schema: OperatorSchema): string {
  return schema === null ? sign : `operator(${id(schema)}.${sign})`;
}

/** `left is distinct from right` without the bare `=` that Postgres would look for. */
export function differs(left: string, right: string, schema: OperatorSchema): string {
  if (schema === null) return `${left} is distinct from ${right}`;
  return `not coalesce(${left} ${operator('=', schema)} ${right}, ${left} is null and ${right} is null)`;
}
