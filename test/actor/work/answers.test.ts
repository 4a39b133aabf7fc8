import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type ActorDefinition, actor, type Dispatcher } from '../../../src/actor/index.ts';
import { LeaseLost, Stopped } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { probe } from '../../../src/base/probe.ts';
import { freshDatabase } from '../../support/database.ts';
import { aborted, until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { COMMIT, type Proxy, startProxy } from '../../support/proxy.ts';
import { type ActorScene, openScene } from '../scene.ts';

const NOTHING = '\0 no statement holds this';

const Thing = actor('thing', {
  semaphores: ['end', 'tell'],
  initial: 'only',
  backoff: { kind: 'linear', min: '10ms', jitter: 0 },
  states: (state) => ({
    only: state({
      run: (a) => {
        const [ends, tells] = [a.take('end'), a.take('tell')];
        if (tells) a.page({ tag: 'thing', summary: 'told' });
        return ends || tells ? a.done(a.attempt) : a.hibernate();
      },
    }),
  }),
});

/** A database of its own behind a proxy that can lose single statements; `direct` does not go through that. */
async function behindProxy(
  definitions: readonly ActorDefinition[] = [Thing as never],
): Promise<{ proxy: Proxy; scene: ActorScene; direct: ActorScene }> {
  const database = await freshDatabase();
  onTestFinished(() => database.drop());
  const proxy = await startProxy(database.url);
  onTestFinished(() => proxy.stop());
  const direct = await openScene(definitions, { url: database.url });
  const scene = await openScene(definitions, { url: proxy.url, logger: recordLog() });
  return { proxy, scene, direct };
}

function errorsOf(dispatcher: Dispatcher): unknown[] {
  const errors: unknown[] = [];
  dispatcher.events.on('error', ({ error }) => errors.push(error));
  return errors;
}

/** A pg client with its transaction, ended with the test. */
async function session(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

describe('a statement that does not come through', () => {
  // Invariant A4.
  test.each([
    ['of a commit', 'end', 'pawl:actor.commit'],
    ['of a commit with effects', 'tell', COMMIT],
  ] as const)('%s is sent again: what it wrote is written once', async (_what, semaphore, statement) => {
    const { proxy, scene, direct } = await behindProxy();
    const one = await direct.actors.create(Thing, {});
    const dispatcher = await scene.run({ concurrency: 1 });
    await direct.actors.waitFor(one, { state: 'only', status: 'hibernating' });
    const errors = errorsOf(dispatcher);
    dispatcher.events.on('error', () => proxy.loseAnswerTo(NOTHING));
    proxy.loseAnswerTo(statement);
    await direct.actors.incr(one, semaphore);
    expect(await direct.actors.waitFor(one)).toMatchObject({ result: 1 });
    expect((await direct.actors.history(one)).map(({ reason }) => reason)).toEqual(['created', 'done']);
    await until('an answer was lost', () => errors.length > 0);
    // The only slot is free again.
    const two = await direct.actors.create(Thing, {});
    await direct.actors.incr(two, 'end');
    await direct.actors.waitFor(two);
  });

  test('of a worker that is too busy to be woken, or is no more, is sent again', async () => {
    let isBusy = true;
    const Busy = actor('busy', {
      initial: 'only',
      states: (state) => ({
        only: state({
          run: async (a) => {
            await new Promise((resolve) => setTimeout(resolve, 2));
            return isBusy ? a.nap(0) : a.hibernate();
          },
        }),
      }),
    });
    const { proxy, scene, direct } = await behindProxy([Busy as never, Thing as never]);
    await direct.actors.register();
    await direct.query(`select pawl.actor_create('{"type":"busy"}') from generate_series(1, 200)`);
    const dispatcher = await scene.run({ concurrency: 1, poll: '50ms' });
    const errors = errorsOf(dispatcher);
    proxy.loseRequest('pawl:actor.wants');
    await until('it has failed to say that it is busy', () => errors.length > 0);
    isBusy = false;
    const before = errors.length;
    await until('it has failed to say that it is not', () => errors.length > before);
    proxy.loseRequest(NOTHING);
    const one = await direct.actors.create(Thing, {});
    await direct.actors.incr(one, 'end');
    await direct.actors.waitFor(one);
  });

  test('of what cannot be run is asked again', async () => {
    const { proxy, scene, direct } = await behindProxy();
    const one = await direct.actors.create(Thing, {});
    await direct.query('update pawl.actor_instance set version = 2');
    proxy.loseRequest('pawl:actor.unknown');
    const errors = errorsOf(await scene.run());
    await until('the message was lost', () => errors.length > 0);
    proxy.loseRequest(NOTHING);
    await until('it is held', async () => (await direct.actors.get(one)).status === 'held');
  });

  test('of taking notices is sent again', async () => {
    const { proxy, scene, direct } = await behindProxy();
    await direct.actors.page({ tag: 'x', summary: 'look' });
    const took: string[] = [];
    proxy.loseRequest('pawl:actor.take_notices');
    const dispatcher = await scene.run({
      channels: [{ name: 'test', deliver: async ({ tag }) => void took.push(tag) }],
    });
    const errors = errorsOf(dispatcher);
    await until('the question was lost', () => errors.length > 0);
    proxy.loseRequest(NOTHING);
    await until('it was delivered', () => took.length === 1);
  });
});

/** Ends when its signal aborts, and notes why that was; the next time at once. `onBegin` is called when its body runs. */
function patient(reasons: unknown[], onBegin: () => void): ActorDefinition {
  return actor('waits', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '10ms', jitter: 0 },
    states: (state) => ({
      only: state({
        run: async (a) => {
          // Not by the attempt: a lease as short as this one may have run out before the first body began.
          if (reasons.length > 0) return a.done('again');
          onBegin();
          await aborted(a.signal);
          reasons.push(a.signal.reason);
          return a.done('too late');
        },
      }),
    }),
  });
}

test('a dispatcher whose heartbeat is held up for longer than its lease tells its bodies, and goes on', async () => {
  const reasons: unknown[] = [];
  let hasBegun = false;
  const Waits = patient(reasons, () => {
    hasBegun = true;
  });
  const scene = await openScene([Waits]);
  const client = await session(scene.url);
  const one = await scene.actors.create(Waits, {});
  await scene.run({ lease: '3s' });
  await until('its body runs', () => hasBegun);
  await client.query('begin; select from pawl.actor_worker for no key update');
  await until('the body was told', () => reasons.length > 0);
  expect(reasons[0]).toBeInstanceOf(LeaseLost);
  await client.query('rollback');
  expect(await scene.actors.waitFor(one)).toMatchObject({ result: 'again' });
});

test('a dispatcher whose database is away for longer than its lease tells its bodies, and can be stopped', async () => {
  const reasons: unknown[] = [];
  let hasBegun = false;
  const Waits = patient(reasons, () => {
    hasBegun = true;
  });
  const { proxy, scene, direct } = await behindProxy([Waits]);
  const one = await direct.actors.create(Waits, {});
  const dispatcher = await scene.run({ lease: '1s' });
  const errors = errorsOf(dispatcher);
  await until('its body runs', () => hasBegun);
  proxy.refuse();
  await until('the body was told', () => reasons.length > 0);
  expect(reasons[0]).toBeInstanceOf(LeaseLost);
  const before = errors.length;
  await until('it cannot register anew', () => errors.length > before);
  await dispatcher.stop({ timeout: 0 });
  await direct.run();
  expect(await direct.actors.waitFor(one)).toMatchObject({ result: 'again' });
});

describe('a dispatcher that is stopped', () => {
  test('while it starts never takes anything', async () => {
    const scene = await openScene([Thing]);
    const client = await session(scene.url);
    await client.query('begin; lock table pawl.actor_type in access exclusive mode');
    const dispatcher = scene.actors.run();
    const refused = expect(dispatcher.started).rejects.toThrow(Stopped);
    const blocked = `select exists (select 1 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0 and datname = current_database())`;
    await until('it waits', () => scene.one<boolean>(blocked));
    const stopping = dispatcher.stop();
    await client.query('commit');
    await refused;
    await stopping;
    expect(await scene.one('select count(*)::int from pawl.actor_worker')).toBe(0);
  });

  test('while it claims gives back what it gets, untried', async () => {
    let letGo = (): void => {};
    let isReached = false;
    const claimed = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const disarm = faults.arm(
      'actor.after_claim',
      () => {
        isReached = true;
        return claimed;
      },
      { occurrence: 1 },
    );
    onTestFinished(disarm);
    const scene = await openScene([Thing]);
    const one = await scene.actors.create(Thing, {});
    const dispatcher = await scene.run();
    await until('it has claimed', () => isReached);
    const stopping = dispatcher.stop();
    letGo();
    await stopping;
    expect(await scene.actors.get(one)).toMatchObject({ status: 'due', attempt: 0 });
    expect((await scene.actors.history(one)).map(({ reason }) => reason)).toEqual(['created']);
  });
});

test('a dispatcher of some types is not woken for others', async () => {
  const Other = actor('other', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
  const scene = await openScene([Thing, Other]);
  using rests = probe.watch('actor.idle');
  await scene.run({ types: ['thing'], poll: '1h' });
  const { worker } = await rests.next();
  await scene.run({ types: ['other'], poll: '1h' });
  await rests.next((rest) => rest['worker'] !== worker);
  using claims = probe.watch('actor.claimed');
  await scene.actors.waitFor(await scene.actors.create(Other, {}));
  const one = await scene.actors.create(Thing, {});
  await scene.actors.waitFor(one, { state: 'only', status: 'hibernating' });
  const looks = claims.hits.filter((claim) => claim['worker'] === worker);
  expect(looks[0]).toMatchObject({ actors: 1 });
});

test('a back-off can grow by the same step each time', async () => {
  const scene = await openScene([Thing]);
  await scene.actors.register();
  const waits = 'select array_agg(pawl.actor_backoff(t.backoff, n)) from pawl.actor_type t, generate_series(1, 3) n';
  expect(await scene.one(waits)).toEqual([10, 20, 30]);
});

test('a transaction of a driver that leaves JSON as text is as good as any', async () => {
  const scene = await openScene([Thing]);
  const client = new pg.Client({ connectionString: scene.url, types: { getTypeParser: () => String as never } });
  await client.connect();
  onTestFinished(() => client.end());
  await client.query('begin');
  const one = await scene.actors.create(Thing, {}, { tx: client });
  await client.query('commit');
  expect(one).toMatchObject({ id: expect.stringMatching(/^\d+$/), created: true });
  expect(await scene.actors.get(one)).toMatchObject({ status: 'due' });
});
