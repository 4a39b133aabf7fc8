import { getEventListeners } from 'node:events';
import { expect, onTestFinished, test } from 'vitest';
import { type AnyActorDefinition, actor, createActors, type Dispatcher } from '../../../src/actor/index.ts';
import { probe } from '../../../src/base/probe.ts';
import { postgres, statement } from '../../../src/engine/postgres/index.ts';
import { gate, seeBehindAwaits } from '../../queue/contract/fixture.ts';
import { until } from '../../support/eventually.ts';
import { awakeMs } from '../../support/time/awake.ts';
import { openScene } from '../scene.ts';

/** Lease 1 s, a rescue every 0.6 s at most, a back-off of 20 ms, a poll of 0.1 s; the rest is for a busy machine. */
const BOUND_MS = 1000 + 625 + 20 + 100 + 8000;
const TYPES = 8;
const EACH = 12;

/** Eight types of actors, which wait until they are let go, and note what was begun. */
function types(begun: Set<string>, wait: Promise<void>): AnyActorDefinition[] {
  return Array.from({ length: TYPES }, (_, n) =>
    actor(`part${n}`, {
      initial: 'only',
      backoff: { min: 10, max: 20 },
      states: (state) => ({
        only: state({
          run: async (a) => {
            begun.add(a.id);
            await wait;
            return a.done();
          },
        }),
      }),
    }),
  );
}

// Invariant A28.
test('of seven dispatchers of eight types some die at once: what they ran, and what is due, begins within the bound', async () => {
  const begun = new Set<string>();
  let letGo = (): void => {};
  const wait = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const definitions = types(begun, wait);
  const scene = await openScene(definitions);
  await scene.actors.register();
  for (const { name } of definitions) {
    await scene.query(`select pawl.actor_create($1::jsonb) from generate_series(1, ${EACH})`, [
      JSON.stringify({ type: name }),
    ]);
  }
  const quiet = { debug() {}, info() {}, warn() {}, error() {} };
  const dispatchers = Array.from({ length: 7 }, () => {
    const engine = postgres(scene.url, { max: 3, stopTimeoutMs: 0, logger: quiet });
    const dispatcher = createActors(engine, definitions).run({ concurrency: 5, lease: '1s', poll: '100ms' });
    onTestFinished(async () => {
      await dispatcher.stop({ timeout: 0 });
      await engine.stop();
    });
    return { engine, dispatcher };
  });
  const running = `select count(*)::int from pawl.actor where status = 'running'`;
  await until('all are busy', async () => (await scene.one<number>(running)) >= 35);
  // Three die with what they have, one more while it is just starting.
  const late = postgres(scene.url, { max: 3, stopTimeoutMs: 0, logger: quiet });
  const dying = [...dispatchers.slice(0, 3), { engine: late, dispatcher: createActors(late, definitions).run() }];
  for (const { dispatcher } of dying) dispatcher.abandon();
  const since = awakeMs();
  await Promise.all(dying.map(({ engine }) => engine.stop()));
  letGo();
  const left = `select count(*)::int from pawl.actor where status <> 'final'`;
  await until('all are final', async () => (await scene.one(left)) === 0);
  expect(awakeMs() - since).toBeLessThan(BOUND_MS);
  expect(begun.size).toBe(TYPES * EACH);
  // Each ended once, and what the dead ones had was taken over.
  expect(await scene.one(`select count(*)::int from pawl.actor_history where reason = 'done'`)).toBe(TYPES * EACH);
  expect(
    await scene.one(`select count(*)::int from pawl.actor_history where reason = 'worker lost'`),
  ).toBeGreaterThanOrEqual(15);
});

test('what was claimed ahead does not wait behind bodies that take every slot: another dispatcher is given it, uncharged', async () => {
  let end = (): void => {};
  const waits = new Promise<void>((resolve) => {
    end = resolve;
  });
  const attempts: number[] = [];
  let isTaken = false;
  using claims = probe.watch('actor.claimed');
  const isAhead = (): boolean => claims.hits.reduce((sum, { actors }) => sum + Number(actors), 0) > attempts.length;
  const Quick = actor('quick', {
    initial: 'only',
    states: (state) => ({
      only: state({
        run: async (a) => {
          attempts.push(a.attempt);
          // One of those behind the thousandth takes the only slot, when others were claimed ahead.
          if (isTaken || attempts.length < 1000 || !isAhead()) return a.done();
          isTaken = true;
          await waits;
          return a.done();
        },
      }),
    }),
  });
  const scene = await openScene([Quick]);
  await scene.actors.register();
  await scene.query(`select pawl.actor_create('{"type": "quick"}') from generate_series(1, 3000)`);
  await scene.run({ concurrency: 1, poll: '60s' });
  await until('the slot is taken', () => isTaken);
  await scene.run({ poll: '60s' });
  await until('all others have run', () => attempts.length === 3000);
  expect(new Set(attempts)).toEqual(new Set([1]));
  end();
});

test("bodies with hold: 'transaction' leave the other slots to actors of every type", async () => {
  let letGo = (): void => {};
  const wait = new Promise<void>((resolve) => {
    letGo = resolve;
  });
  const Holding = actor('holding', {
    initial: 'only',
    states: (state) => ({
      only: state({
        hold: 'transaction',
        run: async (a) => {
          await wait;
          return a.done();
        },
      }),
    }),
  });
  const Plain = actor('plain', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
  const scene = await openScene([Holding, Plain]);
  for (let n = 0; n < 3; n += 1) await scene.actors.create(Holding, {});
  await scene.run({ concurrency: 4, poll: '100ms', lease: '20s' });
  // While they run they become due, for others to find once their lock is gone.
  const due =
    'select count(*)::int from pawl.actor_instance where tx_worker is not null and wake_at < clock_timestamp()';
  await until('all three hold their rows, and are due', async () => (await scene.one(due)) === 3);
  const { id } = await scene.actors.create(Plain, {});
  const isFinal = async (of: string): Promise<boolean> => (await scene.actors.get(of)).status === 'final';
  await until('the other one has run', () => isFinal(id)).finally(letGo);
});

test('a claim passes over actors whose rows are held, and takes the one among them whose holder is gone', async () => {
  const Holding = actor('holding', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
  const Plain = actor('plain', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
  const scene = await openScene([Holding, Plain]);
  const create = async (definition: typeof Holding): Promise<string> => (await scene.actors.create(definition, {})).id;
  const [first, second, gone] = [await create(Holding), await create(Holding), await create(Holding)];
  const plain = await create(Plain);
  await scene.query(
    "update pawl.actor_instance set tx_worker = 0 where type = (select id from pawl.actor_type where name = 'holding')",
  );
  const worker = await scene.one<string>(`
    insert into pawl.actor_worker (host, pid, concurrency, lease, expires_at, types, knows, wants_notify)
    values ('host', 1, 1, '1 hour', clock_timestamp() + interval '1 hour', array(select id from pawl.actor_type), '{}', true) returning id`);
  const claimOne = async (): Promise<string | undefined> => {
    const answer = await scene.one<string>('select pawl.actor_claim($1, array(select id from pawl.actor_type), 1)', [
      worker,
    ]);
    const { rows } = JSON.parse(answer) as { rows: [number][] };
    return rows[0]?.[0].toString();
  };
  await scene.engine.transaction(async (tx) => {
    const hold = 'select id from pawl.actor_instance where id = any ($1::bigint[]) for no key update';
    await tx.query(statement('test.hold', hold), [[first, second]]);
    expect([await claimOne(), await claimOne(), await claimOne()]).toEqual([gone, plain, undefined]);
  });
  expect([await claimOne(), await claimOne()]).toEqual([first, second]);
});

// All of them have begun before one has the dispatcher stop.
test.for([
  [['last'], false],
  [['held'], false],
  [['last', 'held'], true],
] as const)(
  'a body that awaits the stop of its dispatcher is told when the others have ended, and its turn is committed: %s, behind an await: %s',
  async ([types, isLate]) => {
    seeBehindAwaits(isLate);
    const [running, begun, other] = [gate(), gate(), gate()];
    let left: number = types.length;
    const told: string[] = [];
    let dispatcher: Dispatcher | undefined;
    const stop = async (): Promise<void> => {
      left -= 1;
      if (left === 0) begun.open();
      if (isLate) await begun.opened;
      told.push('stopping');
      await dispatcher?.stop();
      told.push(`the other one is ${(await scene.actors.get(waited)).status}`);
    };
    const declare = (name: string, hold: 'lease' | 'transaction', body: () => Promise<void>) =>
      actor(name, {
        initial: 'only',
        states: (state) => ({
          only: state({
            hold,
            run: async (a) => {
              await body();
              return a.done();
            },
          }),
        }),
      });
    const Other = declare('other', 'lease', () => {
      running.open();
      return other.opened;
    });
    const stopping = { last: declare('last', 'lease', stop), held: declare('held', 'transaction', stop) };
    const scene = await openScene([Other, ...Object.values(stopping)]);
    dispatcher = await scene.run({ concurrency: 5 });
    const { id: waited } = await scene.actors.create(Other, {});
    await running.opened;
    const ids: string[] = [];
    for (const type of types) ids.push((await scene.actors.create(stopping[type], {})).id);
    await until('they wait for the stop', () => told.length === types.length);
    const stopped = dispatcher.stop();
    other.open();
    await stopped;
    expect(told.slice(types.length)).toEqual(types.map(() => 'the other one is final'));
    for (const id of ids) expect(await scene.actors.get(id)).toMatchObject({ status: 'final' });
  },
);

test('a stopped dispatcher leaves no listener at its signal', async () => {
  const scene = await openScene(types(new Set(), Promise.resolve()));
  const { signal } = new AbortController();
  const dispatcher = await scene.run({ signal });
  await dispatcher.stop();
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});
