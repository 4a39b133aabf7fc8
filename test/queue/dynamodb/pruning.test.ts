import { GetItemCommand } from '@aws-sdk/client-dynamodb';
import { beforeAll, describe, expect, test } from 'vitest';
import { NotFound } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { keyOf, shardKey } from '../../../src/queue/dynamodb/rows.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually } from '../../support/eventually.ts';

const local = await sharedDynamo();
const TABLE = 'queue-pruning';
let engine: DynamoEngine;

beforeAll(async () => {
  engine = dynamodb(dynamoClient(local.endpoint), { table: TABLE });
  await engine.migrate();
});

describe.skipIf(local.kind === 'dynalite')('history on DynamoDB', () => {
  test('jobs that have ended are removed when their history is over, and no others', async () => {
    const kinds = { send: { attempts: 1 }, once: { unique: 'key' } } as const;
    const queue = createQueue(engine, 'pruned', { kinds, history: '1s', shards: 2 });
    const ran: unknown[] = [];
    const handler = ({ payload }: { payload: unknown }): void => {
      if (payload === 'fails') throw new Error('no');
      ran.push(payload);
    };
    const waits = await queue.enqueue('send', 'later', { runAt: new Date(Date.now() + 3_600_000) });
    const waitsInKey = await queue.enqueue('send', 'later', { key: 'k', runAt: new Date(Date.now() + 3_600_000) });
    const gone = [
      ...(await queue.enqueueMany(Array.from({ length: 70 }, (_, n) => ({ kind: 'send' as const, payload: n })))),
      ...(await queue.enqueueMany(['k', 'l', 'k'].map((key) => ({ kind: 'send' as const, payload: key, key })))),
      (await queue.enqueue('send', 'fails')).id,
      (await queue.enqueue('send', 'soon', { key: 'k', delay: '10ms' })).id,
    ];
    const unique = await queue.enqueue('once', 'once', { key: 'u' });
    const worker = queue.work({ send: handler, once: handler }, { poll: '200ms' });
    await worker.started;
    await queue.drain({ timeout: '50s' });
    await eventually(async () => {
      for (const id of gone) await expect(queue.get(id)).rejects.toThrow(NotFound);
    });
    expect((await queue.get(unique.id)).status).toBe('complete');
    expect(await queue.enqueue('once', 'again', { key: 'u' })).toMatchObject({ id: unique.id, duplicate: true });
    expect((await queue.get(waits.id)).status).toBe('new');
    expect((await queue.get(waitsInKey.id)).status).toBe('new');
    // What is enqueued after that runs, in order.
    ran.length = 0;
    const jobs = Array.from({ length: 5 }, (_, n) => ({ kind: 'send' as const, payload: n, key: 'k' }));
    await queue.enqueueMany(jobs);
    await queue.drain({ timeout: '50s' });
    expect(ran).toEqual([0, 1, 2, 3, 4]);
    await worker.stop();
  });

  // Invariants Q2, Q4.
  test('the head of a key goes with the last job of the key, and the tokens of the key go on rising', async () => {
    const queue = createQueue(engine, 'forgotten', { kinds: { send: { attempts: 1 } }, history: '1s' });
    const tokens: bigint[] = [];
    const isThere: boolean[] = [];
    const head = { pk: { S: keyOf(shardKey('forgotten', 0), 'k') }, sk: { S: 'head' } };
    const rowOf = async (): Promise<unknown> =>
      (
        await dynamoClient(local.endpoint).send(
          new GetItemCommand({ TableName: TABLE, Key: head, ConsistentRead: true }),
        )
      ).Item;
    const { id } = await queue.enqueue('send', {}, { key: 'k' });
    expect(await queue.cancel(id)).toBe('cancelled');
    const send = async ({ token }: { readonly token: bigint }): Promise<void> => {
      tokens.push(token);
      isThere.push((await rowOf()) !== undefined);
    };
    const worker = queue.work({ send }, { poll: '200ms' });
    await worker.started;
    // No job of the key was ever taken.
    await eventually(async () => expect(await rowOf()).toBeUndefined());
    for (let round = 1; round <= 2; round += 1) {
      for (let nth = 0; nth < 3; nth += 1) await queue.enqueue('send', {}, { key: 'k' });
      await queue.drain({ timeout: '50s' });
      await eventually(async () => expect(await rowOf()).toBeUndefined());
      expect(tokens).toHaveLength(3 * round);
    }
    expect(isThere).toEqual(tokens.map(() => true));
    expect(tokens).toEqual(tokens.toSorted((a, b) => Number(a - b)));
    expect(tokens[3]).toBeGreaterThan(tokens[2] ?? 0n);
    await worker.stop();
  });
});
