import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll, expect } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createLocks, type Lock, type Locks } from '../../../src/lock/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { faultyClient } from '../../support/failing/dynamodb-faults.ts';
import { atTestEnd, together } from '../../support/together.ts';

const TABLE = 'crowds';
/** More than one request of DynamoDB can name: its condition has 4 KB. */
const CROWD = 130;

let local: SharedDynamo;
let client: DynamoDBClient;

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
  await dynamodb(client, { table: TABLE }).migrate();
});

afterAll(() => client.destroy());

function ours(): Locks {
  const locks = createLocks(dynamodb(client, { table: TABLE }));
  atTestEnd(() => locks.stop());
  return locks;
}

/** Readers of a process that dies as soon as all of them have the lock: nothing arrives from it any more. */
async function crowd(name: string, lease: '10s' | '10m'): Promise<readonly Lock[]> {
  let isDead = false;
  const dies = (): 'drop request' | 'pass' => (isDead ? 'drop request' : 'pass');
  const locks = createLocks(dynamodb(faultyClient(client, dies), { table: TABLE }));
  const readers: Lock[] = [];
  for (let n = 0; n < CROWD; n += 1) readers.push(await locks.acquire(name, { mode: 'shared', lease }));
  isDead = true;
  return readers;
}

together('more dead readers than one request can name keep the lock from a writer no longer than few', async () => {
  await crowd('dead', '10s');
  const locks = ours();
  const writer = await locks.acquire('dead', { wait: '60s' });
  expect((await locks.explain('dead')).holders).toMatchObject([{ token: writer.token }]);
  await writer.release();
});

together('more readers than one request can name are broken by one call, and it names each of them', async () => {
  const readers = await crowd('broken', '10m');
  const locks = ours();
  const broken = await locks.break('broken', { reason: 'test' });
  const byToken = (a: { token: bigint }, b: { token: bigint }): number => Number(a.token - b.token);
  expect([...broken].sort(byToken).map(({ token }) => token)).toEqual(readers.map(({ token }) => token));
  await (await locks.acquire('broken', { wait: 0 })).release();
});
