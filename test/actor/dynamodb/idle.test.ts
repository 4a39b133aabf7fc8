import { expect, onTestFinished, test } from 'vitest';
import { WORKERS } from '../../../src/actor/dynamodb/rows.ts';
import { DynamoActorStore } from '../../../src/actor/dynamodb/store.ts';
import { createActors } from '../../../src/actor/index.ts';
import { dynamodb, workerOf } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { faultyClient, partitionsOf } from '../../support/failing/dynamodb-faults.ts';
import { start } from '../contract/open.ts';
import { Tally } from './tally.ts';

const local = await sharedDynamo();

test('a dispatcher asks nothing about actors that hibernate, however many there are', async ({ skip }) => {
  skip(local.kind === 'dynalite', 'the stand-in has no transactions');
  const client = dynamoClient(local.endpoint);
  onTestFinished(() => client.destroy());
  const sent: string[] = [];
  const operations = new Set<string>();
  const watched = faultyClient(client, (request) => {
    sent.push(...partitionsOf(request));
    operations.add('IndexName' in request.input ? 'index' : request.operation);
    return 'pass';
  });
  const engine = dynamodb(watched, { table: 'actor-idle' });
  await engine.migrate();
  const actors = createActors(engine, [Tally], { shards: 1 });
  const made = await Promise.all(Array.from({ length: 20 }, () => actors.create(Tally, { n: 0, notes: [] })));
  await start(actors, { poll: '20ms' });
  for (const actor of made) await actors.waitFor(actor, { status: 'hibernating' });
  // What the last turns have left behind is removed a little later.
  await until('it is quiet', async () => {
    const before = sent.length;
    await until('it has polled', () => sent.slice(before).filter((pk) => pk.startsWith('actors:line:')).length >= 2);
    return !sent.slice(before).some((pk) => pk.startsWith('actor:'));
  });
  sent.length = 0;
  await until('it has polled', () => sent.filter((pk) => pk.startsWith('actors:line:')).length >= 10);
  const others = new Set(sent.map((pk) => pk.replace(/:\d.*/, '')));
  for (const operation of ['Scan', 'index']) expect(operations).not.toContain(operation);
  for (const pk of others)
    expect(['actors', 'actors:line', 'actors:alone', 'actors:workers', 'actors:notes']).toContain(pk);
});

test('health names a worker whose lease is over, and that no other one has replaced', async ({ skip }) => {
  skip(local.kind === 'dynalite', 'the stand-in has no transactions');
  const client = dynamoClient(local.endpoint);
  onTestFinished(() => client.destroy());
  const engine = dynamodb(client, { table: 'actor-health' });
  await engine.migrate();
  const actors = createActors(engine, [Tally], { shards: 1 });
  await actors.create(Tally, { n: 0, notes: [] });
  const store = new DynamoActorStore(engine, 1);
  const worker = { host: 'far', concurrency: 1, leaseMs: 1000, types: [], knows: {}, wantsNotify: false };
  await store.addWorker({ ...worker, pid: 1 });
  const lost = await store.addWorker({ ...worker, pid: 2 });
  const { rows } = store;
  const now = await engine.serviceTime(rows.limits);
  await rows.decide(workerOf(WORKERS, lost), ({ b }) =>
    b === 0 ? { expect: {}, set: { b: now - 20_000, t: now - 30_000 } } : undefined,
  );
  expect(await actors.health()).toEqual({ unattended: ['Tally'], held: [], lostWorkers: ['far:2'], openPages: 0 });
});
