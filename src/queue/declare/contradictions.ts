import { InvalidInput } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import { formatDuration } from '../../base/time/duration.ts';
import type { Kind, KindOptions } from '../definition.ts';
import { label } from '../label.ts';
import { letterKind } from './dead-letter.ts';

/** Rules of a kind that contradict each other, in words. */
export function contradictionOf(kind: KindOptions): string | undefined {
  const { unique: one, throttle, debounce: wait, coalesce } = kind;
  if (throttle !== undefined && one !== undefined)
    return 'unique and throttle; throttle is a rule of unique: leave one out';
  if (wait !== undefined && (one !== undefined || throttle !== undefined)) {
    return `debounce and ${one === undefined ? 'throttle' : 'unique'}; debounce accepts every job, and the other option does not: leave one out`;
  }
  if (wait !== undefined && coalesce === 'none') {
    return "debounce and coalesce: 'none'; its jobs become one unit: leave coalesce out, or make it 'all' or 'latest'";
  }
  return undefined;
}

/** @throws InvalidInput  another kind, or the queue, rules out an option of a kind */
export function refuseContradictions(kinds: ReadonlyMap<string, Kind>, keyed: boolean, historyMs: number): void {
  for (const kind of kinds.values()) {
    checkKind(kind, [...kinds.keys()], keyed);
    checkPeriod(kind, historyMs);
    checkDeadLetters(kind, kinds);
    if (kind.blocksKey) checkBlocking(kind, keyed);
  }
  refuseCircle(kinds);
}

function checkKind(kind: Kind, names: readonly string[], keyed: boolean): void {
  const field = `kinds.${kind.name}`;
  label.given(kind.name, { field, what: 'createQueue, as the name of a kind' });
  for (const other of kind.after) {
    if (names.includes(other)) continue;
    const near = suggest(other, names);
    const advice = near === undefined ? `the kinds are ${names.join(', ')}` : `did you mean "${near}"?`;
    throw new InvalidInput(`kind "${kind.name}" comes after the unknown kind "${other}"; ${advice}`, {
      field: `${field}.after`,
    });
  }
  if (!keyed && (kind.coalesce !== 'none' || kind.after.length > 0)) {
    throw new InvalidInput(
      `kind "${kind.name}" has ${kind.after.length > 0 ? 'after' : kind.debounce === undefined ? 'coalesce' : 'debounce'}, which needs concurrency: { perKey: 1 }`,
      { field },
    );
  }
}

/** The period cannot be longer than the history, which removes older jobs. */
function checkPeriod(kind: Kind, historyMs: number): void {
  const per = Number.parseFloat(kind.unique?.per ?? '0');
  if (per <= historyMs) return;
  throw new InvalidInput(
    `kind "${kind.name}" is unique for ${formatDuration(per)}, and the queue's history ends after ${formatDuration(historyMs)}; make history longer, or the time shorter`,
    { field: `kinds.${kind.name}` },
  );
}

/** Dead letters must not lead to dead letters without end. */
function checkDeadLetters({ name, onError, needsKey }: Kind, kinds: ReadonlyMap<string, Kind>): void {
  if (onError === undefined) return;
  const field = `kinds.${name}.onError`;
  const letter = letterKind(kinds, onError, { whose: `kind "${name}"`, hasKey: needsKey, field });
  const seen = [name];
  for (let next: Kind | undefined = letter; next !== undefined; next = kinds.get(next.onError ?? '')) {
    if (seen.includes(next.name)) {
      throw new InvalidInput(
        `dead letters would make dead letters for ever: ${[...seen, next.name].join(' onError ')}`,
        {
          field,
        },
      );
    }
    seen.push(next.name);
  }
}

/** A key that can stop must have an order, and no dead letter may wait behind it. */
function checkBlocking({ name, onError }: Kind, keyed: boolean): void {
  if (!keyed) {
    throw new InvalidInput(
      "keyOnError: 'block' needs concurrency: { perKey: 1 }, else the jobs of a key have no order",
      {
        field: 'keyOnError',
      },
    );
  }
  if (onError !== undefined) {
    throw new InvalidInput(
      `kind "${name}" has onError, and the queue keyOnError: 'block': a dead letter has the key of its job, and would wait behind it; leave one out`,
      { field: `kinds.${name}.onError` },
    );
  }
}

function refuseCircle(kinds: ReadonlyMap<string, Kind>): void {
  const done = new Set<string>();
  const walk = (name: string, path: readonly string[]): void => {
    if (path.includes(name)) {
      const circle = [...path.slice(path.indexOf(name)), name].join(' after ');
      throw new InvalidInput(`kinds wait for each other in a circle: ${circle}`, { field: `kinds.${name}.after` });
    }
    if (done.has(name)) return;
    for (const other of kinds.get(name)?.after ?? []) walk(other, [...path, name]);
    done.add(name);
  };
  for (const name of kinds.keys()) walk(name, []);
}
