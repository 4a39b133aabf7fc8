import { type TransactWriteItem, TransactWriteItemsCommand } from '@aws-sdk/client-dynamodb';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Conflict, InvalidInput, NotSupported, TimedOut } from '../../../src/base/errors.ts';
import { type DynamoClient, type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually } from '../../support/eventually.ts';
import { faultyClient, seededFaults } from '../../support/failing/dynamodb-faults.ts';
import { LONG } from '../../support/long.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'queue-own';
let engine: DynamoEngine;
let made = 0;
const name = (): string => `own ${(made += 1)}`;

beforeAll(async () => {
  engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
});

interface Capacity {
  readonly CapacityUnits?: number;
}

/** The client, and the write units of what goes through it. */
function counting(): {
  readonly client: DynamoClient;
  readonly spent: { write: number; read: number; requests: number };
} {
  const spent = { write: 0, read: 0, requests: 0 };
  const send = async (command: { input: Record<string, unknown>; constructor: { name: string } }, options: unknown) => {
    command.input['ReturnConsumedCapacity'] = 'TOTAL';
    spent.requests += 1;
    const answer: object = await client.send(command as never, options as never);
    const told = Reflect.get(answer, 'ConsumedCapacity') as Capacity | Capacity[] | undefined;
    const units = (Array.isArray(told) ? told : [told]).reduce((sum, one) => sum + (one?.CapacityUnits ?? 0), 0);
    const isRead = /^(?:Get|Query)/.test(command.constructor.name);
    if (isRead) spent.read += units;
    else spent.write += units;
    return answer;
  };
  return { client: { send: send as DynamoClient['send'] }, spent };
}

const PAYLOAD = { text: 'x'.repeat(188) };

describe.skipIf(local.kind === 'dynalite')('a queue on DynamoDB', () => {
  test('the parts of enqueueItems enqueue a job if and only if the transaction is carried out', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: {} } });
    const ran: unknown[] = [];
    await using worker = queue.work({ send: (unit) => void ran.push(unit.payload) }, { poll: '50ms' });
    await worker.started;
    const never: TransactWriteItem = {
      ConditionCheck: {
        TableName: TABLE,
        Key: { pk: { S: 'nothing' }, sk: { S: 'nothing' } },
        ConditionExpression: 'attribute_exists(pk)',
      },
    };
    const undone = await queue.enqueueItems('send', 'undone', { key: 'k' });
    const refused = client.send(new TransactWriteItemsCommand({ TransactItems: [...undone.items, never] }));
    await expect(refused).rejects.toThrow(/ConditionalCheckFailed/);
    for (const key of [undefined, 'k']) {
      const { items, id } = await queue.enqueueItems('send', `done ${key}`, { key });
      await client.send(new TransactWriteItemsCommand({ TransactItems: [...items] }));
      await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
    }
    expect(ran).toEqual(['done undefined', 'done k']);
  });

  test('a delayed job of enqueueItems is found though its transaction comes long after its number', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: {} } });
    await using worker = queue.work({ send: () => {} }, { poll: '50ms' });
    await worker.started;
    const { items, id } = await queue.enqueueItems('send', {}, { delay: '1ms' });
    // Its number is noticed, and what has it is not there yet.
    await queue.run('send', {});
    await client.send(new TransactWriteItemsCommand({ TransactItems: items as never }));
    await eventually(async () => expect((await queue.get(id)).status).toBe('complete'), 20_000);
  });

  // Invariant P4.
  test('the guard of a unit passes in a transaction, and fails once its worker was declared dead', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: {} } });
    const outcomes: string[] = [];
    let items: readonly unknown[] = [];
    const write = async (value: string): Promise<void> => {
      const put = { Put: { TableName: TABLE, Item: { pk: { S: 'guarded' }, sk: { S: value } } } };
      await client.send(new TransactWriteItemsCommand({ TransactItems: [...items, put] as never }));
    };
    const worker = queue.work({
      send: async (unit) => {
        items = unit.guardItems();
        await write('first').then(() => outcomes.push('written'));
      },
    });
    onTestFinished(() => worker.stop());
    const { id } = await queue.enqueue('send', {});
    await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
    expect(outcomes).toEqual(['written']);
    await worker.stop();
    await expect(write('second')).rejects.toThrow(/ConditionalCheckFailed/);
  });

  test('a job of 200 bytes costs at most 5 write units alone, 8 with a key, and 0.3 in batches', async () => {
    const { client: counted, spent } = counting();
    const own = createQueue(dynamodb(counted, { table: TABLE }), name(), { kinds: { send: {} } });
    let ran = 0;
    const worker = own.work({ send: () => void (ran += 1) }, { poll: '1h', lease: '10m', prefetch: 500 });
    await worker.started;
    onTestFinished(() => worker.stop());
    const cost = async (enqueue: () => Promise<unknown>, jobs: number): Promise<number> => {
      const [before, all] = [spent.write, ran + jobs];
      await enqueue();
      await eventually(() => expect(ran).toBe(all));
      await own.drain();
      return (spent.write - before) / jobs;
    };
    // A worker that looks for more between two writes of an enqueue claims twice.
    const least = async (enqueue: () => Promise<unknown>): Promise<number> => {
      const costs: number[] = [];
      for (const _ of [1, 2, 3]) costs.push(await cost(enqueue, 1));
      return Math.min(...costs);
    };
    const alone = await least(() => own.enqueue('send', PAYLOAD));
    const keyed = await least(() => own.enqueue('send', PAYLOAD, { key: 'k' }));
    const delayed = await least(() => own.enqueue('send', PAYLOAD, { runAt: new Date(Date.now() + 50) }));
    expect(alone).toBeLessThanOrEqual(5);
    expect(keyed).toBeLessThanOrEqual(8);
    expect(delayed).toBeLessThanOrEqual(13);
    const many = Array.from({ length: 512 }, () => ({ kind: 'send' as const, payload: PAYLOAD }));
    const batch = await cost(() => own.enqueueMany(many), 512);
    expect(batch).toBeLessThanOrEqual(0.3);
  });

  // Invariants Q1, Q2.
  test.for(LONG ? [1, 2, 3, 4, 5, 6] : [1])(
    'with faults of the service, each job ends once and a key keeps its order: %i',
    { timeout: 120_000 },
    async (seed) => {
      const faulty = faultyClient(client, seededFaults(seed));
      const own = createQueue(dynamodb(faulty, { table: TABLE }), name(), { kinds: { send: {} }, shards: 2 });
      const order = new Map<string | null, number[]>();
      const handler = (unit: { key: string | null; payload: unknown }): void =>
        void order.set(unit.key, [...(order.get(unit.key) ?? []), Number(unit.payload)]);
      const workers = [1, 2].map(() => own.work({ send: handler }, { poll: '50ms', lease: '5s' }));
      onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.stop({ timeout: '1s' })))));
      const ids: string[] = [];
      for (let n = 0; n < 12; n += 1) ids.push((await own.enqueue('send', n, { key: `k${n % 3}` })).id);
      ids.push(...(await own.enqueueMany(Array.from({ length: 70 }, (_, n) => ({ kind: 'send', payload: n })))));
      await eventually(async () => {
        for (const id of ids) expect((await own.get(id)).status).toBe('complete');
      });
      await eventually(() => own.drain({ timeout: '1s' }));
      // A worker may run a job again after a lost answer, never before an earlier one of its key.
      for (const key of ['k0', 'k1', 'k2']) {
        const firsts = [...new Set(order.get(key))];
        expect(firsts).toEqual(firsts.toSorted((a, b) => a - b));
        expect(firsts).toHaveLength(4);
      }
    },
  );

  test('shards change only while no job is outstanding', async () => {
    const of = name();
    const before = createQueue(engine, of, { kinds: { send: {} } });
    const { id } = await before.enqueue('send', {});
    await expect(createQueue(engine, of, { kinds: { send: {} }, shards: 2 }).register()).rejects.toThrow(Conflict);
    await before.cancel(id);
    await using worker = before.work({ send: () => {} });
    await worker.started;
    await before.drain();
    await createQueue(engine, of, { kinds: { send: {} }, shards: 2 }).register();
  });

  test('what DynamoDB cannot do is refused with the reason', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: {} } });
    expect(() => queue.work({ send: () => {} }, { hold: 'transaction' })).toThrow(NotSupported);
    expect(() => queue.work({ send: () => {} }, { warn: { ready: 1 } })).toThrow(NotSupported);
    await expect(queue.search()).rejects.toThrow(NotSupported);
    await expect(queue.enqueue('send', {}, { tx: {} } as never)).rejects.toThrow(InvalidInput);
    await expect(queue.enqueue('send', 'x'.repeat(400_000))).rejects.toThrow(InvalidInput);
    const timed = queue.enqueueItems('send', {}, { key: 'k', runAt: new Date(Date.now() + 60_000) });
    await expect(timed).rejects.toThrow(NotSupported);
    expect(() => createQueue(engine, name(), { kinds: { a: {}, b: { after: ['a'] } } })).toThrow(NotSupported);
    expect(() => createQueue(engine, name(), { kinds: { a: {} }, keyOnError: 'block' })).toThrow(NotSupported);
    expect(() => createQueue(engine, name(), { kinds: { a: {} }, concurrency: { perGroup: 2 } })).toThrow(NotSupported);
    const rate = { perGroup: { limit: 10, per: '1m' } } as const;
    expect(() => createQueue(engine, name(), { kinds: { a: {} }, rate })).toThrow(NotSupported);
    await expect(queue.enqueue('send', {}, { group: 'acme' })).rejects.toThrow(InvalidInput);
  });

  test('run and waitFor give the result of a job, or say how it has ended', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: { attempts: 1 } } });
    const { id } = await queue.enqueue('send', 'first');
    await expect(queue.waitFor(id, { timeout: '50ms' })).rejects.toThrow(TimedOut);
    const worker = queue.work({
      send: ({ payload }) =>
        payload === 'fails' ? Promise.reject(new Error('no such mailbox')) : `sent ${String(payload)}`,
    });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    expect(await queue.waitFor(id)).toBe('sent first');
    expect(await queue.run('send', 'second', { key: 'k' })).toBe('sent second');
    await expect(queue.run('send', 'fails')).rejects.toThrow(/no such mailbox/);
    await queue.pause();
    const { id: never } = await queue.enqueue('send', 'never');
    await queue.cancel(never, { reason: 'sent twice' });
    await expect(queue.waitFor(never)).rejects.toThrow(/sent twice/);
  });

  test('stats count what has ended, with a key or without, and what was retried by hand no more', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: { attempts: 1 } }, shards: 2 });
    const jobs = ['a', 'b', 'fails', 'fails'].map((payload, n) => ({
      kind: 'send' as const,
      payload,
      ...(n % 2 === 0 && { key: `k${n}` }),
    }));
    const ids = await queue.enqueueMany(jobs);
    const never = await queue.enqueue('send', 'never', { key: 'never' });
    await queue.cancel(never.id);
    const worker = queue.work({
      send: ({ payload }) => (payload === 'fails' ? Promise.reject(new Error('no')) : undefined),
    });
    await worker.started;
    await queue.drain();
    await eventually(async () =>
      expect(await queue.stats()).toMatchObject({ error: 2, cancelled: 1, ready: 0, inProgress: 0 }),
    );
    expect((await queue.stats()).completePerMinute).toBeGreaterThan(0);
    await worker.stop();
    await queue.retry(ids[2] ?? '');
    await queue.retry(never.id);
    expect(await queue.stats()).toMatchObject({ error: 1, cancelled: 0 });
  });

  test('explain says why a job does not run', async () => {
    const queue = createQueue(engine, name(), { kinds: { send: {} } });
    const { id } = await queue.enqueue('send', {});
    expect((await queue.explain(id)).reasons.map(({ code }) => code)).toEqual(['no_worker']);
    await queue.pause();
    expect((await queue.explain(id)).reasons[0]?.code).toBe('queue_paused');
    const later = await queue.enqueue('send', {}, { runAt: new Date(Date.now() + 60_000) });
    expect((await queue.explain(later.id)).reasons[0]?.code).toBe('scheduled');
    expect(await queue.stats()).toMatchObject({ ready: 1, delayed: 1, paused: true, workers: 0 });
    const ofKey = await queue.enqueue('send', {}, { key: 'k', delay: '1h' });
    expect(await queue.stats()).toMatchObject({ ready: 1, delayed: 2 });
    await queue.cancel(ofKey.id);
    expect(await queue.stats()).toMatchObject({ ready: 1, delayed: 1, cancelled: 1 });
    await queue.retry(ofKey.id);
    expect(await queue.stats()).toMatchObject({ ready: 1, delayed: 2, cancelled: 0 });
  });
});
