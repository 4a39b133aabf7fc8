import type { Violation } from '../../plan.ts';
import type { Observation } from './observation.ts';

/** The store has all kept objects and no others, and unknown names are not deleted. */
export function checkStore(seen: Observation): Violation[] {
  const { rows, stored, strangers, quarantined, unfinished } = seen.history;
  const there = new Map(stored.map(({ name, sha256 }) => [name, sha256]));
  const told = (rule: string, about: string, story: readonly string[] = []): Violation => ({ rule, about, story });
  const violations: Violation[] = [];
  const kept = new Set<string>();
  for (const row of rows) {
    if (row.state === 'live' || row.state === 'retired') {
      kept.add(row.object);
      if (there.get(row.object) !== row.sha256 && !seen.rotten.has(row.sha256 ?? '')) {
        violations.push(seen.violation('the bytes of a version that is kept are in the store', row.id));
      }
    } else if (row.state !== 'deleted') {
      violations.push(
        told('an object without use is collected in the end', `${row.object} of ${row.id} is ${row.state}`),
      );
    }
    if (isTooEarly(seen, row)) violations.push(seen.violation('what was replaced is kept as long as is said', row.id));
  }
  const known = new Set(rows.map(({ object }) => object));
  const unknown = new Set(strangers);
  for (const name of there.keys()) {
    if (!kept.has(name) && !unknown.has(name)) violations.push(told('nothing else is left in the store', name));
  }
  for (const name of quarantined) {
    if (known.has(name)) violations.push(told('nothing that is known is taken to quarantine', name));
  }
  const away = new Set(quarantined);
  for (const name of strangers) {
    if (!there.has(name) && !away.has(name)) violations.push(told('an unknown name is not deleted', name));
  }
  if (unfinished.length > 0) violations.push(told('no parts of uploads stay', unfinished.join(', ')));
  return violations;
}

/** Whether bytes were deleted too early, by the database's clock. */
function isTooEarly(
  { history: { retainMs, graceMs, hastenedMs } }: Observation,
  { version, retiredMs, deletedMs }: { version: number | null; retiredMs: number | null; deletedMs: number | null },
): boolean {
  if (version === null || retiredMs === null || deletedMs === null) return false;
  return deletedMs - retiredMs < retainMs + (deletedMs < hastenedMs ? graceMs : 0);
}
