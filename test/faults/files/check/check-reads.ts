import type { Violation } from '../../plan.ts';
import type { Wish } from '../history.ts';
import type { Observation } from './observation.ts';

/** Readers get whole versions that exist, none older than a version that was acknowledged before, and no wrong byte. */
export function checkReads(seen: Observation): Violation[] {
  return seen.ids.flatMap((id) => {
    const rules = seen
      .wishes(id)
      .flatMap((wish) => (isReading(wish) ? [...checkGot(seen, wish), ...checkFailed(seen, wish)] : []));
    return [...new Set(rules)].map((rule) => seen.violation(rule, id));
  });
}

function isReading({ deed }: Wish): boolean {
  return deed === 'read' || deed === 'read old' || deed === 'hot';
}

function checkGot(seen: Observation, { id, deed, askedAt, got }: Wish): string[] {
  if (got === undefined) return [];
  const rules: string[] = [];
  const row = seen.versions(id).find(({ version }) => version === got.version);
  if (got.digest !== got.sha256 || row?.sha256 !== got.digest) rules.push('no wrong byte is passed on as data');
  const isOld = deed !== 'read old' && got.version < newestBefore(seen, id, askedAt);
  if (isOld) rules.push('a reader sees what was written before');
  return rules;
}

/** The newest version that was acknowledged before. */
function newestBefore(seen: Observation, id: string, at: number): number {
  return Math.max(0, ...seen.wishes(id).map(({ told }) => (told !== undefined && told.at < at ? told.version : 0)));
}

function checkFailed(seen: Observation, { id, deed, askedAt, failed }: Wish): string[] {
  if (failed === undefined) return [];
  const { rotten, history } = seen;
  // A process that was suspended for longer than the limit of readers may find its version collected.
  const isTimely = failed.at - askedAt < history.graceMs;
  const isRotten = seen.versions(id).some(({ sha256 }) => rotten.has(sha256 ?? ''));
  if (failed.code === 'corrupt_object' && isTimely && !isRotten && !history.isWayDamaged) {
    return ['a kept version can be read'];
  }
  const wasThere = newestBefore(seen, id, askedAt) > 0;
  const isEverRemoved = seen.wishes(id).some((wish) => wish.deed === 'remove');
  if (failed.code === 'not_found' && deed !== 'read old' && wasThere && !isEverRemoved) {
    return ['a document that is there is found'];
  }
  return [];
}
