import type { Violation } from '../../plan.ts';
import type { Wish } from '../history.ts';
import type { Observation } from './observation.ts';

/** Each acknowledged version exists once, and no other version exists. */
export function checkVersions(seen: Observation): Violation[] {
  return seen.ids.flatMap((id) => {
    const rules = [...checkNumbers(seen, id), ...checkOrigins(seen, id), ...checkOutcomes(seen, id)];
    return [...new Set(rules)].map((rule) => seen.violation(rule, id));
  });
}

function checkNumbers(seen: Observation, id: string): string[] {
  const versions = seen.versions(id);
  const numbers = versions.map(({ version }) => version);
  const rules: string[] = [];
  if (new Set(numbers).size !== numbers.length) rules.push('no two versions have one number');
  const document = seen.history.documents.find((one) => one.id === id);
  const removals = seen.wishes(id).filter(({ deed }) => deed === 'remove').length;
  const last = document?.version ?? 0;
  // A removal takes a version number, too.
  if (last < (numbers.at(-1) ?? 0) || last - new Set(numbers).size > removals) rules.push('versions rise one by one');
  const live = versions.filter(({ state }) => state === 'live');
  const wanted = document?.object ?? undefined;
  const isRight =
    wanted === undefined
      ? live.length === 0
      : live.length === 1 && live[0]?.object === wanted && live[0].version === last;
  if (!isRight) rules.push('the newest version is the live one, and no other');
  return rules;
}

/** The bytes of a version are those of one operation. */
function checkOrigins(seen: Observation, id: string): string[] {
  const wishes = seen.wishes(id);
  const copies = wishes.filter(({ deed }) => deed === 'copy' || deed === 'restore').length;
  const published = new Set(seen.history.rows.flatMap(({ version, sha256 }) => (version === null ? [] : [sha256])));
  const own = new Map(wishes.flatMap((wish) => (wish.sha256 === null ? [] : [[wish.sha256, wish]])));
  const rules: string[] = [];
  const counts = new Map<string, number>();
  for (const { sha256 } of seen.versions(id)) {
    const hash = sha256 ?? '';
    counts.set(hash, (counts.get(hash) ?? 0) + 1);
    const wish = own.get(hash);
    if (wish === undefined && !(copies > 0 && published.has(hash)))
      rules.push('no version is there that was not written');
    if (wish?.deed === 'undo' || wish?.deed === 'abandon') rules.push('what was rolled back or given up is no version');
  }
  const most = Math.max(0, ...counts.values());
  if (most > 1 + copies) rules.push('one publication makes one version');
  return rules;
}

function checkOutcomes(seen: Observation, id: string): string[] {
  const versions = seen.versions(id);
  const has = (sha256: string | null): boolean => versions.some((row) => row.sha256 === sha256);
  return seen.wishes(id).flatMap((wish): string[] => {
    const rules: string[] = [];
    const { told, deed, op, sha256 } = wish;
    if (told !== undefined && deed !== 'remove' && deed !== 'abandon') {
      const row = versions.find(({ version }) => version === told.version);
      if (row === undefined || row.sha256 !== told.sha256) rules.push('a version that was answered is there');
    }
    if (deed === 'tx' || deed === 'late') {
      const isCommitted = seen.history.committed.includes(op);
      if (isCommitted !== has(sha256)) rules.push('a version is committed with its transaction, or not at all');
    }
    if (!isOverWhatWasExpected(wish, versions)) rules.push('with ifVersion that version is replaced, and no other');
    return rules;
  });
}

function isOverWhatWasExpected(
  { expected, told, deed }: Wish,
  versions: readonly { readonly version: number }[],
): boolean {
  if (expected === undefined || told === undefined || deed === 'remove' || deed === 'abandon') return true;
  if (expected > 0) return told.version === expected + 1;
  return !versions.some(({ version }) => version === told.version - 1);
}
