import { randomUUID } from 'node:crypto';
import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll, expect } from 'vitest';
import { ConnectionFailed } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { LockClient } from '../../../src/lock/client.ts';
import { createLocks, type Locks } from '../../../src/lock/index.ts';
import type { AcquireCall } from '../../../src/lock/store.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { type Fault, faultyClient, type Request } from '../../support/failing/dynamodb-faults.ts';
import { atTestEnd, together } from '../../support/together.ts';

const TABLE = 'withdrawals';

let local: SharedDynamo;
let client: DynamoDBClient;
let watching: Locks;
let names = 0;
const fresh = (): string => `withdrawn-${(names += 1)}`;

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
  const engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
  watching = createLocks(engine);
});

afterAll(() => {
  client.destroy();
});

/** The engine of a simulated process; `choose` decides about the fault of each request. */
function engineOf(choose: (request: Request) => Fault): DynamoEngine {
  return dynamodb(faultyClient(client, choose), { table: TABLE });
}

function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  atTestEnd(() => open());
  return { opened, open: () => open() };
}

const isGrant = ({ sk, text }: Request): boolean => sk === 'head' && /^SET n = :.* f = :.* h = /.test(text);
const isGivingUp = ({ sk, text }: Request): boolean => sk.startsWith('wait#') && text.startsWith('SET g =');

async function waitersOf(name: string): Promise<number> {
  return (await watching.explain(name)).waiters.length;
}

async function holdersOf(name: string): Promise<number> {
  return (await watching.explain(name)).holders.length;
}

together('a grant that is carried out while its wait is withdrawn is given back', async () => {
  const name = fresh();
  const [late, paused] = [gate(), gate()];
  let grants = 0;
  let isLeaving = false;
  const engine = engineOf((request) => {
    if (isGrant(request)) return (grants += 1) === 1 ? { after: late.opened } : 'drop request';
    if (!isGivingUp(request)) return 'pass';
    isLeaving = true;
    return { after: paused.opened };
  });
  const locks = createLocks(engine);
  atTestEnd(() => locks.stop());
  const lock = await watching.acquire(name);
  const over = new AbortController();
  const waiting = locks.acquire(name, { signal: over.signal }).catch(() => {});
  await until('it waits', async () => (await waitersOf(name)) === 1);
  await lock.release();
  await until('it asks for its turn', () => grants > 0);
  over.abort();
  await waiting;
  await until('it gives its place up', () => isLeaving);
  late.open();
  await until('its turn has come anyway', async () => (await holdersOf(name)) === 1);
  paused.open();
  await until('the lock is free again', async () => (await holdersOf(name)) === 0);
  expect(await waitersOf(name)).toBe(0);
});

together('a lock that is granted to a request without a place after its withdrawal is given back', async () => {
  const name = fresh();
  const late = gate();
  let asked = 0;
  let looks = 0;
  const engine = engineOf(({ operation }) => {
    if (operation === 'GetItem') looks += 1;
    if (operation !== 'UpdateItem') return 'pass';
    asked += 1;
    return asked === 1 ? { after: late.opened } : 'pass';
  });
  const locks = createLocks(engine);
  atTestEnd(() => locks.stop());
  const over = new AbortController();
  const asking = locks.acquire(name, { fair: false, signal: over.signal }).catch(() => {});
  await until('it asks', () => asked > 0);
  over.abort();
  await asking;
  await until('it was withdrawn', () => looks > 0);
  late.open();
  await until('it was granted, and given back', async () => {
    const [past] = await watching.history({ name });
    return past?.outcome === 'released' && (await holdersOf(name)) === 0;
  });
});

/** A claim that waits, as its process asks the store for it. */
function claimOf(wanted: readonly string[]): AcquireCall {
  const nonce = randomUUID();
  const claim = { space: '', names: wanted, nonce, capacity: 1, leaseMs: 30_000, waiterMs: 60_000 };
  return { ...claim, ticket: undefined, isRetry: false, holds: [], periodMs: undefined };
}

const SOON = { timeoutMs: 300 };
const IN_TIME = { timeoutMs: 30_000 };

together('a withdrawal that failed is repeated with all that the first try knew', async () => {
  const name = fresh();
  let isDown = false;
  const { store } = LockClient.of(engineOf(() => (isDown ? 'drop request' : 'pass')));
  const lock = await watching.acquire(name);
  const [claim, behind] = [claimOf([name]), claimOf([name])];
  expect(await store.acquire(claim, IN_TIME)).toMatchObject({ kind: 'waiting' });
  // With another ticket behind it, the head no longer says that the ticket is its own.
  expect(await store.acquire(behind, IN_TIME)).toMatchObject({ kind: 'waiting' });
  isDown = true;
  await expect(store.withdraw(claim, SOON)).rejects.toThrow(ConnectionFailed);
  isDown = false;
  await store.withdraw(claim, IN_TIME);
  expect(await waitersOf(name)).toBe(1);
  await lock.release();
  expect(await store.acquire(behind, IN_TIME)).toMatchObject({ kind: 'granted' });
  await store.withdraw(behind, IN_TIME);
  expect(await holdersOf(name)).toBe(0);
});

together('a set whose tickets were taken without its knowledge takes no others', async ({ skip }) => {
  skip(local.kind === 'dynalite', 'no transactions here');
  const wanted = [fresh(), fresh()];
  let isLost = true;
  let tickets = 0;
  const over = new AbortController();
  const lossy = ({ operation }: Request): Fault => {
    if (!isLost) return 'pass';
    if (operation === 'TransactWriteItems') {
      tickets += 1;
      return 'drop answer';
    }
    if (tickets === 0) return 'pass';
    // From now on the client learns nothing.
    over.abort();
    return 'drop request';
  };
  const { store } = LockClient.of(engineOf(lossy));
  const lock = await watching.acquire(wanted[0] ?? '');
  const claim = claimOf(wanted);
  await expect(store.acquire(claim, { ...IN_TIME, signal: over.signal })).rejects.toThrow();
  expect(tickets).toBeGreaterThan(0);
  isLost = false;
  expect(await store.acquire({ ...claim, isRetry: true }, IN_TIME)).toMatchObject({ kind: 'waiting', ahead: 0 });
  for (const name of wanted) expect(await waitersOf(name)).toBe(1);
  await store.withdraw(claim, IN_TIME);
  for (const name of wanted) expect(await waitersOf(name)).toBe(0);
  await lock.release();
});
