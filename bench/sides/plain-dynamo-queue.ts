// A plain queue on DynamoDB, as AWS publishes it: "Implementing priority queueing with Amazon DynamoDB",
// https://aws.amazon.com/blogs/database/implementing-priority-queueing-with-amazon-dynamodb/. Each job is an item. A sparse index has the
// queued jobs, in order of time. A conditional update claims a job. Another one completes it and takes it out of the index.
import {
  CreateTableCommand,
  PutItemCommand,
  QueryCommand,
  UpdateItemCommand,
  waitUntilTableExists,
} from '@aws-sdk/client-dynamodb';
import type { LocalDynamo } from '../harness/dynamodb.ts';

type Client = ReturnType<LocalDynamo['client']>;

const INDEX = 'queued';
const PAGE = 100;
const AT_ONCE = 32;

/** Calls `run` for each item, {@link AT_ONCE} calls at a time. */
async function each<T>(items: readonly T[], run: (item: T) => Promise<void>): Promise<void> {
  const left = items.values();
  const lane = async (): Promise<void> => {
    for (const item of left) await run(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
}

/** The queue on a table of its own. */
export class PlainQueue {
  readonly #client: Client;
  readonly #table: string;

  constructor(client: Client, table: string) {
    this.#client = client;
    this.#table = table;
  }

  async migrate(): Promise<void> {
    const text = (name: string): { AttributeName: string; AttributeType: 'S' } => ({
      AttributeName: name,
      AttributeType: 'S',
    });
    await this.#client.send(
      new CreateTableCommand({
        TableName: this.#table,
        BillingMode: 'PAY_PER_REQUEST',
        AttributeDefinitions: [text('id'), text('queued'), text('last_updated')],
        KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }],
        GlobalSecondaryIndexes: [
          {
            IndexName: INDEX,
            KeySchema: [
              { AttributeName: 'queued', KeyType: 'HASH' },
              { AttributeName: 'last_updated', KeyType: 'RANGE' },
            ],
            Projection: { ProjectionType: 'ALL' },
          },
        ],
      }),
    );
    await waitUntilTableExists({ client: this.#client, maxWaitTime: 30 }, { TableName: this.#table });
  }

  async enqueue(payloads: readonly unknown[]): Promise<void> {
    await each([...payloads.entries()], async ([at, payload]) => {
      const Item = {
        id: { S: `job ${at}` },
        queued: { S: '1' },
        last_updated: { S: String(at).padStart(9, '0') },
        status: { S: 'READY' },
        payload: { S: JSON.stringify(payload) },
      };
      await this.#client.send(new PutItemCommand({ TableName: this.#table, Item }));
    });
  }

  /** Runs all jobs. @returns how many it ran */
  async drain(): Promise<number> {
    let ran = 0;
    for (;;) {
      const { Items = [] } = await this.#client.send(
        new QueryCommand({
          TableName: this.#table,
          IndexName: INDEX,
          KeyConditionExpression: 'queued = :one',
          ExpressionAttributeValues: { ':one': { S: '1' } },
          Limit: PAGE,
        }),
      );
      if (Items.length === 0) return ran;
      await each(Items, async ({ id }) => {
        if (id === undefined) return;
        await this.#move(id, 'READY', 'PROCESSING', '');
        ran += 1;
        await this.#move(id, 'PROCESSING', 'DONE', ' REMOVE queued');
      });
    }
  }

  async #move(id: { S: string } | object, from: string, to: string, more: string): Promise<void> {
    const request = {
      TableName: this.#table,
      Key: { id },
      ConditionExpression: '#s = :from',
      UpdateExpression: `SET #s = :to${more}`,
      ExpressionAttributeNames: { '#s': 'status' },
      ExpressionAttributeValues: { ':from': { S: from }, ':to': { S: to } },
    };
    // The SDK's type of an attribute does not accept the type of `id`.
    await this.#client.send(new UpdateItemCommand(request as never));
  }
}
