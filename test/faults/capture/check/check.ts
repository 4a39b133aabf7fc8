import type { Violation } from '../../plan.ts';
import type { CaptureHistory, ChangeRow, Difference, LogRow } from './history.ts';

/** Finds events that are impossible if every committed change is in the log once and every consumer sees it. */
export function checkCapture(history: CaptureHistory): Violation[] {
  return [
    ...history.complaints,
    ...history.differences.map(tellDifference),
    ...checkNoted(history),
    ...checkGiven(history),
    ...checkOrder(history.journal),
    ...history.wrong.map((problem) => ({ rule: 'verify() finds nothing in the end', about: problem, story: [] })),
  ];
}

function tellDifference({ table, key, wanted, found }: Difference): Violation {
  return {
    rule: 'a row of a projection is what the tables say',
    about: `${key} in ${table}`,
    story: [`the tables say ${wanted ?? 'that it is gone'}`, `there is ${found ?? 'no row'}`],
  };
}

/** A TRUNCATE is logged for the table and for each of its partitions. Row triggers do not see it, so it is left out here. */
function checkNoted({ audit, log }: CaptureHistory): Violation[] {
  const single = log.filter(({ op }) => op !== 'truncate');
  const [seen, noted] = [count(audit.map(tell)), count(single.map(tell))];
  const names = new Set([...seen.keys(), ...noted.keys()]);
  return [...names].flatMap((name) => {
    const [n, m] = [seen.get(name) ?? 0, noted.get(name) ?? 0];
    if (n === m) return [];
    return [
      {
        rule: 'a change is noted if and only if it is committed',
        about: name,
        story: [`committed ${n} times, noted ${m} times`],
      },
    ];
  });
}

function checkGiven({ log, journal }: CaptureHistory): Violation[] {
  const given = count(journal.map(({ change }) => String(change)));
  const known = new Set(log.map(({ change }) => String(change)));
  const wrong = log.filter(({ change }) => given.get(String(change)) !== 1);
  const strange = journal.filter(({ change }) => !known.has(String(change)));
  return [
    ...wrong.map((logged) => ({
      rule: 'a follower is given every change once',
      about: `change ${logged.change}`,
      story: [tell(logged), `given ${given.get(String(logged.change)) ?? 0} times`],
    })),
    ...strange.map((one) => ({
      rule: 'a follower is given only what is in the log',
      about: `change ${one.change}`,
      story: [tell(one)],
    })),
  ];
}

/** Only changes of the root table have keys that identify their rows. */
function checkOrder(journal: readonly LogRow[]): Violation[] {
  const last = new Map<string, LogRow>();
  const found: Violation[] = [];
  for (const one of journal) {
    if (one.source !== 'orders' || one.key === null) continue;
    const before = last.get(one.key);
    if (before !== undefined && before.change > one.change) {
      found.push({
        rule: 'changes of a row are given in their order',
        about: `order ${one.key}`,
        story: [`change ${before.change} (${before.op}) was given before change ${one.change} (${one.op})`],
      });
    }
    last.set(one.key, one);
  }
  return found;
}

function tell({ source, op, key }: ChangeRow): string {
  return `${op} of ${key ?? 'no key'} in ${source}`;
}

function count(names: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}
