import { UpdateItemCommand } from '@aws-sdk/client-dynamodb';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type DynamoClient, type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { writeSpans } from '../../../src/queue/dynamodb/heads/spans.ts';
import { shardKey } from '../../../src/queue/dynamodb/rows.ts';
import { createQueue, type DynamoQueue, type Unit } from '../../../src/queue/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { eventually, until } from '../../support/eventually.ts';
import { type Fault, faultyClient, type Request } from '../../support/failing/dynamodb-faults.ts';
import { type Child, spawnChild } from '../../support/process.ts';
import { gate } from '../contract/fixture.ts';
import { KINDS, readOrders } from './orders.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'queue-faults';
let engine: DynamoEngine;
let made = 0;
const fresh = (): string => `faulty ${(made += 1)}`;

beforeAll(async () => {
  engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
});

type Queue = DynamoQueue<typeof KINDS>;

const queueOn = (name: string, on: DynamoEngine = engine): Queue => createQueue(on, name, { kinds: KINDS });

/** A worker of this process, and the names of the jobs that it has run. */
async function workHere(queue: Queue): Promise<string[]> {
  const ran: string[] = [];
  const handler = (unit: Unit): void => void ran.push(readOrders(unit.payload).name);
  const worker = queue.work({ job: handler }, { lease: '5s', poll: '100ms' });
  onTestFinished(() => worker.stop({ timeout: '1s' }));
  await worker.started;
  return ran;
}

type Message = Record<string, unknown>;

/** A worker in a process of its own, and all that it tells. */
async function workThere(queue: string): Promise<{ readonly child: Child; readonly told: Message[] }> {
  const env = { ENDPOINT: local.endpoint, TABLE, QUEUE: queue };
  const child = spawnChild('queue/dynamodb/worker.child.ts', [], env);
  await child.message();
  const told: Message[] = [];
  const read = async (): Promise<void> => {
    for (;;) told.push(await child.message<Message>());
  };
  // It ends with the child.
  void read().catch(() => {});
  return { child, told };
}

const hasRun = (told: readonly Message[], name: string): boolean => told.some(({ run }) => run === name);

describe.skipIf(local.kind === 'dynalite')('worker processes that die or pause', () => {
  // Invariants Q1, Q2.
  test('the jobs of a killed worker run elsewhere, and a key keeps its order', async () => {
    const name = fresh();
    const queue = queueOn(name);
    const { child, told } = await workThere(name);
    const ids = [
      (await queue.enqueue('job', { name: 'a', ms: 60_000 }, { key: 'k' })).id,
      (await queue.enqueue('job', { name: 'b', ms: 60_000 }, { key: 'k' })).id,
      (await queue.enqueue('job', { name: 'c', ms: 60_000 })).id,
    ];
    await until('both run', () => hasRun(told, 'a') && hasRun(told, 'c'));
    await child.kill();
    const ran = await workHere(queue);
    await eventually(async () => {
      for (const id of ids) expect((await queue.get(id)).status).toBe('complete');
    });
    expect(ran.toSorted()).toEqual(['a', 'b', 'c']);
    expect(ran.indexOf('a')).toBeLessThan(ran.indexOf('b'));
    expect(hasRun(told, 'b')).toBe(false);
    // A machine on which this worker stands still for a lease costs another one.
    const [first = 0, behind, other = 0] = await Promise.all(ids.map(async (id) => (await queue.get(id)).attempt));
    expect(behind).toBe(1);
    expect(Math.min(first, other)).toBeGreaterThanOrEqual(2);
  });

  // Invariants Q2, P4.
  test('a worker that was stopped past its lease writes nothing when it goes on, and works again', async () => {
    const name = fresh();
    const queue = queueOn(name);
    const { child, told } = await workThere(name);
    const { id } = await queue.enqueue('job', { name: 'slow', ms: 5000, guards: true });
    await until('it runs', () => hasRun(told, 'slow'));
    child.pause();
    const ran = await workHere(queue);
    await eventually(async () => expect((await queue.get(id)).status).toBe('complete'));
    expect(ran).toEqual(['slow']);
    child.resume();
    await until('its guard was refused', () => told.some(({ refused }) => refused === 'slow'));
    expect(told.find(({ refused }) => refused === 'slow')).toMatchObject({ error: 'TransactionCanceledException' });
    const history = await queue.history(id);
    expect(history.filter(({ to }) => to === 'complete')).toHaveLength(1);
    // One job at a time: one of the two workers takes each, and in the end the stopped one takes some.
    await until('it works again', async () => {
      await queue.enqueue('job', { name: 'next' });
      return hasRun(told, 'next');
    });
  });
});

const FAULTS: readonly [string, (index: number) => Fault][] = [
  ['each request is carried out twice', () => 'duplicate'],
  ['every third answer is lost', (index) => (index % 3 === 0 ? 'drop answer' : 'pass')],
  ['every third request is throttled', (index) => (index % 3 === 0 ? 'throttle' : 'pass')],
  ['every third request fails inside the service, half of them after it was carried out', serverErrors],
];

function serverErrors(index: number): Fault {
  if (index % 3 !== 0) return 'pass';
  return index % 2 === 0 ? 'server error' : 'late server error';
}

function failing(choose: (index: number) => Fault): DynamoClient {
  let requests = 0;
  return faultyClient(client, () => choose((requests += 1)));
}

describe.skipIf(local.kind === 'dynalite')('requests', () => {
  test('a batch is done although more batches than one check reads stay open before it', async () => {
    const queue = queueOn(fresh());
    await queue.register();
    for (let made = 0; made < 110; made += 10) await Promise.all(Array.from({ length: 10 }, () => queue.batch({})));
    const batch = await queue.batch({ onDone: { kind: 'job', payload: { name: 'done' } } });
    await batch.enqueueMany([{ kind: 'job', payload: { name: 'member' } }]);
    await batch.seal();
    const ran = await workHere(queue);
    await eventually(() => expect(ran).toEqual(['member', 'done']));
  });

  // Invariants Q1, Q2.
  test.for(FAULTS)('when %s, each job is complete in the end, and a key keeps its order', async ([, choose]) => {
    const name = fresh();
    const [queue, watching] = [queueOn(name, dynamodb(failing(choose), { table: TABLE })), queueOn(name)];
    const ids: string[] = [];
    for (const of of ['1', '2', '3']) ids.push((await queue.enqueue('job', { name: of }, { key: 'k' })).id);
    ids.push((await queue.enqueue('job', { name: 'later' }, { runAt: new Date(Date.now() + 100) })).id);
    ids.push(...(await queue.enqueueMany(Array.from({ length: 70 }, () => ({ kind: 'job', payload: { name: 'm' } })))));
    const cancelled = await queue.enqueue('job', { name: 'never' });
    expect(await queue.cancel(cancelled.id)).toBe('cancelled');
    const ran = await workHere(queue);
    await watching.drain({ delayed: true, timeout: '100s' });
    const ends = ids.filter((_, at) => at < 5 || at === ids.length - 1);
    for (const id of ends) expect((await watching.get(id)).status).toBe('complete');
    const ofKey = [...new Set(ran)].filter((name) => /^\d$/.test(name));
    expect(ofKey).toEqual(['1', '2', '3']);
    expect(ran).not.toContain('never');
    const completions = await Promise.all(ends.map((id) => watching.history(id)));
    for (const history of completions) expect(history.filter(({ to }) => to === 'complete')).toHaveLength(1);
  });

  // Invariants Q1, Q2.
  test('a key is free again whose worker could not read the rest of its claim, and gave that back', async () => {
    const name = fresh();
    const watching = queueOn(name);
    const jobs = ['a', 'b'].map((key) => ({ kind: 'job' as const, payload: { name: key }, key }));
    const all = await watching.enqueueMany(jobs);
    const taken = gate();
    let isRead = false;
    const unreadable = { answer: { Items: [{ sk: { S: 'j#1' }, n: { N: '1' }, c: { S: '{' } }] } };
    const choose = ({ operation, input }: Request): Fault => {
      const text = JSON.stringify(input);
      if (operation === 'UpdateItem' && text.includes(':k:a"')) taken.open();
      if (!text.includes(':k:b"') || isRead) return 'pass';
      if (operation !== 'Query') return { after: taken.opened };
      isRead = true;
      return unreadable;
    };
    const ran = await workHere(queueOn(name, dynamodb(faultyClient(client, choose), { table: TABLE })));
    await watching.drain({ timeout: '50s' });
    expect(isRead).toBe(true);
    expect(ran.toSorted()).toEqual(['a', 'b']);
    for (const id of all) expect(await watching.get(id)).toMatchObject({ status: 'complete', attempt: 1 });
  });

  // Invariant Q2.
  test.for(['in line', 'delayed', 'of a key'])(
    'a job %s that is cancelled and retried by hand runs once when each request is carried out twice',
    async (where) => {
      const queue = queueOn(
        fresh(),
        dynamodb(
          failing(() => 'duplicate'),
          { table: TABLE },
        ),
      );
      const options = where === 'in line' ? {} : where === 'delayed' ? { delay: 1000 } : { key: 'k' };
      const { id } = await queue.enqueue('job', { name: 'once' }, options);
      expect(await queue.cancel(id)).toBe('cancelled');
      expect(await queue.retry(id)).toBe('new');
      const ran = await workHere(queue);
      await queue.drain({ delayed: true, timeout: '100s' });
      expect(ran).toEqual(['once']);
      expect((await queue.get(id)).status).toBe('complete');
    },
  );

  // Invariants J1, J7, J8.
  test.for(FAULTS)('when %s, batches, rests and times come out as they should', async ([, choose]) => {
    const name = fresh();
    const kinds = { ...KINDS, save: { debounce: '300ms', coalesce: 'all' } } as const;
    const queue = createQueue(dynamodb(failing(choose), { table: TABLE }), name, { kinds });
    const batch = await queue.batch({ onDone: { kind: 'job', payload: { name: 'done' } } });
    await batch.enqueueMany(Array.from({ length: 70 }, (_, n) => ({ kind: 'job', payload: { name: `m${n}` } })));
    const inner = await batch.nested({ onComplete: { kind: 'job', payload: { name: 'inner' } } });
    await inner.enqueue({ kind: 'job', payload: { name: 'of inner' }, key: 'k' });
    for (const each of [inner, batch]) await each.seal();
    const never = await queue.enqueue('job', { name: 'never' }, { expiresAt: new Date(Date.now() - 1000), key: 'k' });
    const after = await queue.enqueue('job', { name: 'after' }, { after: [batch], delay: 1 });
    for (const of of ['1', '2', '3']) await queue.enqueue('save', { name: of }, { key: 's' });
    const ran: string[] = [];
    const worker = queue.work(
      {
        job: (unit) => void ran.push(readOrders(unit.payload).name),
        save: ({ jobs }) => void ran.push(`saves ${jobs.map(({ payload }) => readOrders(payload).name).join('')}`),
      },
      { lease: '5s', poll: '100ms' },
    );
    onTestFinished(() => worker.stop({ timeout: '1s' }));
    const watching = createQueue(engine, name, { kinds });
    await eventually(async () => expect((await watching.get(after.id)).status).toBe('complete'));
    await watching.drain({ delayed: true, timeout: '100s' });
    expect((await watching.get(never.id)).status).toBe('cancelled');
    expect(await watching.openBatch(batch.id).progress()).toMatchObject({ total: 71, complete: 71, problem: null });
    for (const once of ['done', 'inner', 'saves 123']) expect(ran.filter((one) => one === once)).toEqual([once]);
    expect(ran).not.toContain('never');
  });
});

// Invariant Q1.
test('a shard whose row names as many jobs as it has room for takes no more from its line until those are through', async () => {
  const name = fresh();
  let looks = 0;
  const watched = faultyClient(client, ({ sk, operation }) => {
    if (operation === 'GetItem' && sk === 'head') looks += 1;
    return 'pass';
  });
  const queue = createQueue(dynamodb(watched, { table: TABLE }), name, { kinds: KINDS, shards: 1 });
  await queue.enqueue('job', { name: 'early' });
  const ran = await workHere(queue);
  await until('the first one has run', () => ran.includes('early'));
  // Retries that are due tomorrow, as thousands of single failures leave them.
  const waiting = Array.from({ length: 12_000 }, (_, n) => ({
    piece: 4 * n + 1,
    index: 7,
    n: 1,
    attempts: 3,
    dueAt: Date.now() + 86_400_000,
  }));
  const key = { pk: { S: shardKey(name, 0) }, sk: { S: 'head' } };
  const change = (UpdateExpression: string, rest: object = {}): Promise<unknown> =>
    client.send(
      new UpdateItemCommand({
        TableName: TABLE,
        Key: key,
        UpdateExpression,
        ExpressionAttributeNames: { '#b': 'b:1.1' },
        ...rest,
      }),
    );
  await change('SET #b = :b', { ExpressionAttributeValues: { ':b': { S: writeSpans(waiting) } } });
  await queue.enqueue('job', { name: 'late' });
  const before = looks;
  await until('the worker has looked for it', () => looks > before + 5);
  expect(ran).toEqual(['early']);
  await change('REMOVE #b');
  await until('it has run', () => ran.includes('late'));
});
