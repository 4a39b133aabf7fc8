import { GetItemCommand } from '@aws-sdk/client-dynamodb';
import { beforeAll, expect, test } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createLocks } from '../../../src/lock/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { type Hold, violations, type Write } from '../../support/history/history.ts';
import { LONG } from '../../support/long.ts';
import type { PartySettings } from '../ground.ts';
import { type Faults, runSchedule } from '../model/schedules.ts';
import { type Party, startParty } from '../party.ts';
import { protectedKey, toWrites } from './ground.ts';

const SCHEDULES = Number(process.env['PAWL_SCHEDULES'] ?? (LONG ? 1000 : 5));
const SEED = Number(process.env['PAWL_SEED'] ?? 9000);

const BAD_NETWORK: readonly PartySettings[] = [{}, { faults: SEED + 1 }, { faults: SEED + 2 }];

let local: SharedDynamo;

beforeAll(async () => {
  local = await sharedDynamo();
});

interface Arena {
  readonly parties: readonly Party[];
  readonly faults: Faults;
  /** The writes under these names. */
  readonly writes: (names: Iterable<string>) => Promise<Write[]>;
}

/** Three processes on a table of their own. */
async function openArena(table: string, settings: readonly PartySettings[] = BAD_NETWORK): Promise<Arena> {
  const client = dynamoClient(local.endpoint);
  const engine = dynamodb(client, { table });
  await engine.migrate();
  const locks = createLocks(engine);
  const url = `${local.endpoint}/${table}`;
  const parties = await Promise.all(settings.map((each) => startParty(url, each)));
  const faults: Faults = {
    breakLock: async (name) =>
      (await locks.break(name, { reason: 'by the schedule' })).map(({ token }) => String(token)),
    // The service has no connections to end; the networks of the parties have faults all the time.
    terminate: async () => {},
  };
  const writes = async (names: Iterable<string>): Promise<Write[]> => {
    const all = [...names].map(async (name) => {
      const { Item } = await client.send(
        new GetItemCommand({ TableName: table, Key: protectedKey(name), ConsistentRead: true }),
      );
      return toWrites(name, Item);
    });
    return (await Promise.all(all)).flat();
  };
  return { parties, faults, writes };
}

test(`${SCHEDULES} random schedules with lost, late and doubled requests, pauses and breaks have correct histories`, async ({
  skip,
}) => {
  skip(local.kind === 'dynalite', 'a guarded write is a transaction');
  const arena = await openArena('schedules');
  const holds: Hold[] = [];
  for (let seed = SEED; seed < SEED + SCHEDULES; seed++) {
    const run = await runSchedule(seed, arena.parties, arena.faults);
    expect(violations(run), `seed ${seed}`).toEqual([]);
    holds.push(...run);
  }
  const writes = await arena.writes(new Set(holds.map((hold) => hold.name)));
  expect(violations(holds, writes)).toEqual([]);
  // The schedules really had holds.
  expect(holds.length).toBeGreaterThan(SCHEDULES * 2);
  expect(writes.length).toBeGreaterThan(SCHEDULES / 2);
});

test('H16: the database refuses a late write, even if its writer does not check the clock', async ({ skip }) => {
  skip(local.kind === 'dynalite', 'a guarded write is a transaction');
  const { parties, writes } = await openArena('late');
  const [first, second] = parties;
  const name = 'late';
  await first?.ask({ do: 'acquire', name, options: { lease: 4000 } });
  const writing = first?.ask({ do: 'write', name, ms: 3000, unaware: true }).catch((error: unknown) => error);
  await new Promise((resolve) => setTimeout(resolve, 50));
  first?.child.pause();
  await second?.ask({ do: 'acquire', name, options: { lease: 10_000, wait: 30_000 } });
  await second?.ask({ do: 'write', name });
  first?.child.resume();
  expect(await writing).toMatchObject({ name: 'TransactionCanceledException' });
  expect(violations([], await writes([name]))).toEqual([]);
});

test('a planted bug is found: the writes of one party are not conditional', async () => {
  const { parties } = await openArena('careless', [{}, { careless: true }]);
  const take = async (owner: string): Promise<Hold> => {
    const asked = clock();
    const answer = await parties[owner === 'careless' ? 1 : 0]?.ask({ do: 'acquire', name: 'planted' });
    return { owner, name: 'planted', capacity: 1, token: String(answer?.['token']), asked, from: clock(), until: 0 };
  };
  const holds = [await take('careful'), await take('careless')];
  const until = clock();
  expect(violations(holds.map((hold) => ({ ...hold, until }))).join()).toMatch(/2 hold "planted", which admits 1/);
});

function clock(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000;
}
