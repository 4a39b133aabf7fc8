import { afterAll, beforeAll, expect, test } from 'vitest';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue, createQueueAdmin, type QueueOptions, type RateLimit } from '../../../src/queue/index.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';

let database: FreshDatabase;
let engine: PostgresEngine;
let made = 0;

beforeAll(async () => {
  database = await freshDatabase();
  engine = postgres(database.url, { max: 5 });
});

afterAll(async () => {
  await engine.stop();
  await database.drop();
});

const kinds = { send: {}, sum: { coalesce: 'all' }, save: { debounce: '1s' }, after: { after: ['send'] } } as const;

function newQueue(options: Omit<QueueOptions, 'kinds'>) {
  made += 1;
  return createQueue(engine, `refusing ${made}`, { kinds, concurrency: { perGroup: 2 }, ...options });
}

const long = 'x'.repeat(101);

test.each([
  ['an empty name', {}, 'send', { group: '' }, 'group'],
  ['a long name', {}, 'send', { group: long }, 'group'],
  ['no limit', { concurrency: {} }, 'send', { group: 'acme' }, 'no limit for groups'],
  ['a kind that coalesces', {}, 'sum', { group: 'acme', key: 'k' }, 'kind "sum"'],
  ['a debounced kind', {}, 'save', { group: 'acme', key: 'k' }, 'kind "save"'],
  ['a kind that comes after another', {}, 'after', { group: 'acme', key: 'k' }, 'kind "after"'],
  ['a key and several shards', { shards: 2 }, 'send', { group: 'acme', key: 'k' }, 'one shard, and'],
  [
    'a key and a rate',
    { rate: { perGroup: { limit: 1, per: '1s' } } },
    'send',
    { group: 'acme', key: 'k' },
    'has a rate for groups',
  ],
  ['a key that blocks', { keyOnError: 'block' }, 'send', { group: 'acme', key: 'k' }, 'keyOnError'],
] as const)(
  'a group is refused with %s, by the program and by SQL, and nothing is written',
  async (_, options, kind, job, what) => {
    const queue = newQueue(options);
    await queue.register();
    const refusal = { name: 'InvalidInput', message: expect.stringContaining(what) };
    await expect(queue.enqueue(kind, 1, job)).rejects.toMatchObject({ ...refusal, field: 'group' });
    await expect(
      queue.enqueueMany([
        { kind: 'send', payload: 0 },
        { kind, payload: 1, ...job },
      ]),
    ).rejects.toMatchObject({
      ...refusal,
      field: expect.stringMatching(/group$/),
    });
    const admin = createQueueAdmin(engine);
    await expect(admin.enqueue(queue.name, kind, 1, job)).rejects.toMatchObject(refusal);
    expect(await queue.stats()).toMatchObject({ new: 0 });
  },
);

test.each([0, -1, 1.5, Infinity, 10_001, '2', null])('perGroup: %s is refused', (perGroup) => {
  const options = { concurrency: { perGroup: perGroup as number } };
  expect(() => newQueue(options)).toThrow(
    expect.objectContaining({ name: 'InvalidInput', field: expect.stringContaining('perGroup') }),
  );
});

test.each([
  [{ limit: 0, per: '1s' }, 'limit'],
  [{ limit: 1.5, per: '1s' }, 'limit'],
  [{ limit: 10_001, per: '1s' }, 'limit'],
  [{ per: '1s' }, 'limit'],
  [{ limit: 1 }, 'per'],
  [{ limit: 1, per: '999ms' }, 'per'],
  [{ limit: 1, per: '367d' }, 'per'],
  [{ limit: 1, per: Infinity }, 'per'],
  [{ limit: 1, per: '1s', burst: 2 }, 'burst'],
  [10, 'perGroup'],
  [null, 'perGroup'],
] as const)('rate.perGroup: %j is refused', (perGroup, field) => {
  const rate = { perGroup: perGroup as RateLimit };
  expect(() => newQueue({ rate })).toThrow(
    expect.objectContaining({ name: 'InvalidInput', field: expect.stringContaining(field) }),
  );
});

test('a job with a group is moved to a queue with places, and to no other one', async () => {
  const [from, to] = [newQueue({}), newQueue({ concurrency: {} })];
  await to.register();
  const { id } = await from.enqueue('send', 1, { group: 'acme' });
  expect(await from.move('', to)).toEqual({ done: 0, left: 1 });
  expect(await from.get(id)).toMatchObject({ group: 'acme', queue: from.name });
});
