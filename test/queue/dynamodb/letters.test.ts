import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { InvalidInput } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { createQueue, type DynamoQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually } from '../../support/eventually.ts';
import { type Fault, faultyClient, type Request } from '../../support/failing/dynamodb-faults.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'queue-letters';
const KINDS = { send: { attempts: 2, backoff: { kind: 'fixed', min: 1 }, onError: 'unsent' }, unsent: {} } as const;
let engine: DynamoEngine;
let made = 0;
const fresh = (): string => `letters ${(made += 1)}`;

beforeAll(async () => {
  engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
});

/** A worker that fails each job and keeps its letters; its own requests may meet faults. */
async function failing(
  name: string,
  on: DynamoEngine = engine,
): Promise<{ queue: DynamoQueue<typeof KINDS>; letters: unknown[] }> {
  const letters: unknown[] = [];
  const queue = createQueue(on, name, { kinds: KINDS });
  const worker = queue.work(
    {
      send: () => {
        throw new Error('no such mailbox');
      },
      unsent: ({ payload, key }) => void letters.push({ key, ...Object(payload) }),
    },
    { poll: '50ms', lease: '15s' },
  );
  worker.events.on('error', () => {});
  onTestFinished(() => worker.stop({ timeout: '1s' }));
  await worker.started;
  return { queue: createQueue(engine, name, { kinds: KINDS }), letters };
}

describe.skipIf(local.kind === 'dynalite')('dead letters on DynamoDB', () => {
  // Invariant J4.
  test('a job that ends in error leaves one letter, with its key, payload and error', async () => {
    const { queue, letters } = await failing(fresh());
    const plain = await queue.enqueue('send', { to: 'ada' });
    const keyed = await queue.enqueue('send', { to: 'bob' }, { key: 'bob' });
    const large = await queue.enqueue('send', { text: 'x'.repeat(70_000) });
    await eventually(() => expect(letters).toHaveLength(3));
    await queue.drain();
    const shared = { queue: queue.name, kind: 'send', attempts: 2, error: expect.stringContaining('no such mailbox') };
    expect(letters).toContainEqual({
      ...shared,
      job: plain.id,
      key: null,
      payload: { to: 'ada' },
      isPayloadOmitted: false,
    });
    expect(letters).toContainEqual({
      ...shared,
      job: keyed.id,
      key: 'bob',
      payload: { to: 'bob' },
      isPayloadOmitted: false,
    });
    expect(letters).toContainEqual({ ...shared, job: large.id, key: null, payload: null, isPayloadOmitted: true });
    expect((await queue.get(keyed.id)).status).toBe('error');
  });

  test.each(['duplicate', 'drop answer', 'late server error', 'throttle'] as const)(
    'one letter for each job, when every third write meets the fault: %s',
    async (fault) => {
      let requests = 0;
      const choose = ({ operation }: Request): Fault => {
        if (operation === 'GetItem' || operation === 'Query') return 'pass';
        requests += 1;
        return requests % 3 === 0 ? fault : 'pass';
      };
      const faulty = dynamodb(faultyClient(client, choose), { table: TABLE });
      const { queue, letters } = await failing(fresh(), faulty);
      const jobs = Array.from({ length: 6 }, (_, nth) => ({
        kind: 'send' as const,
        payload: nth,
        ...(nth % 2 === 0 && { key: `k${nth % 4}` }),
      }));
      const ids = await queue.enqueueMany(jobs);
      await eventually(() => expect(letters.length).toBeGreaterThanOrEqual(6));
      await queue.drain();
      expect(letters).toHaveLength(6);
      expect(new Set(letters.map((letter) => Object(letter).job))).toEqual(new Set(ids));
    },
  );

  test('redrive puts the job back to work, and ends its letter', async () => {
    const name = fresh();
    const queue = createQueue(engine, name, { kinds: KINDS });
    const { id } = await queue.enqueue('send', { to: 'ada' });
    const send = async ({ attempt }: { readonly attempt: number }): Promise<void> => {
      // Before its letter is written, which this worker would take.
      if (attempt === 2) await queue.pause();
      throw new Error('no');
    };
    const worker = queue.work({ send, unsent: () => {} });
    await worker.started;
    await eventually(async () => expect((await queue.get(id)).status).toBe('error'));
    await worker.stop();
    // The letter is the next job of the line, in a piece of its own.
    const letter = String(Number(id) + 64);
    expect(await queue.get(letter)).toMatchObject({ kind: 'unsent', payload: { job: id } });
    await expect(queue.redrive(id)).rejects.toThrow(InvalidInput);
    expect(await queue.redrive(letter)).toEqual({ id, status: 'new' });
    expect(await queue.get(letter)).toMatchObject({ status: 'cancelled', error: 'redriven' });
    expect((await queue.get(id)).status).toBe('new');
  });
});
