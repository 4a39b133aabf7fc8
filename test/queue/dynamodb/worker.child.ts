// A worker process of a queue on DynamoDB. It tells each run, and what became of a write that its guard is part of.
import { setTimeout as sleep } from 'node:timers/promises';
import { TransactWriteItemsCommand } from '@aws-sdk/client-dynamodb';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createQueue, type Unit } from '../../../src/queue/index.ts';
import { dynamoClient } from '../../support/dynamodb.ts';
import { KINDS, readOrders } from './orders.ts';

const { ENDPOINT = '', TABLE = '', QUEUE = '' } = process.env;
const client = dynamoClient(ENDPOINT);
const engine = dynamodb(client, { table: TABLE });
const say = (message: object): void => console.log(JSON.stringify(message));

async function run(unit: Unit): Promise<void> {
  const { name, ms = 0, guards = false } = readOrders(unit.payload);
  const items = unit.guardItems();
  say({ run: name, attempt: unit.attempt });
  await sleep(ms);
  if (!guards) return;
  const put = { Put: { TableName: TABLE, Item: { pk: { S: `effect of ${name}` }, sk: { S: String(process.pid) } } } };
  await client.send(new TransactWriteItemsCommand({ TransactItems: [...items, put] })).then(
    () => say({ wrote: name }),
    (error: Error) => say({ refused: name, error: error.name }),
  );
}

const queue = createQueue(engine, QUEUE, { kinds: KINDS });
const worker = queue.work({ job: run }, { lease: '1s', poll: '100ms', concurrency: 4 });
worker.events.on('lost', () => say({ lost: true }));
worker.events.on('stale', ({ claims }) => say({ stale: claims.length }));
worker.events.on('error', () => {});
await worker.started;
say({ ready: true });
