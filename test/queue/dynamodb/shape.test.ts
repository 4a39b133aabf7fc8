import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { NotSupported } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { queueKey } from '../../../src/queue/dynamodb/rows.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually, until } from '../../support/eventually.ts';
import { faultyClient, partitionsOf, type Request } from '../../support/failing/dynamodb-faults.ts';
import { AT_ONCE, gate } from '../contract/fixture.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'queue-shape';
let made = 0;
const fresh = (): string => `shape ${(made += 1)}`;

beforeAll(() => dynamodb(client, { table: TABLE }).migrate());

/** An engine, and all that it sends. */
function watched(): { engine: DynamoEngine; sent: Request[] } {
  const sent: Request[] = [];
  const noting = faultyClient(client, (request) => {
    sent.push(request);
    return 'pass';
  });
  return { engine: dynamodb(noting, { table: TABLE }), sent };
}

/** The shards of a queue that a request names. */
function shardsOf(queue: string, request: Request): Set<string> {
  const own = `${queueKey(queue)}:`;
  const shards = partitionsOf(request).filter((pk) => pk.startsWith(own) && /^\d/.test(pk.slice(own.length)));
  return new Set(shards.map((pk) => pk.slice(own.length).split(':')[0] ?? ''));
}

describe.skipIf(local.kind === 'dynalite')('what a queue on DynamoDB sends', () => {
  test('every enqueue, claim, settlement and change by hand names one shard, and nothing reads a table or an index', async () => {
    const { engine, sent } = watched();
    const kinds = { send: {}, one: { unique: 'key' }, sum: { coalesce: 'all' } } as const;
    const queue = createQueue(engine, fresh(), { kinds, shards: 4, retry: AT_ONCE });
    const keys = Array.from({ length: 8 }, (_, n) => `k${n}`);
    for (const key of keys.slice(0, 4)) {
      await queue.enqueue('send', 'fails once', { key });
      await queue.enqueue('one', 1, { key });
      await queue.enqueue('sum', 2, { key, delay: '50ms' });
    }
    await queue.enqueueMany(
      keys.flatMap((key) => [{ kind: 'send', payload: 3, key } as const, { kind: 'send', payload: 4 }]),
    );
    const off = await queue.enqueue('send', 5, { delay: '1h' });
    await queue.update(off.id, { payload: 6 });
    await queue.cancel(off.id);
    const handler = ({ payload, attempt }: { payload: unknown; attempt: number }): void => {
      if (payload === 'fails once' && attempt === 1) throw new Error('once');
    };
    const worker = queue.work({ send: handler, one: handler, sum: handler }, { poll: '100ms' });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await queue.drain({ delayed: true, timeout: '100s' });
    const touched = sent.map((request) => ({
      operation: request.operation,
      shards: [...shardsOf(queue.name, request)],
    }));
    expect(touched.filter(({ shards }) => shards.length > 1)).toEqual([]);
    expect(new Set(touched.flatMap(({ shards }) => shards)).size).toBe(4);
    expect(touched.filter(({ operation }) => operation === 'Scan')).toEqual([]);
    expect(sent.filter(({ input }) => 'IndexName' in input)).toEqual([]);
  });

  test('what has no room in a row is split, and what has none in a transaction is refused', async () => {
    const { engine, sent } = watched();
    const queue = createQueue(engine, fresh(), { kinds: { send: {} } });
    const ids = await queue.enqueueMany(
      Array.from({ length: 40 }, (_, n) => ({ kind: 'send', payload: `${n}`.padEnd(30_000) }) as const),
    );
    const large = sent.filter(({ input }) => JSON.stringify(input).length > 200_000);
    expect(large.length).toBeGreaterThanOrEqual(3);
    for (const { input } of large) expect(JSON.stringify(input).length).toBeLessThan(400_000);
    const ran = new Set<string>();
    const worker = queue.work({ send: ({ job, payload }) => void ran.add(`${job.id} ${String(payload).trim()}`) });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await worker.started;
    await queue.drain();
    expect(ran).toEqual(new Set(ids.map((id, n) => `${id} ${n}`)));
    const nodes = Array.from({ length: 60 }, (_, n) => ({
      name: `n${n}`,
      kind: 'send' as const,
      payload: n,
      after: n === 0 ? [] : [`n${n - 1}`],
    }));
    await expect(queue.flow(nodes)).rejects.toThrow(NotSupported);
    expect(await queue.stats()).toMatchObject({ new: 0 });
    for (const { input } of sent) expect(Object(input)['TransactItems']?.length ?? 0).toBeLessThanOrEqual(100);
  });

  test('an idle worker asks once for each shard and poll', async () => {
    const { engine, sent } = watched();
    const queue = createQueue(engine, fresh(), { kinds: { send: {} }, shards: 2 });
    const worker = queue.work({ send: () => {} }, { poll: '100ms', lease: '10m' });
    onTestFinished(() => worker.stop());
    await worker.started;
    const ofShards = (): Request[] => sent.filter((request) => shardsOf(queue.name, request).size > 0);
    await until('it has polled', () => ofShards().length >= 4);
    sent.length = 0;
    const begun = performance.now();
    await until('it has polled more often', () => ofShards().length >= 20);
    const tookMs = performance.now() - begun;
    const polls = Math.ceil(tookMs / 100);
    expect(ofShards().length).toBeLessThanOrEqual(2 * (polls + 1));
    // Other workers and schedules are looked for every few seconds, whatever the poll is.
    expect(sent.length - ofShards().length).toBeLessThanOrEqual(6 + tookMs / 1000);
  });

  test('a job that takes longer than the lease stays with its worker', async () => {
    const { engine, sent } = watched();
    const name = fresh();
    const own = createQueue(engine, name, { kinds: { send: {} } });
    const other = createQueue(watched().engine, name, { kinds: { send: {} } });
    const goOn = gate();
    let ran = 0;
    const handler = async (): Promise<void> => {
      ran += 1;
      await goOn.opened;
    };
    const workers = [own, other].map((queue) => queue.work({ send: handler }, { lease: '3s', poll: '100ms' }));
    onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.stop({ timeout: '1s' })))));
    const job = await own.enqueue('send', {});
    await until('it runs', () => ran === 1);
    const begun = sent.length;
    const beats = (): number =>
      sent.slice(begun).filter(({ operation, sk }) => operation === 'UpdateItem' && sk.startsWith('w#')).length;
    await until('a lease is over, and more', () => beats() >= 5);
    goOn.open();
    await eventually(async () => expect((await own.get(job.id)).status).toBe('complete'));
    expect(ran).toBe(1);
  });
});
