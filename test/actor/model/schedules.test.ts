import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SqlSession } from '../../queue/sql-session.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { LONG } from '../../support/long.ts';
import { Model, type Move } from './model.ts';

/** Fixed, so that a run that fails can be repeated; a long run draws its own and says which. */
const SEED = 20_261_122;

const any = fc.nat({ max: 30 });
const maybe = fc.option(any, { nil: undefined });

const move: fc.Arbitrary<Move> = fc.oneof(
  { weight: 2, arbitrary: fc.record<Move & { do: 'create' }>({ do: fc.constant('create'), parent: maybe }) },
  {
    weight: 4,
    arbitrary: fc.record<Move & { do: 'incr' }>({
      do: fc.constant('incr'),
      actor: any,
      n: fc.integer({ min: 1, max: 3 }),
      producer: maybe,
    }),
  },
  { weight: 1, arbitrary: fc.record<Move & { do: 'send' }>({ do: fc.constant('send'), actor: any }) },
  {
    weight: 2,
    arbitrary: fc.record<Move & { do: 'end' }>({ do: fc.constant('end'), producer: any, commits: fc.boolean() }),
  },
  {
    weight: 6,
    arbitrary: fc.record<Move & { do: 'claim' }>({
      do: fc.constant('claim'),
      worker: any,
      limit: fc.integer({ min: 1, max: 4 }),
    }),
  },
  { weight: 2, arbitrary: fc.record<Move & { do: 'claim alone' }>({ do: fc.constant('claim alone'), worker: any }) },
  {
    weight: 7,
    arbitrary: fc.record<Move & { do: 'commit' }>({
      do: fc.constant('commit'),
      turn: any,
      how: fc.constantFrom('hibernate', 'hibernate', 'nap', 'to', 'failed', 'released', 'done', 'child'),
      takes: fc.boolean(),
    }),
  },
  { weight: 2, arbitrary: fc.record<Move & { do: 'crash' }>({ do: fc.constant('crash'), worker: any }) },
  {
    weight: 1,
    arbitrary: fc.record<Move & { do: 'lose the answer' }>({ do: fc.constant('lose the answer'), worker: any }),
  },
  {
    weight: 1,
    arbitrary: fc.record<Move & { do: 'commit too late' }>({ do: fc.constant('commit too late'), turn: any }),
  },
  {
    weight: 2,
    arbitrary: fc.record<Move & { do: 'pause' | 'resume' }>({ do: fc.constantFrom('pause', 'resume'), actor: maybe }),
  },
  { weight: 1, arbitrary: fc.constant<Move>({ do: 'let time pass' }) },
);

const schedule = fc.array(move, { minLength: 5, maxLength: 40 });

function holdsOn(sessions: readonly SqlSession[]): fc.IAsyncProperty<[Move[]]> {
  return fc.asyncProperty(schedule, async (moves) => {
    const model = await Model.start(sessions);
    for (const one of moves) await model.play(one);
    await model.drain();
  });
}

let database: FreshDatabase;
let sessions: SqlSession[];

beforeAll(async () => {
  database = await freshDatabase();
  sessions = await Model.sessions(database.url);
});

afterAll(async () => {
  await Promise.all(sessions.map((session) => session.end()));
  await database.drop();
});

describe('any schedule of raising, sending, claiming, committing, crashing, pausing and bearing children', () => {
  // Invariants A1, A7, A29.
  test('loses no wake-up, counts every raise, runs an actor once at a time, and comes to rest', async () => {
    const runs = LONG ? { numRuns: 3000 } : { numRuns: 12, seed: SEED };
    const report = await fc.check(holdsOn(sessions), runs);
    expect(report.errorInstance, fc.defaultReportMessage(report)).toBeNull();
  }, 1_800_000);
});

describe('the checks would notice', () => {
  const found = [
    [
      'a commit of a worker that has no right to it',
      'actor_commit',
      /a\.epoch = t\.epoch and \(a\.worker = p_worker or a\.tx_worker = p_worker\)/,
      'true',
    ],
    [
      'a rescue that forgets what came meanwhile',
      'actor_rescue',
      /when a\.signal_at is null then least\(a\.retry_at, v_now \+ \(a\.retry_at - a\.claimed_at\)\)/,
      'when true then null',
    ],
    [
      'an absorber that counts a child twice',
      'actor_absorb_of',
      /children = a\.children \+ w\.children/,
      'children = a.children + 2 * w.children',
    ],
  ] as const;
  /** Found by a hundred schedules and more. */
  const foundLate = [
    [
      'a commit that forgets what came while the turn ran',
      'actor_commit',
      /when a\.signal_at is not null then least/,
      'when false then least',
    ],
    ['a claim of what is paused', 'actor_claim', /and t\.paused_at is null/, 'and true'],
    [
      'a rescue that lets what was lost twice run at the same time as others',
      'actor_rescue',
      /held = case when a\.lost > 0/,
      'held = case when false',
    ],
  ] as const;

  test.each(LONG ? [...found, ...foundLate] : found)('%s', async (_what, name, from, to) => {
    const own = await freshDatabase();
    const broken = await Model.sessions(own.url);
    try {
      const [session] = broken;
      const text = await session?.one<string>('select pg_get_functiondef(p.oid) from pg_proc p where p.proname = $1', [
        name,
      ]);
      expect(text).toMatch(from);
      await session?.client.query((text ?? '').replace(from, to));
      const report = await fc.check(holdsOn(broken), { numRuns: 300, seed: SEED, endOnFailure: true });
      expect(report.failed).toBe(true);
    } finally {
      await Promise.all(broken.map((one) => one.end()));
      await own.drop();
    }
  });
});
