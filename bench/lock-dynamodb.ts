import { GetItemCommand } from '@aws-sdk/client-dynamodb';
import type { Bench, Context } from './harness/context.ts';
import { LocalDynamo } from './harness/dynamodb.ts';
import { atLeast, atMost, type Figure, figure, median, percentile, ratio } from './harness/figures.ts';
import { type Acquire, pawlAcquire, pawlOn, peerAcquire } from './sides/dynamo-locks.ts';
import { counted, type Units } from './sides/dynamo-units.ts';

const PAWL = 'pawl';
const PEER = 'lock-client';
/** The service is a Java program, whose first ten thousand requests are several times slower. Several chains of requests warm it up sooner. */
const WARM_UP_MS = { quick: 7000, full: 25_000 };
const WARM_UP_AT_ONCE = 4;
/** The time of a round, for both sides together. The rate of a round is the rate of its median pair. */
const ROUND_MS = 800;

/** Locks on DynamoDB: the cost of a pair (acquire and release), its speed compared with the peer, hand-offs, and a crowd of waiters. */
export const lockDynamodb: Bench = async (context) => {
  await using dynamo = await LocalDynamo.start();
  context.say(`DynamoDB Local ${dynamo.version}`);
  const contest = await openContest(dynamo);
  await warmUp(context, contest);
  // The pairs are compared last, because by then the service is as warm as it gets.
  const handoffs = await compareHandoffs(context, dynamo);
  const [few, many] = [await herd(context, dynamo, 50), await herd(context, dynamo, 200)];
  const pairs = await comparePairs(context, contest);
  const units = await countUnits(dynamo);
  const p50 = (samples: readonly number[]): number => percentile(samples, 50);
  const figures: Record<string, Figure> = {
    'write_units/pawl': figure('units/pair', [units.write]),
    'read_units/pawl': figure('units/pair', [units.read]),
    'pairs/pawl': figure('pairs/s', pairs.pawl),
    'pairs/lock-client': figure('pairs/s', pairs.peer),
    'handoff_p50/pawl': figure('ms', [p50(handoffs.pawl)]),
    'handoff_p95/pawl': figure('ms', [percentile(handoffs.pawl, 95)]),
    'handoff_p50/lock-client': figure('ms', [p50(handoffs.peer)]),
    'herd_grants/pawl 200': figure('grants/s', [many.grantsPerSecond]),
    'herd_reads/pawl 50': figure('read units/grant', [few.readsPerGrant]),
    'herd_reads/pawl 200': figure('read units/grant', [many.readsPerGrant]),
    'herd_reads_waiter/pawl 50': figure('read units/waiter and s', [few.readsPerWaiterSecond]),
    'herd_reads_waiter/pawl 200': figure('read units/waiter and s', [many.readsPerWaiterSecond]),
    'herd_writes/pawl 200': figure('write units/grant', [many.writesPerGrant]),
  };
  return {
    figures,
    bars: {
      units: atMost(2, units.write + units.read),
      // A pair is two requests for Pawl and three for the peer, which also waits 1 ms for a timer. So if the processor is the limit,
      // the count of requests gives 1.5. The less time a request takes, the larger is the ratio.
      uncontended: atLeast(1.5, ratio(pairs.pawl, pairs.peer)),
      handoff: atMost(0.1, p50(handoffs.pawl) / p50(handoffs.peer)),
      herd: atMost(0, many.outOfOrder + many.lost + few.outOfOrder + few.lost),
      herd_flat: atMost(1.5, many.readsPerWaiterSecond / few.readsPerWaiterSecond),
    },
  };
};

async function countUnits(dynamo: LocalDynamo): Promise<Units> {
  const units: Units = { read: 0, write: 0, calls: 0, gets: 0 };
  const locks = await pawlOn(counted(dynamo.client(), units), 'units');
  const acquire = pawlAcquire(locks);
  // If the service answers a request late, the request is sent again and counts twice. By now the service is warm.
  for (let i = 0; i < 20; i++) await (await acquire(`warm-${i}`))();
  Object.assign(units, { read: 0, write: 0, calls: 0, gets: 0 });
  const count = 100;
  for (let i = 0; i < count; i++) await (await acquire(`name-${i % 50}`))();
  await locks.stop();
  return { read: units.read / count, write: units.write / count, calls: units.calls / count, gets: units.gets / count };
}

interface Both {
  readonly pawl: readonly number[];
  readonly peer: readonly number[];
}

/** The two sides, each on its own client. */
interface Contest {
  readonly locks: Awaited<ReturnType<typeof pawlOn>>;
  readonly sides: Readonly<Record<string, Acquire>>;
}

async function openContest(dynamo: LocalDynamo): Promise<Contest> {
  const locks = await pawlOn(dynamo.client(), 'pairs');
  const peer = await peerAcquire(dynamo.client(), 'pairs-peer');
  return { locks, sides: { [PAWL]: pawlAcquire(locks), [PEER]: peer } };
}

async function warmUp({ quick }: Context, { sides }: Contest): Promise<void> {
  const ms = WARM_UP_MS[quick ? 'quick' : 'full'];
  await Promise.all(Array.from({ length: WARM_UP_AT_ONCE }, (_, chain) => takeTurns(sides, ms, `warm-${chain}`)));
}

/** The pairs a second of both sides, in short turns. Both have used every name before. */
async function comparePairs({ rounds, quick, say }: Context, { locks, sides }: Contest): Promise<Both> {
  await takeTurns(sides, ROUND_MS);
  const rates: Record<string, number[]> = { [PAWL]: [], [PEER]: [] };
  for (let round = 0; round < (quick ? 8 : 8 * rounds); round++) {
    for (const [who, ms] of Object.entries(await takeTurns(sides, ROUND_MS))) rates[who]?.push(1000 / median(ms));
  }
  const [pawl = [], peer = []] = [rates[PAWL], rates[PEER]];
  say(`pairs: pawl ${median(pawl).toFixed(0)}/s, ${PEER} ${median(peer).toFixed(0)}/s`);
  await locks.stop();
  return { pawl, peer };
}

/** Runs one pair of each side in turns, so that a slow phase of the machine affects both. @returns the milliseconds of each pair */
async function takeTurns(
  sides: Readonly<Record<string, Acquire>>,
  ms: number,
  prefix = 'name',
): Promise<Record<string, number[]>> {
  const found: Record<string, number[]> = Object.fromEntries(Object.keys(sides).map((who) => [who, []]));
  const end = performance.now() + ms;
  for (let i = 0; performance.now() < end; i++) {
    for (const [who, acquire] of Object.entries(sides)) {
      const begin = performance.now();
      await (await acquire(`${prefix}-${i % 10}`))();
      found[who]?.push(performance.now() - begin);
    }
  }
  return found;
}

/** Milliseconds from the call of `release` in one client to the grant in another one, which has waited for a while. */
async function compareHandoffs({ quick, say }: Context, dynamo: LocalDynamo): Promise<Both> {
  const all = [await pawlOn(dynamo.client(), 'handoff'), await pawlOn(dynamo.client(), 'handoff')];
  const ours = all.map(pawlAcquire);
  const theirs = [
    await peerAcquire(dynamo.client(), 'handoff-peer'),
    await peerAcquire(dynamo.client(), 'handoff-peer'),
  ];
  // Both sides at the same time, because the peer's waiters sleep for whole leases.
  const [pawl, peer] = await Promise.all([handoffs(ours, quick ? 20 : 100), handoffs(theirs, quick ? 4 : 20)]);
  say(`hand-off p50: pawl ${median(pawl).toFixed(1)} ms, ${PEER} ${median(peer).toFixed(0)} ms`);
  await Promise.all(all.map((locks) => locks.stop()));
  return { pawl, peer };
}

async function handoffs([first, second]: readonly Acquire[], count: number): Promise<number[]> {
  if (first === undefined || second === undefined) return [];
  const found: number[] = [];
  for (let i = 0; i < count; i++) {
    const release = await first(`handoff-${i}`);
    const waiting = second(`handoff-${i}`).then((got) => ({ got, at: performance.now() }));
    // A random pause, so that the release is not in step with a poll.
    await new Promise((resolve) => setTimeout(resolve, 150 + Math.random() * 100));
    const begin = performance.now();
    await release();
    const { got, at } = await waiting;
    found.push(at - begin);
    await got();
  }
  return found;
}

interface Herd {
  readonly grantsPerSecond: number;
  readonly readsPerGrant: number;
  readonly readsPerWaiterSecond: number;
  readonly writesPerGrant: number;
  /** Grants that were not in the order of the tickets. */
  readonly outOfOrder: number;
  readonly lost: number;
}

/** `size` waiters of four clients on one lock. They arrive one after another, and each releases the lock at once. */
async function herd({ say }: Context, dynamo: LocalDynamo, size: number): Promise<Herd> {
  const units: Units = { read: 0, write: 0, calls: 0, gets: 0 };
  const table = `herd-${size}`;
  const clients = await Promise.all([1, 2, 3, 4].map(() => pawlOn(counted(dynamo.client(), units), table)));
  const watcher = dynamo.client();
  const holder = await pawlOn(dynamo.client(), table);
  const lock = await holder.acquire('herd', { lease: 60_000 });
  const order: number[] = [];
  let waitedMs = 0;
  const served: Promise<void>[] = [];
  let begin = 0;
  const serve = async (acquire: Acquire, place: number): Promise<void> => {
    const release = await acquire('herd');
    waitedMs += performance.now() - begin;
    order.push(place);
    await release();
  };
  for (let place = 0; place < size; place++) {
    served.push(serve(pawlAcquire(clients[place % clients.length] ?? holder), place));
    await untilTaken(watcher, table, place + 1);
  }
  Object.assign(units, { read: 0, write: 0 });
  begin = performance.now();
  await lock.release();
  await Promise.all(served);
  const ms = performance.now() - begin;
  const outOfOrder = order.filter((place, index) => place !== index).length;
  say(
    `herd of ${size}: ${((size * 1000) / ms).toFixed(0)} grants/s, ${(units.read / size).toFixed(1)} read units a grant`,
  );
  await Promise.all([...clients, holder].map((locks) => locks.stop()));
  return {
    grantsPerSecond: (size * 1000) / ms,
    readsPerGrant: units.read / size,
    readsPerWaiterSecond: units.read / (waitedMs / 1000),
    writesPerGrant: units.write / size,
    outOfOrder,
    lost: size - order.length,
  };
}

async function untilTaken(client: ReturnType<LocalDynamo['client']>, table: string, tickets: number): Promise<void> {
  const Key = { pk: { S: 'lock:0::herd' }, sk: { S: 'head' } };
  for (;;) {
    const { Item } = await client.send(new GetItemCommand({ TableName: table, Key, ConsistentRead: true }));
    if (Number(Item?.['q']?.N ?? 0) >= tickets) return;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
