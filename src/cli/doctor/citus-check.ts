import type { PostgresEngine } from '../../engine/postgres/index.ts';
import { inspectCitus } from '../../engine/postgres/inspect-citus.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/**
 * With Citus: whether this is the coordinator, whether it commits in two phases, and whether the other nodes have every role.
 */
export async function checkCitus(engine: PostgresEngine): Promise<Finding[]> {
  const { citus } = await engine.server();
  if (citus === undefined) return [];
  const version = `Citus ${citus.replace(/-.*/, '')}`;
  const { isCoordinator, isTwoPhase, advice, missing } = await inspectCitus(engine);
  if (!isCoordinator) {
    return [
      fail(
        'citus',
        `${version}, a node that is not the coordinator`,
        'use the URL of the coordinator, where Pawl lives',
      ),
    ];
  }
  const state = isTwoPhase
    ? ok('citus', `${version}, coordinator, two-phase commit: on`)
    : fail(
        'citus',
        `${version}, coordinator, two-phase commit: off; a crash may keep a transaction's rows on another node and lose its job`,
        advice,
      );
  return [
    state,
    ...missing.map(({ node, roles }) =>
      warn(
        'citus roles',
        `${node} does not know ${roles}`,
        `create the role there, or on the coordinator with citus.enable_create_role_propagation on`,
      ),
    ),
  ];
}
