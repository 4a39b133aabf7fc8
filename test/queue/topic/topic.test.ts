import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { InvalidInput, NotFound, SerializationFailed } from '../../../src/base/errors.ts';
import { type PostgresEngine, postgres, statement } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, createTopic, type Queue, type Topic } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { eventually } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { gate } from '../contract/fixture.ts';

let engine: PostgresEngine;
let made = 0;

beforeAll(async () => {
  const { url } = await freshDatabase();
  engine = postgres(url, { max: 30, logger: recordLog() });
});

afterAll(() => engine.stop());

async function newQueues(
  n: number,
): Promise<{ topic: Topic; queues: Queue<{ send: object; sync: { unique: 'key' } }>[] }> {
  made += 1;
  const queues = Array.from({ length: n }, (_, at) =>
    createQueue(engine, `topic ${made} ${at}`, { kinds: { send: {}, sync: { unique: 'key' } } }),
  );
  await Promise.all(queues.map((queue) => queue.register()));
  return { topic: createTopic(engine, `topic ${made}`), queues };
}

/** Takes the snapshot of a transaction. */
const LOOK = statement('test.look', 'select count(*) from pawl.queue_topic');
const counts = (queues: readonly Queue[]): Promise<number[]> =>
  Promise.all(queues.map(async (queue) => (await queue.stats()).new));

test('what is published becomes a job in each subscribed queue, with the options of the publish', async () => {
  const { topic, queues } = await newQueues(3);
  const [a, b, c] = queues.map(({ name }) => name);
  expect(await topic.publish({ to: 'nobody' })).toEqual([]);
  expect(await topic.subscribe(a ?? '', 'send')).toBe(true);
  expect(await topic.subscribe(a ?? '', 'send')).toBe(false);
  expect(await topic.subscribe(b ?? '', 'sync')).toBe(true);
  expect(await topic.subscriptions()).toEqual([
    { queue: a, kind: 'send' },
    { queue: b, kind: 'sync' },
  ]);
  const published = await topic.publish({ to: 'ada' }, { key: 'k', priority: 3, meta: { by: 'test' } });
  expect(published).toMatchObject([
    { queue: a, kind: 'send', status: 'new', duplicate: false },
    { queue: b, kind: 'sync', status: 'new', duplicate: false },
  ]);
  expect(await queues[0]?.get(published[0]?.id ?? '')).toMatchObject({ payload: { to: 'ada' }, key: 'k', priority: 3 });
  expect(await topic.publish({ to: 'ada' }, { key: 'k' })).toMatchObject([
    { duplicate: false },
    { duplicate: true, id: published[1]?.id },
  ]);
  expect(await topic.unsubscribe(a ?? '', 'send')).toBe(true);
  expect(await topic.unsubscribe(c ?? '', 'send')).toBe(false);
  expect(await topic.publish(1, { key: 'other' })).toHaveLength(1);
});

// Invariants J13.
test('a publish in a transaction is committed or rolled back as one', async () => {
  const { topic, queues } = await newQueues(2);
  for (const { name } of queues) await topic.subscribe(name, 'send');
  await engine
    .transaction(async (tx) => {
      await topic.publish(1, { tx });
      throw new Error('rolled back');
    })
    .catch(() => {});
  expect(await counts(queues)).toEqual([0, 0]);
  await engine.transaction((tx) => topic.publish(1, { tx }));
  expect(await counts(queues)).toEqual([1, 1]);
});

test('a subscription waits for open publishes, so that each reaches the queues subscribed at its commit', async () => {
  const { topic, queues } = await newQueues(2);
  const [a = '', b = ''] = queues.map(({ name }) => name);
  await topic.subscribe(a, 'send');
  const [published, goOn] = [gate(), gate()];
  onTestFinished(() => goOn.open());
  let isSubscribed = false;
  const publishing = engine.transaction(async (tx) => {
    await topic.publish(1, { tx });
    published.open();
    await goOn.opened;
    expect(isSubscribed).toBe(false);
  });
  await published.opened;
  const subscribing = topic.subscribe(b, 'send').then(() => {
    isSubscribed = true;
  });
  // Other publishers do not wait for either.
  await topic.publish(2);
  goOn.open();
  await Promise.all([publishing, subscribing]);
  expect(await counts(queues)).toEqual([2, 0]);
  await topic.publish(3);
  expect(await counts(queues)).toEqual([3, 1]);
});

test('above read committed, a publish whose snapshot is older than a subscription fails, and reaches it with a newer one', async () => {
  const { topic, queues } = await newQueues(2);
  const [a = '', b = ''] = queues.map(({ name }) => name);
  await topic.subscribe(a, 'send');
  const failed: unknown[] = [];
  // The engine repeats a transaction that lost against a concurrent one.
  await engine.transaction(
    async (tx) => {
      await tx.query(LOOK);
      await topic.subscribe(b, 'send');
      await topic.publish(1, { tx }).catch((error: unknown) => {
        failed.push(error);
        throw error;
      });
    },
    { isolation: 'repeatable read' },
  );
  expect(failed).toEqual([expect.any(SerializationFailed)]);
  expect(await counts(queues)).toEqual([1, 1]);
});

test('above read committed, a publish whose snapshot is older than the first subscription fails as well', async () => {
  const { topic, queues } = await newQueues(1);
  const failed: unknown[] = [];
  await engine.transaction(
    async (tx) => {
      await tx.query(LOOK);
      await topic.subscribe(queues[0]?.name ?? '', 'send');
      await topic.publish(1, { tx }).catch((error: unknown) => {
        failed.push(error);
        throw error;
      });
    },
    { isolation: 'repeatable read' },
  );
  expect(failed).toEqual([expect.any(SerializationFailed)]);
  expect(await counts(queues)).toEqual([1]);
  // A topic without a subscription takes a publish, and leaves no row.
  const { topic: lonely } = await newQueues(1);
  await engine.transaction((tx) => lonely.publish(1, { tx }), { isolation: 'repeatable read' });
  expect((await createQueueAdmin(engine).topics()).map(({ name }) => name)).not.toContain(lonely.name);
});

// Invariants J13.
test('while queues come and go, 50 publishers reach a set of queues that was subscribed at some moment', async () => {
  const { topic, queues } = await newQueues(2);
  const [a = '', b = ''] = queues.map(({ name }) => name);
  await topic.subscribe(a, 'send');
  const toggling = (async () => {
    for (let n = 0; n < 10; n += 1) await (n % 2 ? topic.unsubscribe(b, 'send') : topic.subscribe(b, 'send'));
  })();
  const all = await Promise.all(Array.from({ length: 50 }, (_, n) => topic.publish(n)));
  await toggling;
  expect(all.every((jobs) => jobs[0]?.queue === a && jobs.length <= 2)).toBe(true);
  expect(await counts(queues)).toEqual([50, all.filter((jobs) => jobs.length === 2).length]);
});

test('names the mistake of a subscription or a publish', async () => {
  const { topic, queues } = await newQueues(1);
  const [a = ''] = queues.map(({ name }) => name);
  await expect(topic.subscribe('no such queue', 'send')).rejects.toThrow(NotFound);
  await expect(topic.subscribe(a, 'sned')).rejects.toThrow(NotFound);
  await topic.subscribe(a, 'sync');
  await expect(topic.publish(1)).rejects.toThrow(InvalidInput);
  await expect(topic.publish(1, { kye: 'k' } as never)).rejects.toThrow('did you mean');
  expect(() => createTopic(engine, '')).toThrow(InvalidInput);
  await eventually(async () => expect(await counts(queues)).toEqual([0]));
});
