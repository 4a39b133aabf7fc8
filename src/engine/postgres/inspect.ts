import type { PostgresEngine } from './index.ts';
import type { Session } from './session/session.ts';
import { statement } from './sql.ts';
import { instant } from './types.ts';

/** Facts about a server, and about the connection to it. Times in milliseconds. */
export interface ServerFacts {
  readonly version: string;
  /** Such as 18. */
  readonly majorVersion: number;
  readonly user: string;
  readonly database: string;
  readonly connectMs: number;
  readonly roundTripMs: number;
  /** The server's clock minus this machine's; exact to half a round trip. */
  readonly clockAheadMs: number;
  /** True: a pooler or a proxy answered the connection, and not the server process itself. */
  readonly hasPooler: boolean;
  /** True: a standby, or a database set to read-only transactions. */
  readonly isReadOnly: boolean;
  readonly connections: number;
  readonly maxConnections: number;
  /** The transaction that has kept dead rows from being removed for the longest time, as far as this user may see it. */
  readonly oldestTransaction:
    | { readonly pid: number; readonly application: string; readonly ageMs: number }
    | undefined;
}

/** One table of Pawl's. */
export interface TableFacts {
  readonly name: string;
  /** With its indexes. */
  readonly bytes: number;
  /** By the server's last count. */
  readonly rows: number;
  readonly deadRows: number;
  readonly vacuumedAt: Date | null;
}

/** One schema of this session's search path. */
export interface PathSchema {
  readonly name: string;
  /** The roles that may create in it in addition to its owner, superusers and this role; `public` means every role. */
  readonly creators: readonly string[];
}

const SERVER = statement(
  'engine.inspect',
  `
select
  current_setting('server_version') as version,
  current_setting('server_version_num')::int / 10000 as major,
  current_user::text as "user",
  current_database()::text as database,
  pg_backend_pid() as pid,
  pg_is_in_recovery() or current_setting('default_transaction_read_only')::boolean as read_only,
  current_setting('max_connections')::int as max_connections,
  (select count(*)::int from pg_stat_activity where backend_type = 'client backend') as connections,
  (select pg_catalog.json_build_object('pid', a.pid, 'application', a.application_name,
      'ageMs', extract(epoch from clock_timestamp() - a.xact_start) * 1000::numeric)
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null
      and a.backend_type = 'client backend'
    order by a.xact_start limit 1) as oldest`,
  { prepare: false },
);

const CLOCK = statement(
  'engine.clock',
  'select pg_catalog.to_json(extract(epoch from clock_timestamp()) * 1000::numeric) as ms',
  {
    prepare: false,
  },
);

const TABLES = statement(
  'engine.tables',
  `
select c.relname::text as name, pg_catalog.to_json(pg_catalog.pg_total_relation_size(c.oid)) as bytes,
  pg_catalog.to_json(greatest(coalesce(s.n_live_tup, 0), 0)) as rows, pg_catalog.to_json(coalesce(s.n_dead_tup, 0)) as "deadRows",
  ${instant('greatest(s.last_autovacuum, s.last_vacuum)')} as "vacuumedAt"
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_user_tables s on s.relid = c.oid
where n.nspname = 'pawl'::name and c.relkind = 'r'
order by pg_catalog.pg_total_relation_size(c.oid) desc, name`,
  { prepare: false },
);

const PATH = statement(
  'engine.path',
  `
select s.name::text as name, coalesce(pg_catalog.array_agg(distinct c.name) filter (where c.name is not null), '{}') as creators
from pg_catalog.unnest(current_schemas(true)) with ordinality s (name, n)
join pg_namespace n on n.nspname = s.name
left join lateral (
  select coalesce(r.rolname::text, 'public') as name
  from aclexplode(coalesce(n.nspacl, acldefault('n'::"char", n.nspowner))) a left join pg_roles r on r.oid = a.grantee
  where a.privilege_type = 'CREATE' and a.grantee <> n.nspowner and not coalesce(r.rolsuper or r.rolname = current_user, false)
) c on true
group by s.name, s.n
order by s.n`,
  { prepare: false },
);

interface ServerRow {
  version: string;
  major: number;
  user: string;
  database: string;
  pid: number;
  read_only: boolean;
  max_connections: number;
  connections: number;
  oldest: ServerFacts['oldestTransaction'] | null;
}

/** Inspects the server over one connection; changes nothing. */
export async function inspectServer(engine: PostgresEngine): Promise<ServerFacts> {
  const startedAt = performance.now();
  return engine.session(async (session) => {
    const connectMs = performance.now() - startedAt;
    const [row] = await session.query<ServerRow>(SERVER);
    if (row === undefined) throw new Error('the server returned no row, although this statement always returns one');
    const { roundTripMs, clockAheadMs } = await compareClocks(session);
    return {
      version: row.version,
      majorVersion: row.major,
      user: row.user,
      database: row.database,
      connectMs,
      roundTripMs,
      clockAheadMs,
      hasPooler: isAnsweredByAnother(session, row.pid),
      isReadOnly: row.read_only,
      connections: row.connections,
      maxConnections: row.max_connections,
      oldestTransaction: row.oldest ?? undefined,
    };
  });
}

/** Pawl's tables, the largest first. */
export function inspectTables(engine: PostgresEngine): Promise<TableFacts[]> {
  return engine.query<TableFacts>(TABLES);
}

/**
 * The schemas in which this session searches for names without a schema, in order. Includes `pg_catalog`, even if the path does
 * not name it.
 */
export function inspectPath(engine: PostgresEngine): Promise<PathSchema[]> {
  return engine.query<PathSchema>(PATH);
}

/** Takes the quickest of five round trips: any delay of the others would count as a difference of the clocks. */
async function compareClocks(session: Session): Promise<{ roundTripMs: number; clockAheadMs: number }> {
  let best = { roundTripMs: Infinity, clockAheadMs: 0 };
  for (let i = 0; i < 5; i += 1) {
    const [sentAt, startedAt] = [Date.now(), performance.now()];
    const [row] = await session.query<{ ms: number }>(CLOCK);
    const roundTripMs = performance.now() - startedAt;
    if (roundTripMs < best.roundTripMs) best = { roundTripMs, clockAheadMs: (row?.ms ?? 0) - sentAt - roundTripMs / 2 };
  }
  return best;
}

/** A connection's cancel key names the server's own process, unless a pooler made the key up. */
function isAnsweredByAnother(session: Session, backendPid: number): boolean {
  const named: unknown = Reflect.get(session.client, 'processID');
  return typeof named === 'number' && named !== backendPid;
}
