import { id } from '../../engine/postgres/index.ts';

/**
 * The schema of the operators by which values of a type are sorted: Postgres' own but for types of extensions. Null for such a type that
 * is not sorted, whose operators are then looked for as those of any other statement are. By its name alone `=` would be whatever
 * anybody who may create in a schema of the search path has made for just this type, varchar or an enum above all.
 */
export type OperatorSchema = string | null;

/** In SQL: that schema, of the type of the column `a` (`pg_attribute`), which is `t` (`pg_type`). */
export const OPERATOR_SCHEMA = `coalesce((
    select x.nspname from pg_opclass k join pg_am m on m.oid = k.opcmethod and m.amname = 'btree'
    join pg_amop l on l.amopfamily = k.opcfamily and l.amoplefttype = k.opcintype and l.amoprighttype = k.opcintype and l.amopstrategy = 3
    join pg_operator o on o.oid = l.amopopr join pg_namespace x on x.oid = o.oprnamespace
    where k.opcdefault and k.opcintype = coalesce(nullif(t.typbasetype, 0::oid), t.oid)),
  case when t.typtype <> 'b' or t.typelem <> 0::oid or t.typnamespace = 'pg_catalog'::regnamespace::oid then 'pg_catalog' end)`;

/** `=` by its full name. */
export function operator(sign: '=' | '<' | '>', schema: OperatorSchema): string {
  return schema === null ? sign : `operator(${id(schema)}.${sign})`;
}

/** `left is distinct from right`, which looks for `=` by its name. */
export function differs(left: string, right: string, schema: OperatorSchema): string {
  if (schema === null) return `${left} is distinct from ${right}`;
  return `not coalesce(${left} ${operator('=', schema)} ${right}, ${left} is null and ${right} is null)`;
}
