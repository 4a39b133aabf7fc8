import type { Note } from '../member/member.ts';
import type { Violation } from '../plan.ts';
import { callbackOf, type Effect, letterOf, type QueueEvent, type QueueOnDynamoHistory, rowOf } from './history.ts';

type AskEvent = Note<Extract<QueueEvent, { do: 'ask' }>>;

/** Pure. A step without an answer may have happened or not. */
export function checkQueue(history: QueueOnDynamoHistory): Violation[] {
  const asked = history.events.filter((event): event is AskEvent => event.do === 'ask');
  const answeredAt = new Map(history.events.flatMap((event) => (event.do === 'told' ? [[event.name, event.at]] : [])));
  const effectsOf = ({ name, step }: AskEvent): readonly Effect[] =>
    (history.effects.get(rowOf(name, step.key)) ?? []).filter((effect) => effect.name === name);
  const found: Violation[] = [...history.complaints];
  const violation = (rule: string, about: string, ...story: unknown[]): void =>
    void found.push({ rule, about, story: story.map((each) => JSON.stringify(each)) });
  for (const one of asked) {
    const { name } = one;
    const outcome = history.outcomes.get(name);
    const isExpired = hasExpired(one);
    if (isExpired && effectsOf(one).length > 0) violation('a job that has expired never runs', name, effectsOf(one));
    if (outcome === undefined) continue;
    const { status, completions } = outcome;
    // A job that comes after another one ends like that job.
    const end = endOf(one, asked);
    if (status !== end) violation('each job ends as it should', name, outcome);
    if (completions > 1) violation('a job completes once', name, outcome);
    if (end === 'complete' && effectsOf(one).length === 0) violation('a job that is complete has run', name, outcome);
    const letters = new Set((history.effects.get(rowOf(letterOf(name), null)) ?? []).map(({ id }) => id));
    if (letters.size !== (one.step.isDoomed ? 1 : 0))
      violation('a job in error leaves one dead letter', name, outcome, ...letters);
  }
  for (const [later, earlier] of pairs(asked, answeredAt)) {
    const row = history.effects.get(rowOf(later.name, later.step.key)) ?? [];
    const first = row.findIndex((effect) => effect.name === later.name);
    const last = row.findLastIndex((effect) => effect.name === earlier.name);
    const isOver = history.outcomes.get(earlier.name)?.status === 'complete';
    if (first >= 0 && (last > first || (last < 0 && isOver)))
      violation('jobs of a key run in their order', `${earlier.name}, ${later.name}`, row);
  }
  checkAfter(history, asked, effectsOf, violation);
  checkBatches(history, violation);
  return found;
}

/** Pairs of jobs of one key: the earlier one was acknowledged before the enqueue of the later one, and neither waits for anything else. */
function* pairs(asked: readonly AskEvent[], answeredAt: ReadonlyMap<string, number>): Generator<[AskEvent, AskEvent]> {
  const plain = asked.filter(
    ({ step, after }) =>
      step.what === 'job' && step.key !== null && step.delayMs === 0 && after === null && step.expires !== 'past',
  );
  for (const later of plain) {
    for (const earlier of plain) {
      const at = answeredAt.get(earlier.name);
      if (at !== undefined && at < later.at && earlier.step.key === later.step.key) yield [later, earlier];
    }
  }
}

/** Whether the job had expired at its enqueue. Saves have no expiry. */
function hasExpired({ step }: AskEvent): boolean {
  return step.expires === 'past' && step.what === 'job';
}

function endOf(one: AskEvent, asked: readonly AskEvent[]): 'complete' | 'error' | 'cancelled' {
  if (hasExpired(one)) return 'cancelled';
  if (one.step.isDoomed) return 'error';
  const parent = one.after === null ? undefined : asked.find(({ name }) => name === one.after);
  return parent === undefined ? 'complete' : endOf(parent, asked);
}

type Complain = (rule: string, about: string, ...story: unknown[]) => void;

function checkAfter(
  { events }: QueueOnDynamoHistory,
  asked: readonly AskEvent[],
  effectsOf: (one: AskEvent) => readonly Effect[],
  violation: Complain,
): void {
  for (const { name, after } of asked) {
    const parent = asked.find((one) => one.name === after);
    const [first] = parent === undefined ? [] : effectsOf(parent);
    const begin = events.find((event) => event.do === 'begin' && event.name === name);
    if (first !== undefined && begin !== undefined && begin.at < first.at)
      violation('a job comes after the one that it names', name, begin, first);
  }
}

function checkBatches({ events, effects }: QueueOnDynamoHistory, violation: Complain): void {
  for (const event of events) {
    if (event.do !== 'sealed') continue;
    const name = callbackOf(event.name);
    const called = effects.get(rowOf(name, null)) ?? [];
    const ids = new Set(called.map(({ id }) => id));
    if (ids.size !== 1) violation('the callback of a batch is enqueued once', event.name, called);
  }
}
