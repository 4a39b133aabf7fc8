import { afterAll, beforeAll, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { MODELS } from '../../support/long.ts';
import { Draw } from '../../support/random.ts';
import { SqlSession } from '../sql-session.ts';
import { GroupModel, type Variant } from './model.ts';

let database: FreshDatabase;
let sessions: SqlSession[];

beforeAll(async () => {
  database = await freshDatabase();
  sessions = await Promise.all(Array.from({ length: 4 }, () => SqlSession.open(database.url)));
});

afterAll(async () => {
  await Promise.all(sessions.map((session) => session.end()));
  await database.drop();
});

const SCHEDULES = Number(process.env['PAWL_SCHEDULES'] ?? (MODELS ? 12 : 4));
const SEED = Number(process.env['PAWL_SEED'] ?? 1);

async function play(title: string, variant: Variant): Promise<void> {
  for (let seed = SEED; seed < SEED + SCHEDULES; seed += 1) {
    const draw = new Draw(seed, title);
    const model = await GroupModel.start(sessions, `${title} ${seed}`, draw, variant);
    await model.play(60).catch((error: unknown) => {
      throw new Error(`seed ${seed}: ${String(error)}`, { cause: error });
    });
  }
}

test.each([true, false])(
  'J19: in any order of enqueue, claim, end, back-off, crash and change a group has as many places as it may, and all are used (keyed: %s)',
  (keyed) => play(`groups ${keyed}`, { keyed }),
);

test('J22: in any order of enqueue, claim, end, back-off, crash and change a group begins no more than its rate allows, and all of it', () =>
  play('rates', { keyed: false, rated: true }));
