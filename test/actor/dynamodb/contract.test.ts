import { beforeAll, describe } from 'vitest';
import { createActors } from '../../../src/actor/index.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { actorContract } from '../contract.ts';

const local = await sharedDynamo();
let engine: DynamoEngine;

beforeAll(async () => {
  engine = dynamodb(dynamoClient(local.endpoint), { table: 'actor-contract' });
  await engine.migrate();
});

// The stand-in has no transactions.
describe.skipIf(local.kind === 'dynalite')('on DynamoDB', () => {
  actorContract((definitions) => Promise.resolve(createActors(engine, definitions, { shards: 2 })));
});
