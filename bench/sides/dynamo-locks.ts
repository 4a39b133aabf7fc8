// The two libraries of the bench `lock-dynamodb`. They run in the harness's own process, in turns. The bench compares how
// often they call the service and how long they wait. Both use the same SDK.
import { CreateTableCommand, type DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { DynamoDBDocument } from '@aws-sdk/lib-dynamodb';
import { type Call, FailOpen } from 'dynamodb-lock-client';

/** The lease of both. It is as short as is sensible, because a waiter of the peer sleeps for a lease. */
export const LEASE_MS = 1000;

/** Takes a lock and returns the function that releases it. */
export type Acquire = (name: string) => Promise<() => Promise<void>>;

interface PawlLock {
  readonly token: bigint;
  release(): Promise<void>;
}

interface PawlLocks {
  acquire(name: string, options: object): Promise<PawlLock>;
  stop(): Promise<void>;
}

interface Pawl {
  readonly dynamodb: (client: unknown, options: object) => { migrate(): Promise<unknown> };
  readonly createLocks: (engine: unknown) => PawlLocks;
}

/** Pawl on its own client: the built package, as a user gets it. */
export async function pawlOn(client: unknown, table: string): Promise<PawlLocks> {
  const dist = new URL('../../dist/', import.meta.url);
  const { dynamodb } = (await import(new URL('engine/dynamodb/index.js', dist).href)) as Pick<Pawl, 'dynamodb'>;
  const { createLocks } = (await import(new URL('lock/index.js', dist).href)) as Pick<Pawl, 'createLocks'>;
  const engine = dynamodb(client, { table });
  await engine.migrate();
  return createLocks(engine);
}

export function pawlAcquire(locks: PawlLocks): Acquire {
  return async (name) => {
    const lock = await locks.acquire(name, { lease: LEASE_MS });
    return () => lock.release();
  };
}

/**
 * dynamodb-lock-client with leases and a heartbeat, as Pawl's locks have. It was written for version 2 of the SDK, which is no
 * longer maintained. So it runs on version 3 here, which accepts the same calls.
 */
export async function peerAcquire(client: DynamoDBClient, table: string): Promise<Acquire> {
  await client
    .send(
      new CreateTableCommand({
        TableName: table,
        BillingMode: 'PAY_PER_REQUEST',
        AttributeDefinitions: [{ AttributeName: 'id', AttributeType: 'S' }],
        KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }],
      }),
    )
    .catch(ignoreExisting);
  const document = DynamoDBDocument.from(client);
  const locks = new FailOpen({
    dynamodb: {
      get: calledBack((params) => document.get(params as never)),
      put: calledBack((params) => document.put(params as never)),
      delete: calledBack((params) => document.delete(params as never)),
    },
    lockTable: table,
    partitionKey: 'id',
    leaseDurationMs: LEASE_MS,
    heartbeatPeriodMs: Math.floor(LEASE_MS / 3),
    retryCount: 1000,
  });
  return async (name) => {
    const lock = await promised<PeerLock>((done) => locks.acquireLock(name, done));
    return () => promised<void>((done) => lock.release(done));
  };
}

type Done<T> = (error: Error | null | undefined, value: T) => void;
type PeerLock = Parameters<Parameters<FailOpen['acquireLock']>[1]>[1];

function promised<T>(call: (done: Done<T>) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    call((error, value) => (error ? reject(error) : resolve(value)));
  });
}

/** Calls back as version 2 of the SDK did. The peer reads `code`, which version 3 calls `name`. */
function calledBack(call: (params: object) => Promise<unknown>): Call {
  return (params, done) => {
    const told = async (): Promise<void> => {
      const [error, data] = await call(params).then(
        (value): [undefined, unknown] => [undefined, value],
        (reason: Error): [Error, undefined] => [Object.assign(reason, { code: reason.name }), undefined],
      );
      process.nextTick(done, error, data);
    };
    void told();
  };
}

function ignoreExisting(error: Error): void {
  if (error.name !== 'ResourceInUseException') throw error;
}
