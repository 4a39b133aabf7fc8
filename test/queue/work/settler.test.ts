import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ConnectionFailed, DatabaseError } from '../../../src/base/errors.ts';
import type { JobFailure, SettleAnswer, Settlement } from '../../../src/queue/store.ts';
import type { AttemptResult } from '../../../src/queue/work/run/attempt.ts';
import { type Claim, Job } from '../../../src/queue/work/run/claimed-job.ts';
import { Unit, type UnitOwner } from '../../../src/queue/work/run/unit.ts';
import { Settler } from '../../../src/queue/work/settle/settler.ts';
import { LONG } from '../../support/long.ts';

// A database that loses answers, refuses texts, and has guarded jobs: each outcome is still written once.

type Fate = 'complete' | 'result' | 'poison' | 'retry' | 'error' | 'poisoned error';
type Fault = 'none' | 'answer lost' | 'not sent' | 'refused for another reason';

interface Scene {
  /** The units in order; those of one claim run at the same time, those of one key one after another. */
  readonly units: readonly {
    readonly claim: number;
    readonly key: number;
    readonly jobs: number;
    readonly fate: Fate;
    readonly isGuarded: boolean;
    /** It ends at the same moment as the unit before. */
    readonly isAtOnce: boolean;
  }[];
  /** The faults of the first statements. */
  readonly faults: readonly Fault[];
  readonly text: number;
}

const FATES: readonly Fate[] = ['complete', 'result', 'result', 'poison', 'retry', 'error', 'poisoned error'];

const scenes = fc.record<Scene>({
  units: fc.array(
    fc.record({
      claim: fc.nat(4),
      key: fc.nat(6),
      jobs: fc.integer({ min: 1, max: 4 }),
      fate: fc.constantFrom(...FATES),
      isGuarded: fc.boolean(),
      isAtOnce: fc.boolean(),
    }),
    { minLength: 1, maxLength: 25 },
  ),
  faults: fc.array(fc.constantFrom<Fault>('none', 'answer lost', 'not sent', 'refused for another reason'), {
    maxLength: 6,
  }),
  text: fc.constantFrom(1, 300_000, 3_000_000),
});

const OWNER: UnitOwner = { queueName: 'q', progress: async () => {}, guard: async () => {}, parents: async () => [] };

/** The tables that a settlement changes. */
class Tables {
  readonly running = new Map<number, Set<number>>();
  readonly ended = new Map<number, string>();
  readonly results = new Map<number, string>();
  readonly givenUp = new Map<string, number>();
  /**
   * Violations. They are collected, since a thrown error would be taken for one of the database, and the write would be
   * repeated.
   */
  readonly breaches: string[] = [];
  readonly #faults: Fault[];
  readonly #guarded: Set<number>;
  readonly #keys: ReadonlyMap<number, string>;

  constructor(faults: readonly Fault[], guarded: ReadonlySet<number>, keys: ReadonlyMap<number, string>) {
    this.#faults = [...faults];
    this.#guarded = new Set(guarded);
    this.#keys = keys;
  }

  async settle(settlement: Settlement): Promise<SettleAnswer> {
    await new Promise((resolve) => setImmediate(resolve));
    const fault = this.#faults.shift() ?? 'none';
    if (fault === 'not sent') throw new ConnectionFailed('the network is away');
    if (fault === 'refused for another reason') throw new DatabaseError('no rights', { sqlState: '42501' });
    if (textsOf(settlement).some((text) => text.startsWith(POISON)))
      throw new DatabaseError('too deep', { sqlState: '54001' });
    const guarded = (settlement.guarded ?? []).filter((id) => this.#guarded.delete(id));
    if (guarded.length > 0) return { stale: [], guarded, hasNext: false };
    const stale = this.#write(settlement);
    if (fault === 'answer lost') throw new ConnectionFailed('the answer is lost');
    return { stale, guarded: [], hasNext: true };
  }

  #write({ whole, part, failed, results, shared, keys }: Settlement): number[] {
    const stale = new Set<number>();
    for (const { id, claim, result } of results) this.#keep(claim, [id], result);
    for (const { result, jobs } of shared) for (const [claim, ...ids] of jobs) this.#keep(claim, ids, result);
    for (const { claim, id, to } of failed) this.#end(stale, claim, [id], to);
    for (const claim of whole) this.#end(stale, claim, [...(this.running.get(claim) ?? [0])], 'complete');
    for (const { claim, ids } of part) this.#end(stale, claim, ids, 'complete');
    for (const [key, epoch] of keys) {
      if (this.givenUp.get(key) === epoch) continue;
      // No job of the key may be left: it would be rescued during, or after, the next job of the key.
      const left = [...this.running.values()].flatMap((ids) => [...ids]).filter((id) => this.#keys.get(id) === key);
      if (left.length > 0) this.breaches.push(`${key} is given up with job ${left.join(', ')} not written`);
      this.givenUp.set(key, epoch);
    }
    return [...stale];
  }

  #keep(claim: number, ids: readonly number[], result: string): void {
    for (const id of ids) if (this.running.get(claim)?.has(id) === true) this.results.set(id, result);
  }

  #end(stale: Set<number>, claim: number, ids: readonly number[], to: string): void {
    for (const id of ids) {
      if (this.running.get(claim)?.delete(id) !== true) {
        stale.add(claim);
        continue;
      }
      if (this.ended.has(id)) this.breaches.push(`job ${id} ended twice`);
      this.ended.set(id, to);
    }
  }
}

const POISON = '"POISON';

function textsOf({ results, shared, failed }: Settlement): string[] {
  return [...results, ...shared].map(({ result }) => result).concat(failed.map(({ error = '' }) => error));
}

let lastId = 0;

function outcomeOf(unit: Unit, fate: Fate, text: number): AttemptResult {
  const none = { failed: [], complete: unit.jobs, result: undefined, isLost: false, isRetried: false };
  const fail = (to: JobFailure['to'], words: string): AttemptResult => {
    const failed = unit.jobs.map(
      (job): JobFailure => ({ claim: job.claim.id, id: job.number, to, reason: 'r', error: words + 'e'.repeat(text) }),
    );
    return { failed, complete: [], result: undefined, isLost: false, isRetried: to === 'retry' };
  };
  switch (fate) {
    case 'complete':
      return none;
    case 'result':
      return { ...none, result: `"${'r'.repeat(text)}"` };
    case 'poison':
      return { ...none, result: `${POISON}"` };
    case 'retry':
      return fail('retry', '');
    case 'error':
      return fail('error', '');
    case 'poisoned error':
      return fail('error', POISON);
  }
}

/** The units of a scene, and the expected outcomes of their jobs. */
class Cast {
  readonly claims = new Map<number, Claim>();
  readonly units: Unit[] = [];
  /** Units that were claimed with a retried unit, and are given back with it. */
  readonly behind = new Map<Unit, Unit>();
  readonly expected = new Map<number, string>();
  readonly keys = new Map<number, string>();
  readonly guarded = new Set<number>();

  constructor({ units }: Scene) {
    const over = new Set<number>();
    for (const { claim: nth, key: number, jobs, fate, isGuarded } of units) {
      const claim = this.claims.get(nth) ?? { id: nth + 1, shard: 0, processId: '', isAlone: false, left: 0 };
      this.claims.set(nth, claim);
      // The key is given up with a job that is retried.
      const key = number < 4 && !over.has(number) ? `k${number}` : null;
      if (fate === 'retry') over.add(number);
      const unit = this.#unit(key, claim, jobs, endOf(fate));
      this.units.push(unit);
      if (fate === 'retry' && key !== null) this.behind.set(unit, this.#unit(key, claim, 1, 'release'));
      if (!isGuarded) continue;
      void unit.guard({} as never);
      for (const job of unit.jobs) this.guarded.add(job.number);
    }
  }

  #unit(key: string | null, claim: Claim, count: number, end: string): Unit {
    const jobs = Array.from({ length: count }, () => new Job((lastId += 1), claim, 1, 0, null));
    claim.left += count;
    for (const { number } of jobs) {
      this.expected.set(number, end);
      if (key !== null) this.keys.set(number, key);
    }
    return new Unit(OWNER, 'job', key, jobs, { epoch: 7, brokenBy: null, isCoalesced: true });
  }
}

function endOf(fate: Fate): string {
  if (fate === 'result') return 'complete';
  return fate === 'poison' || fate === 'poisoned error' ? 'error' : fate;
}

async function play(scene: Scene): Promise<void> {
  const { claims, units, behind, expected, keys, guarded } = new Cast(scene);
  const tables = new Tables(scene.faults, guarded, keys);
  for (const { id } of claims.values()) tables.running.set(id, new Set());
  for (const { jobs } of [...units, ...behind.values()]) {
    for (const { claim, number } of jobs) tables.running.get(claim.id)?.add(number);
  }
  const stale: number[] = [];
  const settler = new Settler({
    queue: 1,
    settle: (settlement) => tables.settle(settlement),
    offer: () => undefined,
    onStale: (ids) => stale.push(...ids),
    onRefused: () => {},
    onError: () => {},
    onMore: () => {},
  });
  for (const [at, unit] of units.entries()) {
    const { fate = 'complete', isAtOnce = true } = scene.units[at] ?? {};
    const rest = behind.get(unit);
    if (rest !== undefined) settler.release(rest, 'behind a job of its key', false);
    const isLast = units.slice(at + 1).every(({ key }) => key !== unit.key);
    settler.add(unit, outcomeOf(unit, fate, scene.text), isLast);
    if (!isAtOnce) await new Promise((resolve) => setImmediate(resolve));
  }
  await settler.flushed();
  expect(tables.breaches).toEqual([]);
  expect(inOrder(tables.ended)).toEqual(inOrder(expected));
  expect([...claims.values()].map(({ left }) => left)).toEqual([...claims.keys()].map(() => 0));
  expect([...tables.givenUp.keys()].toSorted()).toEqual([...new Set(keys.values())].toSorted());
  for (const [at, { fate }] of scene.units.entries()) {
    for (const { number } of units[at]?.jobs ?? []) expect(tables.results.has(number)).toBe(fate === 'result');
  }
  expect(stale).toEqual([]);
}

const inOrder = (ended: ReadonlyMap<number, string>): unknown[] => [...ended].toSorted(([a], [b]) => a - b);

test('whatever the database refuses, loses or guards, each outcome is written once, and a key is given up last', async () => {
  const all = fc.sample(scenes, LONG ? 2000 : 200);
  await Promise.all(all.map((scene) => play(scene)));
});
