import { setTimeout as sleep } from 'node:timers/promises';
import { type DynamoDBClient, GetItemCommand, TransactWriteItemsCommand } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { type Proxy, startProxy } from '../../support/proxy.ts';
import { type Party, startParty } from '../party.ts';
import { protectedKey, toWrites } from './ground.ts';

const TABLE = 'faults';

let local: SharedDynamo;
let client: DynamoDBClient;
let names = 0;
const fresh = (): string => `fault-${(names += 1)}`;

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
  await dynamodb(client, { table: TABLE }).migrate();
});

afterAll(async () => {
  client.destroy();
});

function locksOn(endpoint: string): Locks {
  const own = dynamoClient(endpoint);
  const locks = createLocks(dynamodb(own, { table: TABLE }), { waiterLease: '1s' });
  onTestFinished(async () => {
    await locks.stop();
    own.destroy();
  });
  return locks;
}

const ours = (): Locks => locksOn(local.endpoint);
const party = (settings = {}): Promise<Party> => startParty(`${local.endpoint}/${TABLE}`, settings);

async function proxied(): Promise<Proxy> {
  const proxy = await startProxy(local.endpoint);
  onTestFinished(() => proxy.stop());
  return proxy;
}

async function countsOf(name: string): Promise<{ holders: number; waiters: number }> {
  const { holders, waiters } = await createLocks(dynamodb(client, { table: TABLE })).explain(name);
  return { holders: holders.length, waiters: waiters.length };
}

describe('processes that die or stand still', () => {
  test('the lock of a killed holder is had a tenth after its lease, by a waiter and by one that only tries', async () => {
    const [name, other] = [fresh(), fresh()];
    const locks = ours();
    const dying = await party();
    await dying.ask({ do: 'acquire', name, options: { lease: 1000 } });
    await dying.ask({ do: 'acquire', name: other, options: { lease: 1000 } });
    const start = performance.now();
    await dying.child.kill();
    const trying = until('the lock is free', () => locks.tryAcquire(other));
    await locks.acquire(name, { wait: '20s' });
    expect(performance.now() - start).toBeLessThan(2500);
    await trying;
    expect(performance.now() - start).toBeLessThan(2500);
    expect(await locks.history({ name })).toMatchObject([{ outcome: 'expired', pid: dying.child.pid }]);
  });

  test('a killed waiter at the front stops the queue no longer than its own lease', async () => {
    const name = fresh();
    const locks = ours();
    const lock = await locks.acquire(name);
    const dying = await party();
    void dying.ask({ do: 'acquire', name });
    await until('it waits', async () => (await countsOf(name)).waiters === 1);
    const next = locks.acquire(name, { wait: '20s' });
    await until('both wait', async () => (await countsOf(name)).waiters === 2);
    await dying.child.kill();
    const start = performance.now();
    await lock.release();
    await next;
    // The lease of 500 ms, a tenth, and a look.
    expect(performance.now() - start).toBeLessThan(2000);
  });

  test('a lock without a lease outlives its killed holder', async () => {
    const name = fresh();
    const locks = ours();
    const dying = await party();
    await dying.ask({ do: 'acquire', name, options: { lease: 'Infinity' } });
    await dying.child.kill();
    await sleep(300);
    expect(await locks.tryAcquire(name)).toBeUndefined();
    expect((await locks.explain(name)).holders).toMatchObject([{ pid: dying.child.pid, leaseLeftMs: undefined }]);
    await locks.break(name, { reason: 'looked at what it left' });
    expect(await locks.tryAcquire(name)).toBeDefined();
  });

  test('a paused holder learns its loss, revives nothing, and what it writes late is refused', async ({ skip }) => {
    skip(local.kind === 'dynalite', 'a guarded write is a transaction');
    const name = fresh();
    const locks = ours();
    const paused = await party();
    await paused.ask({ do: 'acquire', name, options: { lease: 600 } });
    expect(await paused.ask({ do: 'write', name })).toMatchObject({ value: 1 });
    // It has read, and is paused before it writes.
    const late = paused.ask({ do: 'write', name, ms: 100 });
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

  test('a killed holder of several leaves none of them, and a killed taker of a set nothing half', async ({ skip }) => {
    skip(local.kind === 'dynalite', 'no transactions here');
    const [x, y] = [fresh(), fresh()];
    const locks = ours();
    const dying = await party();
    await dying.ask({ do: 'acquire', name: [x, y], options: { lease: 600 } });
    await dying.child.kill();
    const set = await locks.acquire([y, x], { wait: '20s' });
    const taker = await party();
    void taker.ask({ do: 'acquire', name: [x, y], options: { lease: 600 } });
    await until('it waits', async () => (await countsOf(x)).waiters === 1);
    await taker.child.kill();
    await set.release();
    await until('its place is given up', async () => (await locks.tryAcquire([x, y])) !== undefined);
  });

  test('the permits of killed holders come back', async () => {
    const name = fresh();
    const semaphore = ours().semaphore(name, { permits: 2 });
    const dying = await party();
    await dying.ask({ do: 'acquire', name, permits: 2, options: { lease: 600 } });
    const kept = await semaphore.acquire();
    await dying.child.kill();
    const second = await semaphore.acquire({ wait: '20s' });
    expect(await semaphore.tryAcquire()).toBeUndefined();
    await Promise.all([kept.release(), second.release()]);
  });
});

describe('clocks', () => {
  test.each([
    ['H2: ten minutes ahead', { skewMs: 600_000 }],
    ['H2: ten minutes behind', { skewMs: -600_000 }],
    ['a twentieth too fast', { rate: 1.05 }],
    ['a twentieth too slow', { rate: 0.95 }],
  ])('a client clock that is %s changes nothing', async (_, settings) => {
    const name = fresh();
    const locks = ours();
    const other = await party(settings);
    await other.ask({ do: 'acquire', name, options: { lease: 1000 } });
    const mine = fresh();
    const lock = await locks.acquire(mine, { lease: '1s' });
    const end = performance.now() + 2500;
    while (performance.now() < end) {
      expect(await locks.tryAcquire(name)).toBeUndefined();
      expect((await other.ask({ do: 'tryAcquire', name: mine }))['token']).toBeUndefined();
      await sleep(50);
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
});

describe('connections', () => {
  test('answers that are lost on the way are asked for again', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(proxy.url);
    await (await locks.acquire(fresh())).release();
    proxy.loseAnswerTo('UpdateItem');
    const taking = locks.acquire(name, { wait: '20s', lease: '3s' });
    await until('it was granted', async () => (await countsOf(name)).holders === 1);
    proxy.loseAnswerTo('never');
    const lock = await taking;
    proxy.loseAnswerTo('UpdateItem');
    const { accepted } = proxy;
    await until('a renewal was lost', () => proxy.accepted > accepted + 1);
    proxy.loseAnswerTo('never');
    await sleep(3200);
    lock.assertHeld();
    proxy.loseAnswerTo('UpdateItem');
    const releasing = lock.release().catch(() => {});
    await until('it is released', async () => (await countsOf(name)).holders === 0);
    proxy.loseAnswerTo('never');
    await releasing;
    expect(await locks.history({ name })).toMatchObject([{ outcome: 'released', token: lock.token }]);
  });

  test('a holder that is cut off is told in time, and why', async () => {
    const name = fresh();
    const proxy = await proxied();
    const locks = locksOn(proxy.url);
    const lock = await locks.acquire(name, { lease: '1s' });
    const start = performance.now();
    proxy.refuse();
    await until('it knows', () => lock.signal.aborted);
    expect(performance.now() - start).toBeLessThan(1300);
    expect(lock.signal.reason).toMatchObject({ reason: 'unreachable' });
    proxy.accept();
  });

  test('connections that swallow everything are left to themselves', async () => {
    const [name, other] = [fresh(), fresh()];
    const proxy = await proxied();
    const locks = locksOn(proxy.url);
    const lock = await locks.acquire(name, { lease: '3s' });
    const kept = await ours().acquire(other);
    const outcome = locks.acquire(other, { wait: '2s' }).catch((error: unknown) => error);
    await until('it waits', async () => (await countsOf(other)).waiters === 1);
    const start = performance.now();
    proxy.stall();
    expect(await outcome).toMatchObject({ code: 'lock_timeout' });
    expect(performance.now() - start).toBeLessThan(4000);
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

  test('a guard is a part of one’s own transaction, which fails when the lock has another holder', async ({ skip }) => {
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

  test('a guard in a transaction of Postgres is refused, with what to do', async () => {
    await using lock = await ours().acquire(fresh());
    await expect(lock.guard({})).rejects.toThrow(/TransactItems: \[\.\.\.lock\.guard\(\)/);
  });

  test('a set of more names than a transaction holds is refused', async () => {
    const set = Array.from({ length: 51 }, () => fresh());
    await expect(ours().tryAcquire(set)).rejects.toMatchObject({ code: 'not_supported' });
  });
});

test('a semaphore of more permits than can be kept is refused when it is made', () => {
  expect(() => ours().semaphore('many', { permits: 501 })).toThrow(/at most 500 permits, not 501/);
});

test('two locks of a process with the same token are kept and lost each for itself', async () => {
  const [x, y] = [fresh(), fresh()];
  const [a, b] = [ours(), ours()];
  const [one, two] = [await a.acquire(x, { lease: '1s' }), await a.acquire(y, { lease: '1s' })];
  expect(one.token).toBe(two.token);
  await b.break(x, { reason: 'test' });
  await until('it is told', () => one.signal.aborted);
  await sleep(1500);
  two.assertHeld();
  await two.release();
});

test('fifty readers hold beside each other, and a writer comes after them', async () => {
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
}, 60_000);
