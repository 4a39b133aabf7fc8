import { setTimeout as sleep } from 'node:timers/promises';
import {
  type AttributeValue,
  DynamoDBClient,
  GetItemCommand,
  type TransactWriteItem,
  TransactWriteItemsCommand,
} from '@aws-sdk/client-dynamodb';
import { LeaseLost } from '../../../../src/base/errors.ts';
import { dynamodb } from '../../../../src/engine/dynamodb/index.ts';
import type { Lock } from '../../../../src/lock/index.ts';
import { carelessClient, faultyClient, seededFaults } from '../../../support/failing/dynamodb-faults.ts';
import { block } from '../../block.ts';
import type { Written } from '../history.ts';
import type { Writing } from '../plan.ts';
import type { Ground } from './postgres.ts';

/** The limit of a request: on a silent network, the SDK would wait for ever. */
const ANSWER_MS = 8000;

/** The place of the locks and of the protected values: `http://host:port/table`. */
export interface Place {
  readonly client: DynamoDBClient;
  readonly table: string;
}

export function placeOf(url: string): Place {
  const { origin, pathname } = new URL(url);
  const credentials = { accessKeyId: 'local', secretAccessKey: 'local' };
  return { client: new DynamoDBClient({ endpoint: origin, region: 'local', credentials }), table: pathname.slice(1) };
}

/** Each client's requests about locks meet faults of their own. Its writes meet only the faults of the network. */
export function dynamoGround(url: string, seed: number, plant: string | undefined): Ground {
  const { client, table } = placeOf(url);
  const chosen = plant === 'conditions always hold' ? carelessClient(client) : faultyClient(client, seededFaults(seed));
  const write = async (
    lock: Lock,
    name: string,
    { op, pauseMs, isUnaware, stands }: Writing & { op: string },
  ): Promise<void> => {
    // A guard from before the pause: a process that is suspended between its check and its write has such a guard.
    const early = isUnaware ? lock.guard() : undefined;
    const Key = keyOf(name);
    const { Item } = await client.send(new GetItemCommand({ TableName: table, Key, ConsistentRead: true }), {
      abortSignal: AbortSignal.timeout(ANSWER_MS),
    });
    const value = String(Number(Item?.['value']?.N ?? 0) + 1);
    await sleep(pauseMs);
    if (stands !== undefined) block(stands.ms);
    const entry: AttributeValue = { M: { value: { N: value }, token: { N: String(lock.token) }, op: { S: op } } };
    const update: TransactWriteItem = {
      Update: {
        TableName: table,
        Key,
        UpdateExpression: 'SET #value = :value, #log = list_append(if_not_exists(#log, :none), :entry)',
        ExpressionAttributeNames: { '#value': 'value', '#log': 'log' },
        ExpressionAttributeValues: { ':value': { N: value }, ':none': { L: [] }, ':entry': { L: [entry] } },
      },
    };
    if (plant === 'a committed write is gone') return;
    const checks = plant === 'the guard does nothing' ? [] : (early ?? lock.guard());
    await client.send(new TransactWriteItemsCommand({ TransactItems: [...checks, update] }), {
      abortSignal: AbortSignal.timeout(ANSWER_MS),
    });
  };
  return {
    engine: dynamodb(chosen, { table }),
    stop: async () => client.destroy(),
    write: async (lock, name, how) => {
      try {
        await write(lock, name, how);
        return 'committed';
      } catch (error) {
        return error instanceof LeaseLost || hasFailedCheck(error) ? 'refused' : 'unknown';
      }
    },
  };
}

/** The writes of a name, in the order of their commits. */
export async function readWritten({ client, table }: Place, name: string): Promise<Written[]> {
  const { Item } = await client.send(new GetItemCommand({ TableName: table, Key: keyOf(name), ConsistentRead: true }));
  return (Item?.['log']?.L ?? []).map(({ M }) => ({
    op: M?.['op']?.S ?? '',
    name,
    value: Number(M?.['value']?.N),
    token: M?.['token']?.N ?? '',
    committedAt: 0,
  }));
}

function keyOf(name: string): { pk: { S: string }; sk: { S: string } } {
  return { pk: { S: `protected:${name}` }, sk: { S: 'value' } };
}

function hasFailedCheck(error: unknown): boolean {
  const reasons: unknown = Object(error).CancellationReasons;
  return Array.isArray(reasons) && reasons.some((reason) => Object(reason).Code === 'ConditionalCheckFailed');
}
