import type { CaptureAdmin, Culprit, Difference, LineStatus } from '../../capture/index.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/** A consumer that is further behind than this is not at work, or cannot go on. */
const LATE_MS = 60_000;

/** The checks of `pawl doctor` for captures. */
export async function checkCaptures(admin: CaptureAdmin): Promise<Finding[]> {
  const captures = await admin.list();
  if (captures.length === 0) return [ok('captures', 'none is installed')];
  const drift: [string, readonly Difference[]][] = [];
  for (const { entity } of captures) drift.push([entity, await admin.verify(entity)]);
  const lines = await admin.status();
  return [
    checkCoverage(drift.filter(([, found]) => found.length > 0)),
    checkLag(
      lines.filter(({ oldestMs }) => (oldestMs ?? 0) > LATE_MS),
      await admin.culprits(),
    ),
    checkFailing(lines.filter(({ failing }) => failing > 0)),
  ];
}

function checkCoverage(drift: readonly (readonly [string, readonly Difference[]])[]): Finding {
  const [first] = drift;
  if (first === undefined) return ok('captures', 'every change is captured');
  const told = drift.map(([entity, [one, ...more]]) => {
    const rest = more.length === 0 ? '' : ` (and ${more.length} more)`;
    return `${entity}: ${one?.object}: ${one?.problem}${rest}`;
  });
  return fail('captures', `changes may be missed: ${told.join('; ')}`, `pawl capture apply ${first[0]} --config FILE`);
}

function checkLag(late: readonly LineStatus[], culprits: readonly Culprit[]): Finding {
  if (late.length === 0) return ok('capture lag', 'no consumer is far behind');
  const told = late.map(
    ({ entity, name, outstanding, oldestMs }) =>
      `${entity}/${name}: ${outstanding} outstanding, the oldest for ${Math.round((oldestMs ?? 0) / 1000)} s`,
  );
  const holder = culprits.find(({ holdsKeys, pid }) => holdsKeys && pid !== null);
  if (holder === undefined) return warn('capture lag', told.join('; '), 'start a worker: pawl worker --config FILE');
  const who = `process ${holder.pid} (${holder.application ?? 'no name'}) has held keys for ${Math.round(holder.ageMs / 1000)} s`;
  return warn('capture lag', `${told.join('; ')}; ${who}`, `end it: select pg_terminate_backend(${holder.pid})`);
}

function checkFailing(failing: readonly LineStatus[]): Finding {
  const [first] = failing;
  if (first === undefined) return ok('capture errors', 'every entity can be projected');
  const told = failing.map(({ entity, name, failing: n, error }) => `${entity}/${name}: ${n}, ${error}`);
  return warn(
    'capture errors',
    `entities that cannot be projected: ${told.join('; ')}`,
    `pawl capture status ${first.entity}`,
  );
}
