import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type DynamoClient, type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { define } from '../../../src/queue/declare/define.ts';
import { readRecords, writeRecords } from '../../../src/queue/dynamodb/records.ts';
import { DynamoQueueStore } from '../../../src/queue/dynamodb/store.ts';
import { Pruning } from '../../../src/queue/dynamodb/work/pruning.ts';
import { createQueue, type Unit } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually } from '../../support/eventually.ts';
import { type Fault, faultyClient, partitionsOf, type Request } from '../../support/failing/dynamodb-faults.ts';
import { gate } from '../contract/fixture.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'queue-by-hand';
const KINDS = { send: { attempts: 1 } } as const;
let engine: DynamoEngine;
let made = 0;
const fresh = (): string => `by hand ${(made += 1)}`;

beforeAll(async () => {
  engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
});

/** Removes what has ended before now, by requests that meet these faults. */
async function prune(queue: string, choose: (request: Request) => Fault): Promise<void> {
  const definition = define(queue, { kinds: KINDS });
  const store = new DynamoQueueStore(dynamodb(faultyClient(client, choose), { table: TABLE }), definition);
  const ids = await store.register(definition);
  await new Pruning(store.rows, { ...definition, historyMs: 1 }, () => Promise.resolve(ids)).run();
}

describe.skipIf(local.kind === 'dynalite')('jobs that are changed by hand on DynamoDB', () => {
  // Invariant Q1.
  test.for([undefined, 'k'])('a job that is retried while its row is being removed runs, with key %s', async (key) => {
    const queue = createQueue(engine, fresh(), { kinds: KINDS });
    let ran = 0;
    const worker = queue.work({
      send: () => {
        ran += 1;
        if (ran === 1) throw new Error('no such mailbox');
      },
    });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    const { id } = await queue.enqueue('send', {}, { key });
    await eventually(async () => expect((await queue.get(id)).status).toBe('error'));
    await worker.stop();
    const [removing, retried] = [gate(), gate()];
    const pruned = prune(queue.name, ({ operation }) => {
      if (operation !== 'DeleteItem') return 'pass';
      removing.open();
      return { after: retried.opened };
    });
    await removing.opened;
    expect(await queue.retry(id)).toBe('new');
    retried.open();
    await pruned;
    const again = queue.work({ send: () => void (ran += 1) });
    await again.started;
    await queue.drain();
    await again.stop();
    expect(ran).toBe(2);
    expect((await queue.get(id)).status).toBe('complete');
  });

  // Invariant Q2.
  test('what a settlement writes again, or too late, is no second end of its job', async () => {
    const definition = define(fresh(), { kinds: KINDS });
    const queue = createQueue(engine, definition.name, { kinds: KINDS });
    const store = new DynamoQueueStore(engine, definition);
    const worker = queue.work({ send: () => {} });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    // So that the claim of the job is not the first of its shard.
    await queue.enqueue('send', {});
    await queue.drain();
    const id = Number((await queue.enqueue('send', {})).id);
    await queue.drain();
    const [record] = await readRecords(store.rows, id);
    if (record === undefined) throw new Error('a complete job has a record');
    const { token, processId, claimedAt } = record;
    const write = (of: number, part: string): Promise<void> =>
      writeRecords(store.rows, [record], { shard: 0, token: of, part, processId, claimedAt, historyMs: 1000 });
    await write(token, 'again');
    await write(token - 1, 'by a worker that was declared dead');
    const history = await queue.history(String(id));
    expect(history.map(({ reason }) => reason)).toEqual(['enqueue', 'claim', 'worker lost', 'claim', 'complete']);
  });

  test('a job that comes late to its key, and is cancelled while a worker takes it, does not run', async () => {
    const name = fresh();
    const through = (choose: (request: Request) => Fault) =>
      createQueue(dynamodb(faultyClient(client, choose), { table: TABLE }), name, { kinds: KINDS });
    const queue = createQueue(engine, name, { kinds: KINDS });
    const [numbered, written, taking, taken] = [gate(), gate(), gate(), gate()];
    // Its number is taken, and its rows are on their way.
    const late = through(({ sk }) => {
      if (!sk.startsWith('j#')) return 'pass';
      numbered.open();
      return { after: written.opened };
    }).enqueue('send', 'late', { key: 'k' });
    await numbered.opened;
    const { id: next } = await queue.enqueue('send', 'next', { key: 'k' });
    const ran: string[] = [];
    const handlers = { send: ({ payload }: Unit): void => void ran.push(String(payload)) };
    const first = queue.work(handlers);
    await eventually(async () => expect((await queue.get(next)).status).toBe('complete'));
    await first.stop();
    written.open();
    const { id } = await late;
    let isOver = false;
    const second = through((request) => {
      const isHeadOfKey = request.sk === 'head' && partitionsOf(request).some((pk) => pk.endsWith(':k'));
      if (isOver || request.operation !== 'UpdateItem' || !isHeadOfKey) return 'pass';
      taking.open();
      return { after: taken.opened };
    }).work(handlers, { poll: '50ms' });
    onTestFinished(() => second.stop({ timeout: '1s' }));
    await taking.opened;
    expect(await queue.cancel(id)).toBe('cancelled');
    isOver = true;
    taken.open();
    await queue.enqueue('send', 'last', { key: 'k' });
    await queue.drain();
    expect(ran).toEqual(['next', 'last']);
    expect((await queue.get(id)).status).toBe('cancelled');
  });

  // Invariant Q1.
  test('a delayed job that becomes due while old rows are looked for is kept', async () => {
    const queue = createQueue(engine, fresh(), { kinds: KINDS });
    const [running, goOn] = [gate(), gate()];
    const worker = queue.work({
      send: async ({ payload }) => {
        if (payload !== 'later') return;
        running.open();
        await goOn.opened;
      },
    });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await worker.started;
    const { id } = await queue.enqueue('send', 'later', { delay: '4s' });
    // The line has passed its number.
    const { id: next } = await queue.enqueue('send', 'now');
    await eventually(async () => expect((await queue.get(next)).status).toBe('complete'));
    let looked = 0;
    await prune(queue.name, ({ operation, sk }) => {
      if (operation !== 'GetItem' || !sk.startsWith('d#')) return 'pass';
      looked += 1;
      return { after: running.opened };
    });
    expect(looked).toBeGreaterThan(0);
    expect((await queue.get(id)).status).toBe('in-progress');
    goOn.open();
    await queue.drain();
    expect((await queue.get(id)).status).toBe('complete');
  });

  // Invariant Q1.
  test('a delayed job that becomes due while it is looked for is not taken for done', async () => {
    const name = fresh();
    const [running, goOn] = [gate(), gate()];
    const queue = createQueue(engine, name, { kinds: KINDS });
    const handler = async (): Promise<void> => {
      running.open();
      await goOn.opened;
    };
    const worker = queue.work({ send: handler }, { poll: '50ms' });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    const { id } = await queue.enqueue('send', {}, { delay: '500ms' });
    let looks = 0;
    const slow = faultyClient(client, ({ operation, input }) => {
      if (operation !== 'Query' || !JSON.stringify(input).includes('"d#')) return 'pass';
      looks += 1;
      return { after: running.opened };
    });
    const watching = createQueue(dynamodb(slow, { table: TABLE }), name, { kinds: KINDS });
    let isDrained = false;
    const drained = watching.drain({ delayed: true }).then(() => {
      isDrained = true;
    });
    await running.opened;
    await eventually(() => expect(isDrained || looks > 1).toBe(true));
    expect(isDrained).toBe(false);
    goOn.open();
    await drained;
    expect((await queue.get(id)).status).toBe('complete');
  });

  // Invariant Q2.
  test('a delayed job that is retried by a doubled request as it becomes due runs once', async () => {
    const name = fresh();
    const watching = createQueue(engine, name, { kinds: KINDS });
    const started = gate();
    let ran = 0;
    const queue = createQueue(dynamodb(twice(client, 'd#', started.opened), { table: TABLE }), name, { kinds: KINDS });
    const { id } = await watching.enqueue('send', {}, { delay: '2s' });
    await watching.cancel(id);
    const worker = watching.work(
      {
        send: () => {
          ran += 1;
          started.open();
        },
      },
      { poll: '50ms' },
    );
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await queue.retry(id);
    await watching.drain({ delayed: true });
    expect(ran).toBe(1);
    expect((await watching.get(id)).status).toBe('complete');
  });

  // Invariant Q5.
  test('a job that ends while it is being cancelled is told as it ended', async () => {
    const name = fresh();
    const [read, recorded, cancelled] = [gate(), gate(), gate()];
    const byHand = ({ operation, input }: Request): Fault => {
      if (operation !== 'Query' || !JSON.stringify(input).includes('"o#')) return 'pass';
      read.open();
      return { after: recorded.opened };
    };
    let isRecorded = false;
    const working = ({ operation, sk }: Request): Fault => {
      if (operation !== 'UpdateItem') return 'pass';
      if (isRecorded && sk === 'head') {
        recorded.open();
        return { after: cancelled.opened };
      }
      isRecorded ||= sk.startsWith('o#');
      return 'pass';
    };
    const on = (choose: (request: Request) => Fault) =>
      createQueue(dynamodb(faultyClient(client, choose), { table: TABLE }), name, { kinds: KINDS });
    const { id } = await on(() => 'pass').enqueue('send', {});
    const cancelling = on(byHand).cancel(id);
    await read.opened;
    const worker = on(working).work({ send: () => {} });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    expect(await cancelling).toBe('in-progress');
    cancelled.open();
    await eventually(async () => expect((await on(() => 'pass').get(id)).status).toBe('complete'));
  });

  // Invariant Q6.
  test('a job that comes after one that is retried by hand waits for its next end', async () => {
    const queue = createQueue(engine, fresh(), { kinds: KINDS });
    const [began, ends] = [gate(), gate()];
    let tries = 0;
    const worker = queue.work({
      send: async ({ payload }) => {
        if (payload !== 'parent') return;
        tries += 1;
        if (tries === 1) throw new Error('no such mailbox');
        began.open();
        await ends.opened;
      },
    });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    const parent = await queue.enqueue('send', 'parent');
    const failed = await queue.enqueue('send', 'child', { after: [parent.id] });
    await eventually(async () => expect((await queue.get(failed.id)).status).toBe('error'));
    await queue.retry(parent.id);
    await began.opened;
    const other = await queue.enqueue('send', 'other');
    const child = await queue.enqueue('send', 'child', { after: [parent.id] });
    // Its wait is looked at after that of the child.
    const late = await queue.enqueue('send', 'late', { after: [other.id] });
    await eventually(async () => expect((await queue.get(late.id)).status).toBe('complete'));
    expect((await queue.get(child.id)).status).toBe('new');
    ends.open();
    await eventually(async () => expect((await queue.get(child.id)).status).toBe('complete'));
  });

  // Invariant Q6.
  test('a job of a key that is brought back while its wait is taken for over goes on waiting, and runs', async () => {
    const name = fresh();
    const [leaving, retried] = [gate(), gate()];
    const working = ({ operation, input }: Request): Fault => {
      if (operation !== 'TransactWriteItems' || !JSON.stringify(input).includes('"d#9')) return 'pass';
      leaving.open();
      return { after: retried.opened };
    };
    const queue = createQueue(engine, name, { kinds: KINDS });
    const parent = await queue.enqueue('send', 'parent');
    const { id } = await queue.enqueue('send', 'child', { after: [parent.id], key: 'k' });
    expect(await queue.cancel(id)).toBe('cancelled');
    const on = createQueue(dynamodb(faultyClient(client, working), { table: TABLE }), name, { kinds: KINDS });
    const worker = on.work({ send: () => {} });
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    await leaving.opened;
    expect(await queue.retry(id)).toBe('new');
    retried.open();
    await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
  });
});

/** Sends each write of such a row again when that is done, as a request that was on its way for long. */
function twice(real: DynamoClient, sk: string, until: Promise<void>): DynamoClient {
  const send = async (command: { readonly input: object; readonly constructor: { readonly name: string } }) => {
    const pass = (): Promise<unknown> => real.send(command as never);
    const isRead = /^(?:Get|Query)/.test(command.constructor.name);
    if (isRead || !JSON.stringify(command.input).includes(`"${sk}`)) return pass();
    await pass();
    await until;
    return pass().catch((error: unknown) => {
      Object.assign(Object(error), { $metadata: { attempts: 2 } });
      throw error;
    });
  };
  return { send: send as DynamoClient['send'] };
}
