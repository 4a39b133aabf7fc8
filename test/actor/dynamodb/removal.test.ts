import { beforeAll, describe, expect, test } from 'vitest';
import { DynamoActorStore } from '../../../src/actor/dynamodb/store.ts';
import { actor, createActors, state } from '../../../src/actor/index.ts';
import { NotFound } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { faultyClient } from '../../support/failing/dynamodb-faults.ts';
import { start } from '../contract/open.ts';

const local = await sharedDynamo();
const TABLE = 'actor-removal';
let engine: DynamoEngine;

beforeAll(async () => {
  engine = dynamodb(dynamoClient(local.endpoint), { table: TABLE });
  await engine.migrate();
});

const Kept = actor('Kept', {
  semaphores: ['end'],
  initial: 'lives',
  history: '1s',
  states: {
    lives: state({
      run: async (a) => {
        await a.once('pay', {}, () => 1);
        return a.take('end') ? a.done() : a.hibernate();
      },
    }),
  },
});

// The stand-in has no transactions.
describe.skipIf(local.kind === 'dynalite')('final actors on DynamoDB', () => {
  test('are removed once the time of their type is over, a child not before its parent, and others stay', async () => {
    const actors = createActors(engine, [Kept], { shards: 2 });
    const store = new DynamoActorStore(engine, 2);
    const parent = await actors.create(Kept, {});
    const child = await actors.create(Kept, {}, { parent, key: 'one' });
    const other = await actors.create(Kept, {});
    await actors.work(other);
    await actors.send(child, 'never read');
    await actors.incr(child, 'end');
    await actors.work(child);
    const endedAt = Number((await actors.get(child)).finishedAt);
    await until('its time is over', async () => (await engine.serviceTime({ timeoutMs: 5000 })) > endedAt + 1000);
    expect(await store.removal.check()).toBe(0);
    expect(await actors.get(child)).toMatchObject({ status: 'final' });
    await actors.incr(parent, 'end');
    await actors.work(parent);
    await until('the parent is removed', async () => {
      await store.removal.check();
      return (await actors.list({ final: true })).every(({ id }) => id !== parent.id);
    });
    await expect(actors.get(parent)).rejects.toThrow(NotFound);
    expect(await store.rows.all(`actor:${parent.id}`, '!', '~')).toEqual([]);
    // The child waits for an hour before it is looked at again: its parent was there.
    expect((await actors.list({ final: true })).map(({ id }) => id)).toEqual([other.id, child.id]);
    expect(await actors.find(Kept, 'one')).toMatchObject({ id: child.id });
    expect(await actors.get(other)).toMatchObject({ status: 'hibernating' });
  });

  test('of a key leave it to the next one', async () => {
    const actors = createActors(engine, [Kept], { shards: 2 });
    const store = new DynamoActorStore(engine, 2);
    const first = await actors.create(Kept, {}, { key: 'again' });
    await actors.incr(first, 'end');
    await actors.work(first);
    await until('it is removed', async () => {
      await store.removal.check();
      return (await actors.find(Kept, 'again')) === undefined;
    });
    expect(await actors.create(Kept, {}, { key: 'again' })).toMatchObject({ created: true });
  });

  test('leave nothing of what was raised and sent while they were removed', async () => {
    const actors = createActors(engine, [Kept], { shards: 2 });
    const store = new DynamoActorStore(engine, 2);
    let open = (): void => {};
    const opened = new Promise<void>((resolve) => {
      open = resolve;
    });
    let held = 0;
    const slow = faultyClient(dynamoClient(local.endpoint), ({ operation }) => {
      if (operation !== 'TransactWriteItems') return 'pass';
      held += 1;
      return { after: opened };
    });
    const late = createActors(dynamodb(slow, { table: TABLE }), [Kept], { shards: 2 });
    const { id } = await actors.create(Kept, {});
    const producing = [late.incr(id, 'end'), late.send(id, 'note', 1)];
    await until('both have found the actor', () => held >= 2);
    await actors.incr(id, 'end');
    await actors.work(id);
    await until('it is removed', async () => {
      await store.removal.check();
      return (await store.rows.head(Number(id))) === undefined;
    });
    open();
    await Promise.all(producing);
    expect(await store.rows.all(`actor:${id}`, '!', '~')).not.toEqual([]);
    await start(actors);
    await until('nothing is left', async () => (await store.rows.all(`actor:${id}`, '!', '~')).length === 0);
  });
});
