import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Actors, actor, createActors, type Dispatcher, type RunOptions, state } from '../../../src/actor/index.ts';
import { InvalidInput, NotSupported } from '../../../src/base/errors.ts';
import { type DynamoEngine, dynamodb } from '../../../src/engine/dynamodb/index.ts';
import { dynamoClient, sharedDynamo } from '../../support/dynamodb.ts';
import { until } from '../../support/eventually.ts';
import { type Fault, faultyClient } from '../../support/failing/dynamodb-faults.ts';
import { spawnChild } from '../../support/process.ts';
import { Clan, Kid, Tally } from './tally.ts';

const local = await sharedDynamo();
const client = dynamoClient(local.endpoint);
const TABLE = 'actor-faults';
let engine: DynamoEngine;

beforeAll(async () => {
  engine = dynamodb(client, { table: TABLE });
  await engine.migrate();
});

async function start(actors: Actors, options: RunOptions = {}): Promise<Dispatcher> {
  const dispatcher = actors.run({ poll: '100ms', lease: '2s', ...options });
  onTestFinished(() => dispatcher.stop({ timeout: 0 }));
  await dispatcher.started;
  return dispatcher;
}

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

// The stand-in has no transactions.
describe.skipIf(local.kind === 'dynalite')('actors on DynamoDB', () => {
  // Invariants Y1, Y2.
  test.for(FAULTS)('when %s, what is raised and sent is counted once', async ([, choose]) => {
    let requests = 0;
    const failing = dynamodb(
      faultyClient(client, () => choose((requests += 1))),
      { table: TABLE },
    );
    const [actors, watching] = [createActors(failing, [Tally]), createActors(engine, [Tally])];
    const { id } = await actors.create(Tally, { n: 0, notes: [] });
    await start(actors, { lease: '20s' });
    for (let n = 0; n < 3; n += 1) {
      await actors.incr(id, 'more', { n: 2 });
      await actors.send(id, 'note', n);
    }
    await actors.incr(id, 'end');
    const { result } = await watching.waitFor(id, { timeout: '60s' });
    expect(result).toEqual({ n: 6, notes: [0, 1, 2] });
    const history = await watching.history(id);
    expect(history.map(({ reason }) => reason)).toEqual(['created', 'to', 'done']);
  });

  // Invariants Y1, A20.
  test.for(FAULTS)(
    'when %s, children are born and end once, a question has an answer, and a deadline one page',
    async ([, choose]) => {
      let requests = 0;
      const failing = dynamodb(
        faultyClient(client, () => choose((requests += 1))),
        { table: TABLE },
      );
      const [actors, watching] = [createActors(failing, [Clan, Kid]), createActors(engine, [Clan, Kid])];
      const { id } = await actors.create(Clan, {});
      await start(actors, { lease: '20s' });
      await watching.waitFor(id, { state: 'waits', timeout: '60s' });
      expect(await actors.ask(id, 'count')).toBe(2);
      // The check at its start finds what is late.
      await start(actors, { lease: '20s' });
      await until('there is a page', async () => (await watching.pages({ actor: id })).length > 0);
      const kids = await watching.list({ parent: id });
      expect(kids).toHaveLength(2);
      await Promise.all(kids.map((kid) => actors.incr(kid.id, 'end' as never)));
      const { result, openChildren } = await watching.waitFor(id, { timeout: '60s' });
      expect({ result, openChildren }).toEqual({ result: [0, 1], openChildren: 0 });
      expect((await watching.history(id)).map(({ reason }) => reason)).toEqual(['created', 'to', 'done']);
      await until('the page is resolved', async () => (await watching.pages({ actor: id })).length === 0);
      const pages = await watching.pages({ actor: id, resolved: true });
      expect(pages.map(({ tag, count }) => [tag, count])).toEqual([[`actor-deadline:${id}`, 1]]);
    },
  );

  // Invariants Y1, Y2.
  test('the turn of a killed process runs elsewhere; one that was stopped writes nothing when it goes on', async () => {
    const actors = createActors(engine, [Tally]);
    const env = { ENDPOINT: local.endpoint, TABLE };
    for (const fate of ['kill', 'pause'] as const) {
      const { id } = await actors.create(Tally, { n: 0, notes: [], slowFor: fate === 'kill' ? 60_000 : 2000 });
      const child = spawnChild('actor/dynamodb/worker.child.ts', [], env);
      await child.message();
      const { began } = await child.message<{ began: string }>();
      expect(began).toBe(id);
      if (fate === 'kill') await child.kill();
      else child.pause();
      await actors.incr(id, 'end');
      // Its own lease is long: a second lost turn would be told, too.
      const dispatcher = await start(actors, { lease: '20s' });
      await actors.waitFor(id);
      await dispatcher.stop();
      if (fate === 'pause') child.resume();
      if (fate === 'pause') {
        await until('it learns that its turn is lost', async () => 'lost' in (await child.message<object>()));
      }
      const reasons = (await actors.history(id)).map(({ reason }) => reason);
      expect(reasons).toEqual(['created', 'worker lost', 'to', 'done']);
    }
  });

  test('what DynamoDB does not have is refused before anything is sent', async () => {
    const run = (): never => {
      throw new Error('never run');
    };
    const of = (options: object): (() => Actors) => {
      const Type = actor('Refused', { initial: 'a', states: { a: state({ ...options, run }) } });
      return () => createActors(engine, [Type]);
    };
    expect(of({ hold: 'transaction' })).toThrow(NotSupported);
    const indexed = actor('Refused', { initial: 'a', index: ['n'], states: { a: state({ run }) } });
    expect(() => createActors(engine, [indexed])).toThrow(NotSupported);
    const actors = createActors(engine, [Tally]);
    await expect(actors.create(Tally, { n: 0, notes: [] }, { tx: {} as never })).rejects.toThrow(InvalidInput);
    const Crowd = actor('Crowd', {
      initial: 'creates',
      states: {
        creates: state({
          run: async (a) => {
            for (let n = 0; n < 20; n += 1) await a.create(Kid, {});
            return a.hibernate();
          },
        }),
      },
    });
    const crowded = createActors(engine, [Crowd, Kid]);
    const crowd = await crowded.create(Crowd, {});
    await crowded.work(crowd);
    const { error, openChildren } = await crowded.get(crowd);
    expect(error).toMatch(/at most 98 rows besides its own, since a transaction has 100, but this one asks for 100/);
    expect(openChildren).toBe(0);
    await crowded.move(crowd, 'creates', undefined, { reason: 'looked at' });
    await crowded.pause(crowd);
  });
});
