import { PutItemCommand } from '@aws-sdk/client-dynamodb';
import { expect, onTestFinished, test } from 'vitest';
import { inboxOf } from '../../../src/actor/dynamodb/rows.ts';
import { actor, createActors } from '../../../src/actor/index.ts';
import { dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { start } from '../contract/open.ts';

const TABLE = 'actor-crowds';
/** More than a head with large fields has room to name, of 400 KB. */
const CROWD = 150;
/** Long names stand for more of them: one name is as long as sixty that `incr()` makes. */
const LENGTH = 840;

const local = await sharedDynamo();

const Counter = actor('counter', {
  semaphores: ['go'],
  initial: 'only',
  states: (state) => ({
    only: state({
      run: (a) => {
        const n = Number(a.fields['n']) + a.val('go');
        a.decr('go');
        return n > CROWD ? a.done(n) : a.hibernate({ n });
      },
    }),
  }),
});

// Invariant A6.
test('an actor that is raised more often than its row has room for counts each, and holds up no other', async ({
  skip,
}) => {
  skip(local.kind === 'dynalite', 'the stand-in has no transactions');
  const client = dynamoClient(local.endpoint);
  onTestFinished(() => client.destroy());
  const engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
  const actors = createActors(engine, [Counter], { shards: 1 });
  const busy = await actors.create(Counter, { n: 0, text: 'x'.repeat(299_000) });
  for (let n = 0; n < CROWD; n += 1) {
    const { pk, sk } = inboxOf(Number(busy.id), String(n).padStart(LENGTH, '0'));
    const Item = { pk: { S: pk }, sk: { S: sk }, s: { S: 'go' }, n: { N: '1' } };
    await client.send(new PutItemCommand({ TableName: TABLE, Item }));
  }
  await actors.incr(busy, 'go');
  const other = await actors.create(Counter, { n: CROWD });
  await actors.incr(other, 'go');
  await start(actors, { poll: '100ms' });
  expect((await actors.waitFor(other, { timeout: '60s' })).result).toBe(CROWD + 1);
  expect((await actors.waitFor(busy, { timeout: '120s' })).result).toBe(CROWD + 1);
});
