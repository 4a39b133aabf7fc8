import type { PostgresEngine } from './index.ts';
import { PINNED_PATH } from './migrate/pin.ts';

/** A database with Citus, as `pawl doctor` shows it. */
export interface CitusFacts {
  readonly isCoordinator: boolean;
  /** True: transactions that write on several nodes are committed in two phases. */
  readonly isTwoPhase: boolean;
  /** How to make `isTwoPhase` true. */
  readonly advice: string;
  /** Other nodes that lack a role which may use Pawl's schema here. */
  readonly missing: readonly { readonly node: string; readonly roles: string }[];
}

/** Texts and no statements: a database without Citus has none of the objects that they name. */
const FACTS = `-- engine.citus
select exists (select from pg_dist_local_group g where g.groupid = 0) as coordinator,
  current_setting('max_prepared_transactions')::int > 0
    and exists (select from pg_dist_partition p where p.logicalrelid = to_regclass('pawl.both')) as two_phase`;

/** The query passes a text that each node runs for itself. */
const MISSING_ROLES = `-- engine.citus_roles
select concat(w.nodename, ':', w.nodeport) as node, case when w.success then w.result else concat('cannot be asked: ', w.result) end as roles
from run_command_on_workers(format(
  'select coalesce(string_agg(r, '', ''), '''') from unnest(%L::text[]) r where not exists (select from pg_roles where rolname = r)',
  (select array_agg(distinct r.rolname) from pg_namespace n
    cross join lateral aclexplode(coalesce(n.nspacl, acldefault('n'::"char", n.nspowner))) a join pg_roles r on r.oid = a.grantee
    where n.nspname = 'pawl'::name))) w
where not w.success or w.result <> ''
order by 1`;

/** @throws DatabaseError  this role may not query the other nodes */
export function inspectCitus(engine: PostgresEngine): Promise<CitusFacts> {
  return engine.session(async (session) => {
    await session.run(`begin; set local search_path = ${PINNED_PATH}`);
    try {
      const [facts] = await session.run<{ coordinator: boolean; two_phase: boolean }>(FACTS);
      const [isCoordinator, isTwoPhase] = [facts?.rows[0]?.coordinator === true, facts?.rows[0]?.two_phase === true];
      const [missing] = isCoordinator ? await session.run<{ node: string; roles: string }>(MISSING_ROLES) : [];
      return { isCoordinator, isTwoPhase, advice: adviceFor(engine.schema.name), missing: missing?.rows ?? [] };
    } finally {
      await session.run('rollback');
    }
  });
}

function adviceFor(schema: string): string {
  return `select citus_add_local_table_to_metadata('${schema}.both'), before it citus_set_coordinator_host('NAME') if it asks for that; and max_prepared_transactions above 0 on every node`;
}
