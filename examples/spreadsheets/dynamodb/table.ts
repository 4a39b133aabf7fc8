import { setTimeout as sleep } from 'node:timers/promises';
import {
  type AttributeValue,
  ConditionalCheckFailedException,
  CreateTableCommand,
  type DynamoDBClient,
  GetItemCommand,
  PutItemCommand,
  ResourceInUseException,
  ScanCommand,
  TransactionCanceledException,
  type TransactWriteItem,
  TransactWriteItemsCommand,
  UpdateItemCommand,
  waitUntilTableExists,
} from '@aws-sdk/client-dynamodb';
import { NoRetry } from 'pawl/queue';
import type { Spreadsheet, Version } from '../store.ts';

export type Row = Record<string, AttributeValue>;

/** A row has at most 400 KB, and this leaves room for its other fields. */
const MOST_BYTES = 350_000;
/** An update does not join jobs that are about to run: its job might be written only after they have begun. */
const CLOSING_MS = 200;

/** The spreadsheets, a row each. Next to it, in its partition, are the time of its next file and the log of its runs. */
export class SheetTable {
  readonly name: string;
  readonly #client: DynamoDBClient;

  constructor(client: DynamoDBClient, name: string) {
    this.#client = client;
    this.name = name;
  }

  /** Makes the table, unless it is there. */
  async create(): Promise<void> {
    const keys = ['pk', 'sk'] as const;
    const table = new CreateTableCommand({
      TableName: this.name,
      BillingMode: 'PAY_PER_REQUEST',
      AttributeDefinitions: keys.map((AttributeName) => ({ AttributeName, AttributeType: 'S' })),
      KeySchema: keys.map((AttributeName, at) => ({ AttributeName, KeyType: at === 0 ? 'HASH' : 'RANGE' })),
    });
    await this.#client.send(table).catch((error: unknown) => {
      if (!(error instanceof ResourceInUseException)) throw error;
    });
    await waitUntilTableExists({ client: this.#client, maxWaitTime: 60, minDelay: 1 }, { TableName: this.name });
  }

  async find(id: string): Promise<Spreadsheet | undefined> {
    const row = await this.#sheet(id);
    return row && toSheet(id, row);
  }

  /** The job that writes the first version of a spreadsheet. */
  async creatorOf(id: string): Promise<string | undefined> {
    const row = await this.#sheet(id);
    return row?.['job']?.S;
  }

  /** A part of a transaction: adds the row of a spreadsheet that is still to be written, if there is none. */
  added(id: string, columns: readonly string[], by: string, job: string): TransactWriteItem {
    const Item = {
      ...keyOf(id, 'sheet'),
      columns: json(columns),
      rows: json([]),
      jobs: json([]),
      version: { N: '0' },
      job: { S: job },
      createdBy: { S: by },
      createdAt: { S: new Date().toISOString() },
    };
    return { Put: { TableName: this.name, Item, ConditionExpression: 'attribute_not_exists(pk)' } };
  }

  /** A part of a transaction: makes a file the current one, unless there is a later version than was read. */
  changed(before: Spreadsheet, { rows, jobs, version, file }: Version): TransactWriteItem {
    const text = JSON.stringify(rows);
    if (Buffer.byteLength(text) > MOST_BYTES) {
      throw new NoRetry(
        `"${before.id}" would have more than ${MOST_BYTES} bytes, for which a row of DynamoDB has no room`,
      );
    }
    return {
      Update: {
        TableName: this.name,
        Key: keyOf(before.id, 'sheet'),
        UpdateExpression: 'set #rows = :rows, jobs = :jobs, version = :version, #file = :file, writtenAt = :at',
        ConditionExpression: 'version = :before',
        ExpressionAttributeNames: { '#rows': 'rows', '#file': 'file' },
        ExpressionAttributeValues: {
          ':rows': { S: text },
          ':jobs': json(jobs),
          ':version': { N: String(version) },
          ':before': { N: String(before.version) },
          ':file': { S: file },
          ':at': { S: new Date().toISOString() },
        },
      },
    };
  }

  /** When the update that is being asked for is to run: together with those that wait already, or `ms` from now. */
  async gather(id: string, ms: number): Promise<Date> {
    const closing = Date.now() + CLOSING_MS;
    const until = closing + ms;
    try {
      await this.#client.send(
        new UpdateItemCommand({
          TableName: this.name,
          Key: keyOf(id, 'gather'),
          UpdateExpression: 'set #until = :until',
          ConditionExpression: 'attribute_not_exists(#until) or #until < :closing',
          ExpressionAttributeNames: { '#until': 'until' },
          ExpressionAttributeValues: { ':until': { N: String(until) }, ':closing': { N: String(closing) } },
          ReturnValuesOnConditionCheckFailure: 'ALL_OLD',
        }),
      );
      return new Date(until);
    } catch (error) {
      if (!(error instanceof ConditionalCheckFailedException)) throw error;
      return new Date(Number(error.Item?.['until']?.N ?? until));
    }
  }

  async put(id: string, sk: string, fields: Row): Promise<void> {
    await this.#client.send(new PutItemCommand({ TableName: this.name, Item: { ...keyOf(id, sk), ...fields } }));
  }

  /** All of it or nothing. @returns false when a condition did not hold */
  async write(items: readonly TransactWriteItem[]): Promise<boolean> {
    for (;;) {
      try {
        await this.#client.send(new TransactWriteItemsCommand({ TransactItems: [...items] }));
        return true;
      } catch (error) {
        const reasons = error instanceof TransactionCanceledException ? (error.CancellationReasons ?? []) : [];
        if (reasons.some(({ Code }) => Code === 'ConditionalCheckFailed')) return false;
        if (!reasons.some(({ Code }) => Code === 'TransactionConflict')) throw error;
        // Another transaction was at one of the rows just then.
        await sleep(10 + Math.random() * 40);
      }
    }
  }

  async #sheet(id: string): Promise<Row | undefined> {
    const Key = keyOf(id, 'sheet');
    const get = new GetItemCommand({ TableName: this.name, Key, ConsistentRead: true });
    return (await this.#client.send(get)).Item;
  }

  /** All rows of one kind, of all spreadsheets. It reads the whole table: for demonstrations. */
  async *all(kind: 'sheet' | 'run'): AsyncGenerator<Row> {
    let start: Row | undefined;
    do {
      const page = await this.#client.send(
        new ScanCommand({
          TableName: this.name,
          ConsistentRead: true,
          FilterExpression: 'begins_with(sk, :kind)',
          ExpressionAttributeValues: { ':kind': { S: kind } },
          ExclusiveStartKey: start,
        }),
      );
      yield* page.Items ?? [];
      start = page.LastEvaluatedKey;
    } while (start !== undefined);
  }
}

export function keyOf(id: string, sk: string): { pk: { S: string }; sk: { S: string } } {
  return { pk: { S: id }, sk: { S: sk } };
}

export function json(value: unknown): { S: string } {
  return { S: JSON.stringify(value) };
}

function toSheet(id: string, row: Row): Spreadsheet {
  const text = (name: string): string | undefined => row[name]?.S;
  return {
    id,
    columns: JSON.parse(text('columns') ?? '[]'),
    rows: JSON.parse(text('rows') ?? '[]'),
    version: Number(row['version']?.N ?? 0),
    file: text('file') ?? null,
    jobs: JSON.parse(text('jobs') ?? '[]'),
    createdBy: text('createdBy') ?? '',
    createdAt: new Date(text('createdAt') ?? 0),
    writtenAt: row['writtenAt'] === undefined ? null : new Date(text('writtenAt') ?? 0),
  };
}
