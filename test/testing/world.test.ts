import { describe, expect, onTestFinished, test } from 'vitest';
import { type AnyActorDefinition, actor, createActors } from '../../src/actor/index.ts';
import { Conflict } from '../../src/base/errors.ts';
import { postgres, statement } from '../../src/engine/postgres/index.ts';
import { type Scene, stub, type World, type WorldOptions, world } from '../../src/testing/index.ts';
import { freshDatabase } from '../support/database.ts';
import { until } from '../support/eventually.ts';
import { LONG } from '../support/long.ts';

async function open(options: Omit<WorldOptions, 'url'>): Promise<World> {
  const database = await freshDatabase();
  const made = world({ ...options, url: database.url });
  onTestFinished(async () => {
    await made.close();
    await database.drop();
  });
  return made;
}

const STAND_STILL = statement(
  'test.stand_still',
  'select pg_sleep(1.2) from (select 1 from pawl.actor_worker for update) w',
);
const EXPIRE = statement('test.expire', 'update pawl.actor_worker set expires_at = started_at');
const KILL = statement(
  'test.kill',
  `select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database and d.datname = current_database()
where l.locktype = 'advisory' and l.pid <> pg_backend_pid()`,
);
const RESCUE = statement('test.rescue', 'select pawl.actor_rescue()');

const PARCELS = LONG ? 3 : 1;

/** A shop: an order is charged once, packed by its children, and ends. `careful` says whether it uses its keys. */
function shop(careful: boolean): {
  definitions: AnyActorDefinition[];
  scenario: (scene: Scene) => Promise<void>;
  charged: () => number;
} {
  const charges = new Set<string>();
  const charge = stub(async (key: string) => {
    charges.add(key);
  });
  const Parcel = actor('parcel', {
    initial: 'packing',
    states: (state) => ({ packing: state({ run: (a) => a.done(a.fields['n']) }) }),
  });
  let tries = 0;
  const Order = actor('order', {
    semaphores: ['pay'],
    initial: 'open',
    backoff: { min: '5ms', max: '10ms' },
    states: (state) => ({
      open: state({ to: ['charging'], run: (a) => (a.take('pay') ? a.to('charging') : a.hibernate()) }),
      charging: state({
        to: ['packing'],
        run: async (a) => {
          tries += 1;
          await charge(careful ? a.key('charge') : `try ${tries}`);
          return a.to('packing', { charges: charges.size });
        },
      }),
      packing: state({
        to: ['waiting'],
        run: async (a) => {
          const parcels: string[] = [];
          for (let n = 0; n < PARCELS; n += 1) parcels.push((await a.create(Parcel, { n })).id);
          return a.to('waiting', { parcels });
        },
      }),
      waiting: state({
        run: async (a) =>
          a.openChildren > 0 ? a.hibernate() : a.done((await a.children()).map(({ result }) => result)),
      }),
    }),
  });
  const scenario = async ({ actors, settle }: Scene): Promise<void> => {
    charges.clear();
    const order = await actors.create(Order, {});
    await settle();
    await actors.incr(order, 'pay');
    await settle();
    expect((await actors.get(order)).result).toHaveLength(PARCELS);
  };
  return { definitions: [Order, Parcel], scenario, charged: () => charges.size };
}

describe('a world that crashes everywhere', () => {
  // Invariants A3, A19.
  test('ends in the same state, whichever point it crashes at, when its bodies are idempotent', async () => {
    const { definitions, scenario } = shop(true);
    const w = await open({ actors: definitions, crash: 'everywhere' });
    const { runs, crashes } = await w.run(scenario);
    expect(runs).toBeGreaterThan(15);
    expect(Object.keys(crashes)).toEqual(
      expect.arrayContaining([
        'actor.after_claim',
        'actor.before_commit',
        'actor.between_effects',
        'actor.after_commit',
        'world.after_stub',
      ]),
    );
  });

  test('finds the body that is not', async () => {
    const { definitions, scenario } = shop(false);
    const w = await open({ actors: definitions, crash: 'everywhere' });
    await expect(w.run(scenario)).rejects.toThrow(
      /ended otherwise when it crashed at (world\.after_stub|actor\.\w+), time \d/,
    );
  });
});

test('time passes when it is told to', async () => {
  const Trial = actor('trial', {
    initial: 'running',
    states: (state) => ({
      running: state({
        to: ['over'],
        deadline: '20d',
        run: (a) => (a.fields['asked'] ? a.to('over') : a.nap('14d', { asked: true })),
      }),
      over: state({ run: (a) => a.hibernate() }),
    }),
  });
  const w = await open({ actors: [Trial] });
  const { runs } = await w.run(async ({ actors, settle, advance }) => {
    const trial = await actors.create(Trial, {});
    await settle();
    await advance('13d');
    expect(await actors.get(trial)).toMatchObject({ state: 'running', status: 'napping' });
    await advance('25h');
    expect(await actors.get(trial)).toMatchObject({ state: 'over' });
  });
  expect(runs).toBe(1);
});

describe('a world that is asked to settle brings a turn to its end', () => {
  test.each([
    ['the database stands still for longer than a second', [STAND_STILL]],
    ['its process is declared dead', [EXPIRE, RESCUE]],
  ])('when %s', async (_what, statements) => {
    let tries = 0;
    const Patient = actor('patient', {
      initial: 'waiting',
      backoff: { min: '1m' },
      states: (state) => ({
        waiting: state({
          run: async (a) => {
            tries += 1;
            for (const sql of tries === 1 ? statements : []) await other.query(sql);
            return a.done();
          },
        }),
      }),
    });
    const database = await freshDatabase();
    const other = postgres(database.url);
    const w = world({ actors: [Patient], url: database.url });
    onTestFinished(async () => {
      await w.close();
      await other.stop();
      await database.drop();
    });
    await w.run(async ({ actors, settle }) => {
      const patient = await actors.create(Patient, {});
      await settle();
      expect(await actors.get(patient)).toMatchObject({ status: 'final' });
    });
  });
});

test('what does not come to rest is named', async () => {
  const Restless = actor('restless', {
    initial: 'only',
    states: (state) => ({ only: state({ to: ['only'], run: (a) => a.to('only') }) }),
  });
  const w = await open({ actors: [Restless], patience: '1s' } as never);
  const scenario = async ({ actors }: Scene): Promise<void> => void (await actors.create(Restless, {}));
  await expect(w.run(scenario)).rejects.toThrow(/actor 1 is (due|running) in "only"/);
});

describe('a world on a database that it was given', () => {
  const One = actor('one', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.hibernate() }) }) });
  const counts = statement(
    'test.counts',
    `select (select count(*)::int from pawl.actor_instance) as actors, (select count(*)::int from pawl.actor_transition) as moves,
      (select count(*)::int from pawl.actor_worker) as workers`,
  );
  const scenario = async ({ actors, settle }: Scene): Promise<void> => {
    await actors.create(One, {});
    await settle();
  };

  test.each([
    ['has actors', 'actors'],
    ['runs actors, though it has none', 'a dispatcher'],
  ])('that %s of a service is refused, and leaves that as it was', async (_what, kind) => {
    const database = await freshDatabase();
    const service = postgres(database.url);
    const actors = createActors(service, [One]);
    const dispatcher = kind === 'actors' ? undefined : actors.run();
    const w = world({ actors: [One], url: database.url });
    onTestFinished(async () => {
      await w.close();
      await dispatcher?.stop();
      await service.stop();
      await database.drop();
    });
    await dispatcher?.started;
    if (kind === 'actors') for (let n = 0; n < 3; n += 1) await actors.create(One, {});
    const [before] = await service.query(counts);
    const refused: unknown = await w.run(scenario).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(Conflict);
    expect(String(refused)).toMatch(/that no world made.*TEST_DATABASE_URL/);
    await w.close();
    expect(await service.query(counts)).toEqual([before]);
  });

  test('removes what it made when it is closed, and what one before it left whose process was killed', async () => {
    const database = await freshDatabase({ migrated: false });
    const eye = postgres(database.url);
    const killed = world({ actors: [One], url: database.url });
    onTestFinished(async () => {
      await eye.stop();
      await database.drop();
    });
    await killed.run(scenario);
    expect(await eye.query(counts)).toMatchObject([{ actors: 1 }]);
    await until('it is dead', async () => (await eye.query(KILL)).length === 0);
    await using next = world({ actors: [One], url: database.url });
    await next.run(scenario);
    expect(await eye.query(counts)).toMatchObject([{ actors: 1 }]);
    await next.close();
    expect(await eye.query(counts)).toEqual([{ actors: 0, moves: 0, workers: 0 }]);
    // It is a service's from now on.
    const actors = createActors(eye, [One]);
    await actors.create(One, {});
    await expect(next.run(scenario)).rejects.toThrow(Conflict);
    await expect(killed.run(scenario)).rejects.toThrow(Conflict);
    await killed.close();
    expect(await eye.query(counts)).toMatchObject([{ actors: 1 }]);
  });
});

test('a database in which another world is at work is refused, and left as it is', async () => {
  const database = await freshDatabase();
  const eye = postgres(database.url);
  const One = actor('one', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
  const [first, second] = [1, 2].map(() => world({ actors: [One], url: database.url }));
  onTestFinished(async () => {
    await first?.close();
    await second?.close();
    await eye.stop();
    await database.drop();
  });
  await first?.run(async ({ actors, settle }) => {
    const { id } = await actors.create(One, {});
    const refused = second?.run(async () => {});
    await expect(refused).rejects.toThrow(Conflict);
    await expect(refused).rejects.toThrow(/another world is at work.*one after another/);
    await second?.close();
    await settle();
    expect(await actors.get(id)).toMatchObject({ status: 'final' });
  });
  await first?.close();
  expect(await second?.run(async () => {})).toMatchObject({ runs: 1 });
});

test('without a database a world has one of its own', async () => {
  const One = actor('one', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
  await using w = world({ actors: [One] });
  const { runs } = await w.run(async ({ actors, settle }) => {
    const one = await actors.create(One, {});
    await settle();
    expect(await actors.get(one)).toMatchObject({ status: 'final' });
  });
  expect(runs).toBe(1);
  expect(() => Reflect.apply(world, undefined, [{ actors: [] }])).toThrow(/actors/);
  await expect(w.run(undefined as never)).rejects.toThrow(/"scenario" for world\.run is required/);
  expect(() => stub(5 as never)).toThrow(/"work" for stub must be a function/);
});
