import { id, only, type SchemaName, statement } from '../../../engine/postgres/index.ts';
import type { Definition } from '../../declare/source.ts';
import type { Reader } from '../catalog.ts';
import { ownerOf } from './trigger.ts';

/** The installed state of one capture, for a comparison with the declaration. */
export interface InstalledState {
  /** Pawl's schema. */
  readonly schema: SchemaName;
  readonly role: Role;
  readonly capture: InstalledCapture | undefined;
  readonly lines: readonly LineRow[];
  readonly functions: readonly FunctionRow[];
  readonly triggers: readonly TriggerRow[];
  readonly relations: readonly RelationRow[];
  /** The current tables and partitions of the sources. */
  readonly tables: Tables;
}

export interface InstalledCapture {
  readonly id: number;
  readonly definition: Definition;
  /** The tables and partitions at the time the triggers were made. */
  readonly tables: Tables | null;
}

/** The oids of tables and partitions by name; they differ between databases. */
export interface Tables {
  readonly database: string;
  readonly tables: Readonly<Record<string, string>>;
}

export interface Role {
  readonly superuser: boolean;
  readonly may_create: boolean;
  readonly exists: boolean;
  readonly member: boolean;
  readonly granted: boolean;
  /** Privileges that the owner has in addition to inserting, in words. */
  readonly excess: string | null;
  /** True: the sequence of capture_dirty hands out ids one by one. */
  readonly cache_one: boolean;
}

export interface LineRow {
  readonly id: number;
  readonly name: string;
  readonly guarantee: 'latest' | 'ordered';
  readonly definition: unknown;
}

export interface FunctionRow {
  readonly name: string;
  readonly body: string;
  readonly owner: string;
  readonly definer: boolean;
  readonly config: readonly string[];
  readonly is_public: boolean;
}

export interface TriggerRow {
  readonly schema: string;
  readonly table: string;
  readonly name: string;
  readonly enabled: string;
  /** The statement that creates the trigger, as the catalog shows it. */
  readonly definition: string;
}

/** A source, or a partition of one. */
export interface RelationRow {
  /** The number of the source. */
  readonly source: number;
  readonly oid: string;
  readonly schema: string;
  readonly name: string;
  readonly is_leaf_of_source: boolean;
  readonly columns: readonly string[];
}

const ROLE = statement(
  'capture.state_role',
  `
select u.rolsuper as superuser, u.rolcreaterole or u.rolsuper as may_create, o.oid is not null as exists,
  coalesce(pg_has_role(u.oid, o.oid, 'member'), false) as member,
  coalesce(has_schema_privilege(o.oid, 'pawl', 'usage') and has_table_privilege(o.oid, 'pawl.capture_dirty', 'insert')
    and has_table_privilege(o.oid, 'pawl.capture_change', 'insert')
    and has_sequence_privilege(o.oid, 'pawl.capture_change_id_seq', 'usage'), false) as granted,
  (select string_agg(p.privilege || ' on ' || t.name, ', ') from pg_catalog.unnest(array['pawl.capture_dirty', 'pawl.capture_change']) t (name)
    cross join pg_catalog.unnest(array['select', 'update', 'delete', 'truncate']) p (privilege)
    where o.oid is not null and has_table_privilege(o.oid, t.name, p.privilege))
    || case when o.rolcanlogin or o.rolsuper then ', login' else '' end as excess,
  not exists (select from pg_sequence s where s.seqcache <> 1 and s.seqrelid in (
    pg_get_serial_sequence('pawl.capture_dirty', 'id')::regclass::oid, pg_get_serial_sequence('pawl.capture_change', 'id')::regclass::oid)) as cache_one
from pg_roles u left join pg_roles o on o.rolname = $1::text
where u.rolname = current_user`,
);

const CAPTURE = statement(
  'capture.state_capture',
  'select d.id, d.definition, d.relations as tables from pawl.capture_definition d where d.entity = $1::text',
);

const LINES = statement(
  'capture.state_lines',
  `
select l.id, l.name, l.guarantee, l.definition
from pawl.capture_line l join pawl.capture_definition d on d.id = l.capture
where d.entity = $1::text order by l.id`,
);

const FUNCTIONS = statement(
  'capture.state_functions',
  `
select p.proname::text as name, p.prosrc as body, o.rolname::text as owner, p.prosecdef as definer, coalesce(p.proconfig, '{}') as config,
  p.proacl is null or exists (select from aclexplode(p.proacl) a where a.grantee = 0::oid) as is_public
from pg_proc p join pg_roles o on o.oid = p.proowner
where p.pronamespace = 'pawl'::regnamespace::oid and p.proname ~ ('^capture_' || $1::text || '_[0-9]+_(insert|update|move|delete|truncate)$')`,
);

const TRIGGERS = statement(
  'capture.state_triggers',
  `
select n.nspname::text as schema, c.relname::text as "table", t.tgname::text as name, t.tgenabled::text as enabled,
  pg_catalog.pg_get_triggerdef(t.oid) as definition
from pg_trigger t join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace
where t.tgname ~ ('^pawl_capture_' || $1::text || '_(insert|update|move|delete|truncate)$')`,
);

const RELATIONS = statement(
  'capture.state_relations',
  `
select s.number::int as source, c.oid::text as oid, n.nspname::text as schema, c.relname::text as name, r.leaf as is_leaf_of_source,
  array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped) as columns
from unnest($1::int[], $2::text[]) s (number, name)
cross join lateral (
  select to_regclass(s.name)::oid as oid, false as leaf
  union all
  select p.relid::oid, true from pg_partition_tree(to_regclass(s.name)) p where p.relid::oid <> to_regclass(s.name)::oid
) r
join pg_class c on c.oid = r.oid join pg_namespace n on n.oid = c.relnamespace`,
);

const TABLES = statement('capture.state_tables', 'select pawl.capture_relations($1::text[]) as tables');

export async function readState(db: Reader, { entity, sources }: Definition): Promise<InstalledState> {
  const [role] = await db.query<Role>(ROLE, [ownerOf(db.schema)]);
  const [capture] = await db.query<InstalledCapture>(CAPTURE, [entity]);
  if (role === undefined) throw new TypeError('the current role is none');
  const names = sources.map(({ schema, name }) => id(schema, name));
  return {
    schema: db.schema,
    role,
    capture,
    lines: await db.query<LineRow>(LINES, [entity]),
    functions: await db.query<FunctionRow>(FUNCTIONS, [entity]),
    triggers: await db.query<TriggerRow>(TRIGGERS, [entity]),
    relations: await db.query<RelationRow>(RELATIONS, [sources.map(({ number }) => number), names]),
    tables: only(await db.query<{ tables: Tables }>(TABLES, [names])).tables,
  };
}

const INSTALLED = statement(
  'capture.installed',
  `
select d.id as capture, d.definition, l.id as line, extract(epoch from d.applied_at)::text as version
from pawl.capture_definition d left join pawl.capture_line l on l.capture = d.id and l.name = $2::text
where d.entity = $1::text`,
);

/** A capture, and one of its lines. */
export interface InstalledRow {
  readonly capture: number;
  readonly definition: Definition;
  readonly line: number | null;
  /** Another one after each change of the declaration. */
  readonly version: string;
}

/** A line that is installed. */
export type InstalledLine = InstalledRow & { readonly line: number };

/**
 * The capture that is installed under these names. @returns undefined if there is no such capture; `line` is null if there is
 * no such line
 */
export async function readInstalled(db: Reader, entity: string, line?: string): Promise<InstalledRow | undefined> {
  const [row] = await db.query<InstalledRow>(INSTALLED, [entity, line ?? null]);
  return row;
}

const NEXT = statement(
  'capture.next_id',
  'select pg_catalog.nextval(pg_get_serial_sequence($1::text, $2::text)::regclass)::int as id',
);

const NEXT_SEEN = statement(
  'capture.next_id_seen',
  'select coalesce(pg_catalog.pg_sequence_last_value(pg_get_serial_sequence($1::text, $2::text)::regclass), 0)::int + 1 as id',
);

/** The number that the next {@link nextId} may give. The sequence ends at 32,767, so a mere comparison takes no number. */
export async function seeNextId(db: Reader, table: 'capture_definition' | 'capture_line'): Promise<number> {
  return only(await db.query<{ id: number }>(NEXT_SEEN, [`${db.schema.name}.${table}`, 'id'])).id;
}

/** A number from the table's sequence, which no other session gets. */
export async function nextId(db: Reader, table: 'capture_definition' | 'capture_line'): Promise<number> {
  const [row] = await db.query<{ id: number }>(NEXT, [`${db.schema.name}.${table}`, 'id']);
  return row?.id ?? 0;
}

const DEFINITION = statement(
  'capture.definition',
  'select entity, definition from pawl.capture_definition order by entity',
);

/** Every capture of the database. */
export function readDefinitions(db: Reader): Promise<{ entity: string; definition: Definition }[]> {
  return db.query(DEFINITION);
}
