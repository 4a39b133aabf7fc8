import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { LONG } from '../support/long.ts';
import { Model, type Move } from './model.ts';
import { SqlSession } from './sql-session.ts';

/** Fixed, so that a failed run can be repeated; a long run draws a seed and prints it. */
const SEED = 20_261_120;

const worker = fc.integer({ min: 0, max: 2 });
const chance = fc.integer({ min: 0, max: 9 }).map((n) => n === 0);

const move: fc.Arbitrary<Move> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record<Move & { do: 'enqueue' }>({
      do: fc.constant('enqueue'),
      kind: fc.constantFrom('plain', 'loose', 'sync', 'create', 'update'),
      key: fc.constantFrom('a', 'b'),
      // More than 32 jobs of one key: the last ones are parked when they are written.
      n: fc.oneof({ weight: 6, arbitrary: fc.integer({ min: 1, max: 4 }) }, { weight: 1, arbitrary: fc.constant(34) }),
      later: chance,
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record<Move & { do: 'claim' }>({
      do: fc.constant('claim'),
      worker,
      limit: fc.integer({ min: 1, max: 6 }),
      chain: fc.constantFrom(1, 2, 32),
      rows: fc.constantFrom(1, 3, 100),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record<Move & { do: 'settle' }>({
      do: fc.constant('settle'),
      worker,
      pick: fc.integer({ min: 0, max: 3 }),
      how: fc.constantFrom('complete', 'complete', 'error', 'retry', 'release', 'partial'),
    }),
  },
  { weight: 1, arbitrary: fc.record<Move & { do: 'crash' }>({ do: fc.constant('crash'), worker }) },
  {
    weight: 1,
    arbitrary: fc.record<Move & { do: 'lose the answer' }>({
      do: fc.constant('lose the answer'),
      worker,
      limit: fc.integer({ min: 1, max: 6 }),
    }),
  },
  { weight: 1, arbitrary: fc.constant<Move>({ do: 'let time pass' }) },
);

const schedule = fc.array(move, { minLength: 5, maxLength: 40 });

function holdsOn(session: SqlSession): fc.IAsyncProperty<[Move[]]> {
  return fc.asyncProperty(schedule, async (moves) => {
    const model = await Model.start(session);
    for (const one of moves) await model.play(one);
    await model.drain();
  });
}

let database: FreshDatabase;
let session: SqlSession;

beforeAll(async () => {
  database = await freshDatabase();
  session = await SqlSession.open(database.url);
});

afterAll(async () => {
  await session.end();
  await database.drop();
});

describe('any schedule of enqueue, claim, settle, crash and lost answers', () => {
  // Invariant P3.
  test('keeps every job in one place, the order of a key, and drains', async () => {
    const runs = LONG ? { numRuns: 3000 } : { numRuns: 12, seed: SEED };
    const report = await fc.check(holdsOn(session), runs);
    expect(report.failed, fc.defaultReportMessage(report) ?? '').toBe(false);
  }, 1_800_000);
});

describe('the checks find', () => {
  async function planted(name: string, from: RegExp, to: string): Promise<void> {
    const own = await freshDatabase();
    const broken = await SqlSession.open(own.url);
    try {
      const text = await broken.one<string>('select pg_get_functiondef(p.oid) from pg_proc p where p.proname = $1', [
        name,
      ]);
      expect(text).toMatch(from);
      await broken.client.query(text.replace(from, to));
      const report = await fc.check(holdsOn(broken), { numRuns: 300, seed: SEED, endOnFailure: true });
      expect(report.failed).toBe(true);
    } finally {
      await broken.end();
      await own.drop();
    }
  }

  test('a failed job that does not keep its place in the key', async () => {
    await planted('queue_fail', /from line l where not l\.is_head/, 'from line l where false');
  });

  test('an owner that gives up its key and forgets the waiting jobs', async () => {
    await planted(
      'queue_release_keys',
      /k\.tid from key k where not k\.delayed and k\.tid is not null/,
      'k.tid from key k where false',
    );
  });

  test('a rescue that forgets to count the attempt', async () => {
    await planted('queue_give_back', /case when h\.charged then h\.attempt else h\.attempt - 1 end/, 'h.attempt - 1');
  });

  test('a rescue that leaves the keys held', async () => {
    await planted(
      'queue_give_back',
      /perform pawl\.queue_release_keys\(k\.queue/,
      'perform pawl.queue_release_keys((k.queue + 1)::smallint',
    );
  });
});
