import { beforeAll, describe } from 'vitest';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createQueue, type DynamoQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import type { Fixture, JobView } from '../contract/fixture.ts';
import { queueContract } from '../contract.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
let engine: DynamoEngine;
let made = 0;

beforeAll(async () => {
  engine = dynamodb(client, { table: 'queue-contract' });
  await engine.migrate();
});

const NOTHING_TOLD = new Set(['enqueue', 'claim', 'complete']);

function fixture(): Fixture {
  made += 1;
  const prefix = `queue ${made}`;
  // Ids are those of a queue, and a test has one.
  let only: Pick<DynamoQueue, 'get' | 'history'> | undefined;
  return {
    hold: 'lease',
    queue: (options, name = '') => {
      const queue = createQueue(engine, `${prefix} ${name}`, options);
      only ??= queue;
      return queue;
    },
    named: ({ name }, id) => `${name}:${id}`,
    job: async (id): Promise<JobView> => {
      if (only === undefined) throw new Error('the test has no queue');
      const [job, history] = await Promise.all([only.get(id), only.history(id)]);
      const { status, error, result, progress } = job;
      const reasons = history.map(({ reason }) => reason).filter((reason) => !NOTHING_TOLD.has(reason));
      return { status, error, result, progress, reasons };
    },
    transaction: () => Promise.reject(new Error('DynamoDB has no transaction that stays open')),
  };
}

// The stand-in has no transactions, which progress, delays and unique kinds need.
describe.skipIf(local.kind === 'dynalite')('on DynamoDB', () => {
  queueContract('lease', () => Promise.resolve(fixture()), { transactions: true, after: true, oneStepClaims: true });
});
