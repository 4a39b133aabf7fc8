import { setTimeout as sleep } from 'node:timers/promises';
import {
  type AttributeValue,
  GetItemCommand,
  type TransactWriteItem,
  TransactWriteItemsCommand,
} from '@aws-sdk/client-dynamodb';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient } from '../../support/dynamodb.ts';
import { carelessClient, faultyClient, seededFaults } from '../../support/failing/dynamodb-faults.ts';
import type { Write } from '../../support/history/history.ts';
import type { Ground, PartySettings } from '../ground.ts';

/** A party on DynamoDB: `http://host:port/table`. The lock protects a row of the same table, with a log of its writes. */
export function dynamoGround(url: string, { faults, careless }: Pick<PartySettings, 'faults' | 'careless'>): Ground {
  const { origin, pathname } = new URL(url);
  const client = dynamoClient(origin);
  const table = pathname.slice(1);
  const faulty = faults === undefined ? client : faultyClient(client, seededFaults(faults));
  const engine = dynamodb(careless ? carelessClient(client) : faulty, { table });
  const write: Ground['write'] = async (lock, name, pauseMs, isUnaware) => {
    // A guard from before the pause: that of a process which pauses between its check and its write.
    const early = isUnaware ? lock.guard() : undefined;
    const Key = protectedKey(name);
    const { Item } = await client.send(new GetItemCommand({ TableName: table, Key, ConsistentRead: true }));
    const value = Number(Item?.['value']?.N ?? 0) + 1;
    await sleep(pauseMs);
    const token = String(lock.token);
    const entry: AttributeValue = { M: { value: { N: String(value) }, token: { N: token } } };
    const update: TransactWriteItem = {
      Update: {
        TableName: table,
        Key,
        UpdateExpression: 'SET #value = :value, #log = list_append(if_not_exists(#log, :none), :entry)',
        ExpressionAttributeNames: { '#value': 'value', '#log': 'log' },
        ExpressionAttributeValues: { ':value': { N: String(value) }, ':none': { L: [] }, ':entry': { L: [entry] } },
      },
    };
    await client.send(new TransactWriteItemsCommand({ TransactItems: [...(early ?? lock.guard()), update] }));
    return { name, value, token, seq: 0 };
  };
  return { engine, write };
}

/** The key of the row that a lock protects. */
export function protectedKey(name: string): { pk: { S: string }; sk: { S: string } } {
  return { pk: { S: `protected:${name}` }, sk: { S: 'value' } };
}

/** The writes in the log of such a row, in the order of their commits. */
export function toWrites(name: string, item: Record<string, AttributeValue> | undefined): Write[] {
  return (item?.['log']?.L ?? []).map(({ M }, seq) => ({
    name,
    value: Number(M?.['value']?.N),
    token: M?.['token']?.N ?? '',
    seq,
  }));
}
