import { expect, test } from 'vitest';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient } from '../../support/dynamodb.ts';
import { type Fault, faultyClient } from '../../support/failing/dynamodb-faults.ts';
import { atTestEnd } from '../../support/together.ts';

const LIMITS = { timeoutMs: 1500 };

/** Each request has the next fault, and those that come after them the last. No service listens at all. */
function engineOf(...faults: readonly Fault[]): ReturnType<typeof dynamodb> {
  const client = dynamoClient('http://127.0.0.1:1');
  atTestEnd(() => client.destroy());
  let tries = 0;
  return dynamodb(
    faultyClient(client, () => faults[Math.min(tries++, faults.length - 1)] ?? 'pass'),
    { table: 'pawl' },
  );
}

const never: Fault = { after: new Promise(() => {}) };

test('a request that is throttled at last, but may have been carried out before, says that its outcome is unknown', async () => {
  const failed = engineOf('drop answer', 'throttle').get({ pk: 'a', sk: 'b' }, LIMITS);
  await expect(failed).rejects.toMatchObject({
    code: 'connection_failed',
    outcome: 'unknown',
    message: expect.stringMatching(/lack of capacity.*; before that, GetItem on table "pawl" had no certain outcome/),
  });
});

test('a request that was throttled all the time wrote nothing', async () => {
  await expect(engineOf('throttle').get({ pk: 'a', sk: 'b' }, LIMITS)).rejects.toMatchObject({ code: 'throttled' });
});

test('a last try that gets no answer in its short time says the outcome of those before it', async () => {
  const engine = engineOf('pass', 'pass', 'pass', never);
  // The client loads its parts with its first request.
  await engine.get({ pk: 'a', sk: 'b' }, { timeoutMs: 1 }).catch(() => {});
  const failed = engine.get({ pk: 'a', sk: 'b' }, { timeoutMs: 3000 });
  await expect(failed).rejects.toMatchObject({
    outcome: 'unknown',
    message: expect.stringMatching(/no answer within \d+ ms; before that, .*could not be sent.*ECONNREFUSED/),
  });
});
