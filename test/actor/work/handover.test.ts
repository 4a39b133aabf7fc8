import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../../src/actor/index.ts';
import { faults } from '../../../src/base/fault.ts';
import { probe } from '../../../src/base/probe.ts';
import { type PostgresEngine, postgres } from '../../../src/engine/postgres/index.ts';
import { interleave, interleavings, type Actor as Lane } from '../../queue/interleaving.ts';
import { SqlSession } from '../../queue/sql-session.ts';
import { type FreshDatabase, freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { recordLog } from '../../support/log.ts';
import { LONG, most } from '../../support/long.ts';
import { Stage } from '../model/stage.ts';
import { allFinal, check, open } from '../model/walk.ts';
import { type ActorScene, openScene } from '../scene.ts';

/** Long enough that nothing is found by it while a test lasts. */
const NEVER = '60s';
const OFFERS = 'select count(*)::int from pawl.actor_offer';
const RUNNING = 'select count(*)::int from pawl.actor_instance where worker is not null';

interface Idle extends ActorScene {
  readonly Thing: ReturnType<typeof declare>;
  readonly id: string;
  /** What each turn saw: the semaphore, messages, the attempt. */
  readonly turns: (readonly [go: number, messages: unknown[], attempt: number])[];
  readonly offered: () => Promise<unknown>;
}

/** A type that hibernates until something comes. */
function declare(turns: (readonly [go: number, messages: unknown[], attempt: number])[], waits?: Promise<void>) {
  return actor('thing', {
    semaphores: ['go', 'now', 'fail', 'wait'],
    always: { now: 'other' },
    initial: 'only',
    backoff: { kind: 'fixed', min: 40_000, max: 40_000, jitter: 0 },
    states: (state) => ({
      only: state({
        to: ['other'],
        run: async (a) => {
          if (a.take('fail') && a.visit === 1) throw new Error('as told');
          const messages = a.pos('go') ? [] : await a.receive();
          turns.push([a.val('go'), messages.map(({ payload }) => payload), a.attempt]);
          a.decr('go');
          if (a.take('wait')) await waits;
          return a.hibernate();
        },
      }),
      other: state({ to: ['only'], run: (a) => a.to('only') }),
    }),
  });
}

/** One such actor. */
async function idle(waits?: Promise<void>): Promise<Idle> {
  const turns: (readonly [number, unknown[], number])[] = [];
  const Thing = declare(turns, waits);
  const scene = await openScene([Thing], { logger: recordLog() });
  const { id } = await scene.actors.create(Thing, {});
  const isReady = `select (${OFFERS}) > 0 and (${RUNNING}) = 0`;
  return { ...scene, Thing, id, turns, offered: () => until('an offer was made', () => scene.one<boolean>(isReady)) };
}

async function asleep(scene: Idle, options: Parameters<Idle['run']>[0] = {}): ReturnType<Idle['run']> {
  const dispatcher = await scene.run({ poll: NEVER, lease: '20s', ...options });
  await until('its first turn is over', () => scene.turns.length === 1);
  await scene.offered();
  return dispatcher;
}

async function session({ url }: { url: string }): Promise<SqlSession> {
  const opened = await SqlSession.open(url);
  onTestFinished(() => opened.end());
  return opened;
}

/**
 * In a transaction that the test commits, as the statement of a raise does by itself; and handed over: a worker that has
 * something to look for takes its offer back for a moment, and a raise does not wait for it.
 */
async function raiseOpen(by: SqlSession, id: string, semaphore = 'go'): Promise<void> {
  await until('it was handed over', () => tryRaise(by, id, semaphore));
}

/** @returns whether it was handed over; else the transaction is over */
async function tryRaise(by: SqlSession, id: string, semaphore = 'go'): Promise<boolean> {
  await by.begin();
  await by.one('select pawl.actor_incr_alone($1)', [JSON.stringify({ actor: id, semaphore })]);
  if ((await by.one(RUNNING)) === 1) return true;
  await by.client.query('rollback');
  return false;
}

/** Raised, and handed over. */
async function raise(by: SqlSession, id: string, semaphore?: string): Promise<void> {
  await raiseOpen(by, id, semaphore);
  await by.commit();
}

describe('a worker that sleeps', () => {
  test('is handed the actor that something comes for, and does not have to look for it', async () => {
    const scene = await idle();
    const dispatcher = await asleep(scene);
    using handed = probe.watch('actor.handed');
    using looks = probe.watch('actor.claimed');
    const letters = ['ä\n"\\\t\u0001\u2028😀', { a: [1.5, { '': true }] }];
    let came = 0;
    for (let n = 0; n < 4; n += 1) {
      // A worker that has something to look for takes its offer back for a moment; and a search that a busy machine has made slow
      // is not tried again for a while.
      await until('it was handed over', async () => {
        const before = handed.hits.length;
        if (n % 2 === 0) await scene.actors.incr(scene.id, 'go', { n: n + 1 });
        else await scene.actors.send(scene.id, 'letter', letters[(n - 1) / 2]);
        came += 1;
        await until('it has run', () => scene.turns.length === came + 1);
        await scene.offered();
        return handed.hits.length > before;
      });
      const expected = n % 2 === 0 ? [n + 1, [], 1] : [0, [letters[(n - 1) / 2]], 1];
      expect(scene.turns.at(-1)).toEqual(expected);
    }
    // What was handed over was not looked for.
    const found = looks.hits.reduce((sum, { actors }) => sum + Number(actors), 0);
    expect(found).toBe(came - handed.hits.length);
    expect(await scene.one('select count(*)::int from pawl.actor_inbox')).toBe(0);
    await dispatcher.stop();
    expect(await scene.one(OFFERS)).toBe(0);
  });

  test('and then has so much to do that it need not be woken, takes its offer back, and makes another in the end', async () => {
    let isBusy = true;
    const Busy = actor('busy', {
      initial: 'only',
      states: (state) => ({ only: state({ run: (a) => (isBusy ? a.nap(0) : a.hibernate()) }) }),
    });
    const scene = await openScene([Busy]);
    await scene.run({ poll: NEVER });
    await until('an offer was made', () => scene.one<boolean>(`select (${OFFERS}) = 1`));
    await scene.query(`select count(pawl.actor_create('{"type":"busy"}')) from generate_series(1, 2500)`);
    const takesNone = `select not w.wants_notify and (${OFFERS}) = 0 from pawl.actor_worker w`;
    await until('it takes none', () => scene.one<boolean>(takesNone));
    isBusy = false;
    await until('an offer was made again', () => scene.one<boolean>(`select (${OFFERS}) = 1`));
  });

  // Invariant A9.
  test('is handed nothing that is rolled back', async () => {
    const scene = await idle();
    await asleep(scene);
    using handed = probe.watch('actor.handed');
    const raiser = await session(scene);
    await raiseOpen(raiser, scene.id);
    expect(await raiser.one(RUNNING)).toBe(1);
    await raiser.client.query('rollback');
    expect(await scene.one(OFFERS)).toBe(1);
    await raise(raiser, scene.id);
    await until('it has run', () => scene.turns.length === 2);
    expect(scene.turns[1]).toEqual([1, [], 1]);
    expect(handed.hits).toHaveLength(1);
  });
});

describe('is not handed over, and runs anyway', () => {
  const ways: Record<string, (scene: Idle, engine: PostgresEngine) => Promise<unknown>> = {
    'what is raised in a transaction of the caller': ({ actors, id }, engine) =>
      engine.transaction((tx) => actors.incr(id, 'go', { tx })),
    'what SQL raises': ({ one, id }) =>
      one('select pawl.actor_incr($1)', [JSON.stringify({ actor: id, semaphore: 'go' })]),
    'an actor that does not fit into a notification': async ({ actors, query, id }) => {
      await query(`update pawl.actor_instance set fields = json_build_object('long', repeat('x', 9000))`);
      await actors.incr(id, 'go');
      return query(`update pawl.actor_instance set fields = '{}'`);
    },
    'an actor past another one of its type that has something in its inbox': async (scene) => {
      const other = await session(scene);
      // Locked, since a dispatcher that comes by removes it: there is no such actor.
      for (let held = 0; held === 0; ) {
        await scene.query(
          `insert into pawl.actor_inbox (actor, type, name) select 0, type, 'go' from pawl.actor_instance`,
        );
        await other.client.query('rollback');
        await other.client.query('begin');
        const { rowCount } = await other.client.query('select from pawl.actor_inbox where actor = 0 for update');
        held = rowCount ?? 0;
      }
      await scene.actors.incr(scene.id, 'go');
      return other.client.query('rollback');
    },
    'an actor in a state that the worker does not know': async ({ actors, query, id }) => {
      const [row] = await query<{ knows: object }>('select knows from pawl.actor_worker');
      await query(`update pawl.actor_worker set knows = '{}'`);
      await actors.incr(id, 'go');
      return query('update pawl.actor_worker set knows = $1', [JSON.stringify(row?.knows)]);
    },
    'what comes while the actor is paused': async ({ actors, id }) => {
      await actors.pause(id);
      await actors.incr(id, 'go');
      return actors.resume(id);
    },
    'what comes while its type is paused': async ({ actors, id }) => {
      await actors.pause({ type: 'thing' });
      await actors.incr(id, 'go');
      return actors.resume({ type: 'thing' });
    },
    'what comes while its state is paused': async ({ actors, id }) => {
      await actors.pause({ type: 'thing', state: 'only' });
      await actors.incr(id, 'go');
      return actors.resume({ type: 'thing', state: 'only' });
    },
  };
  test(Object.keys(ways).join('; '), async () => {
    const scene = await idle();
    const dispatcher = await asleep(scene);
    using handed = probe.watch('actor.handed');
    for (const [what, come] of Object.entries(ways)) {
      const before = scene.turns.length;
      await come(scene, scene.engine);
      dispatcher.wake();
      await until(`it has run: ${what}`, () => scene.turns.length > before);
      expect(scene.turns.slice(before), what).toEqual([[1, [], 1]]);
      expect(handed.hits, what).toEqual([]);
      await scene.offered();
    }
  });

  test('what is raised where a commit is not flushed, or the isolation is above read committed', async () => {
    const scene = await idle();
    const dispatcher = await asleep(scene);
    using handed = probe.watch('actor.handed');
    for (const setting of ['-c synchronous_commit=off', '-c default_transaction_isolation=serializable']) {
      await using engine = postgres(`${scene.url}?options=${encodeURIComponent(setting)}`, { logger: recordLog() });
      const before = scene.turns.length;
      await scene.offered();
      await createActors(engine, [scene.Thing]).incr(scene.id, 'go');
      dispatcher.wake();
      await until('it has run', () => scene.turns.length === before + 1);
    }
    expect(handed.hits).toEqual([]);
  });

  // Invariant A14.
  test('a failed actor before its floor; but to be destroyed need not wait', async () => {
    const scene = await idle();
    await asleep(scene);
    await scene.actors.incr(scene.id, 'fail');
    await until('it has failed', async () => (await scene.actors.get(scene.id)).error !== null);
    await scene.offered();
    using handed = probe.watch('actor.handed');
    await scene.actors.incr(scene.id, 'go');
    await until('it was absorbed', () => scene.one<boolean>('select count(*) = 0 from pawl.actor_inbox'));
    expect(handed.hits).toEqual([]);
    await scene.offered();
    await raise(await session(scene), scene.id, 'now');
    await handed.next();
    await until('it is in the other state and back', () => scene.turns.length === 2);
  });
});

describe('a notification that is not heard', () => {
  // Invariant A10.
  test('because its connection stands still: given back at the next poll, uncharged, and begun once', async () => {
    const scene = await idle();
    await asleep(scene, { poll: '300ms' });
    const listening = await scene.one<number>(`select pid from pg_stat_activity
      where query like '%listen%' and pid <> pg_backend_pid() and datname = current_database()`);
    process.kill(listening, 'SIGSTOP');
    try {
      using recalls = probe.watch('actor.recalled');
      for (let n = 0; n < 2; n += 1) {
        await scene.actors.incr(scene.id, 'go');
        await until('it has run', () => scene.turns.length === n + 2);
      }
      expect(recalls.hits.length).toBeGreaterThan(0);
    } finally {
      process.kill(listening, 'SIGCONT');
    }
    // What was sent arrives now, and is not believed. Then all is as before.
    using handed = probe.watch('actor.handed');
    const raiser = await session(scene);
    // A notification that comes while the worker asks what it has missed is not believed, either.
    for (let n = scene.turns.length; handed.hits.length === 0; n += 1) {
      await scene.offered();
      await raise(raiser, scene.id);
      await until('it has run', () => scene.turns.length > n);
    }
    expect(scene.turns.slice(1)).toEqual(Array.from({ length: scene.turns.length - 1 }, () => [1, [], 1]));
  });

  test('because the channel has no listener: it is not handed over', async () => {
    const scene = await idle();
    const worker = await scene.one<string>(
      `insert into pawl.actor_worker (pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
       select 1, 1, '1 h', clock_timestamp() + interval '1 h', true, 'test', array[t.id],
         json_build_object(t.id, json_build_object('only', 1, '$version', 1))::jsonb
       from pawl.actor_type t returning id::text`,
    );
    await scene.query(`update pawl.actor_instance set wake_at = null`);
    await scene.query(`select pawl.actor_offer_add($1, 1, 'x')`, [worker]);
    await scene.actors.incr(scene.id, 'go');
    expect(await scene.one(RUNNING)).toBe(0);
    expect(await scene.one('select count(*)::int from pawl.actor_inbox')).toBe(1);
    expect(await scene.one(OFFERS)).toBe(0);
  });
});

describe('a worker that was handed an actor', () => {
  test('while it looks: begins it when it has looked', async () => {
    let isReached = false;
    let letGo = (): void => {};
    const looked = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const scene = await idle();
    const dispatcher = await asleep(scene);
    using handed = probe.watch('actor.handed');
    const hang = (): Promise<void> => {
      isReached = true;
      return looked;
    };
    onTestFinished(faults.arm('actor.after_claim', hang, { occurrence: 1 }));
    dispatcher.wake();
    await until('it looks', () => isReached);
    await raise(await session(scene), scene.id);
    await handed.next();
    expect(scene.turns).toHaveLength(1);
    letGo();
    await until('it has run', () => scene.turns.length === 2);
    expect(scene.turns[1]).toEqual([1, [], 1]);
  });

  test('while it stands still for longer than its lease: does not begin it when it wakes up', async () => {
    const scene = await open(1);
    await scene.query('update pawl.actor_instance set wake_at = null');
    const paused = await scene.child({ LEASE: '1s' });
    const raiser = await session(scene);
    await until('it is handed an actor while it stands still', async () => {
      await until('an offer was made', () => scene.one<number>(OFFERS));
      paused.pause();
      // Its lease may be over already, on a busy machine; or it was stopped in the middle of a poll.
      const isHanded = await tryRaise(raiser, scene.ids[0] ?? '');
      if (!isHanded) paused.resume();
      return isHanded;
    });
    await raiser.commit();
    await scene.run({ lease: '1s' });
    await allFinal(scene);
    paused.resume();
    for (let said = await paused.message<object>(); !('lost' in said); ) said = await paused.message<object>();
    expect(await scene.one('select count(*)::int from test_turn')).toBe(0);
    await check(scene);
  });

  test('while its lease is over by its own clock: does not begin it, and gives it back if it was not declared dead', async () => {
    const scene = await idle();
    await asleep(scene, { poll: '1s' });
    const now = performance.now.bind(performance);
    onTestFinished(() => {
      performance.now = now;
    });
    const raiser = await session(scene);
    using handed = probe.watch('actor.handed');
    // A hand-off that arrives while the worker happens to poll is given back by that poll, and proves nothing.
    for (let n = 1; handed.hits.length === 0; n += 1) {
      // The next heartbeat will find that the lease is over, and the worker begin anew: then a rescue alone would find the actor.
      await probe.next('actor.beat');
      await scene.offered();
      await raiseOpen(raiser, scene.id);
      // The clock stays where it is: one that went back would keep what waits by it from waking.
      performance.now = () => now() + n * 60_000;
      await raiser.commit();
      await until('it has run', () => scene.turns.length > n);
      expect(scene.turns[n]).toEqual([1, [], 1]);
    }
  });

  test('and has no free slot any more: gives it back, uncharged, and another one runs it', async () => {
    let end = (): void => {};
    const waits = new Promise<void>((resolve) => {
      end = resolve;
    });
    const scene = await idle(waits);
    await asleep(scene, { concurrency: 1 });
    const { id: second } = await scene.actors.create(scene.Thing, {});
    await until('its first turn is over', () => scene.turns.length === 2);
    await scene.offered();
    const raiser = await session(scene);
    // The offer is in use, so it is not taken back when something else takes the slot.
    await raiseOpen(raiser, second);
    await scene.engine.transaction((tx) => scene.actors.incr(scene.id, 'wait', { tx }));
    await until('the slot is taken', () => scene.turns.length === 3);
    using handed = probe.watch('actor.handed');
    await raiser.commit();
    await handed.next();
    await until('it was given back', async () => (await scene.one(RUNNING)) === 1);
    await scene.run({ poll: NEVER });
    await until('it has run', () => scene.turns.length === 4).catch(async (cause: unknown) => {
      const [one, all] = [await scene.actors.get(second), await scene.query('select * from pawl.actor_worker')];
      throw new Error(JSON.stringify([scene.turns, one, all]), { cause });
    });
    expect(scene.turns[3]).toEqual([1, [], 1]);
    end();
  });

  test('and is being stopped: gives it back, uncharged', async () => {
    const scene = await idle();
    const dispatcher = await asleep(scene);
    const raiser = await session(scene);
    await raiseOpen(raiser, scene.id);
    const stopping = dispatcher.stop();
    const blocked = `select exists (select 1 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0 and datname = current_database())`;
    await until('the stop waits for the transaction that uses the offer', () => scene.one<boolean>(blocked));
    await raiser.commit();
    await stopping;
    expect(await scene.one(RUNNING)).toBe(0);
    expect(await scene.one('select count(*)::int from pawl.actor_worker')).toBe(0);
    await scene.run();
    await until('it has run', () => scene.turns.length === 2);
    expect(scene.turns[1]).toEqual([1, [], 1]);
  });
});

/** What happens at the same time as two raises that could both use the one offer there is. */
type Third = 'withdraw' | 'recall' | 'leave' | 'rescue' | 'pause' | 'late commit' | 'claim';
const THIRDS: readonly Third[] = ['withdraw', 'recall', 'leave', 'rescue', 'pause', 'late commit', 'claim'];
/** After these nothing may be handed over; a claim and a recall leave the offer as it is. */
const FINAL: ReadonlySet<Third> = new Set(['withdraw', 'leave', 'rescue', 'pause', 'late commit']);
const CHANNEL = 'handover';
const ORDERS = interleavings([2, 2, 2]);

/** Plays one order of two raises, of one actor or of two, and something else; throws when a promise is broken. */
async function play(stage: Stage, third: Third, isSame: boolean, order: readonly number[]): Promise<void> {
  const [director, worker] = [stage.at(0), stage.at(1)];
  await stage.clear();
  const actors = [await stage.create(), await stage.create(), await stage.create()];
  await stage.drain(2);
  stage.taken.length = 0;
  await director.client.query(`update pawl.actor_worker set expires_at = clock_timestamp() + interval '1 h';
    delete from pawl.actor_offer; select pawl.actor_offer_add(1, 1, '${CHANNEL}')`);
  let [handed, isOver] = [0, false];
  let withdrawn: string[] = [];
  let recalled: { actors: number; offers: number[] } | undefined;
  const steps: Record<Third, () => Promise<unknown>> = {
    withdraw: async () => {
      withdrawn = await worker.one('select pawl.actor_withdraw(1)');
    },
    recall: async () => {
      recalled = await worker.one(`select pawl.actor_recall(1, '{}', '{}', false)`);
    },
    leave: () => worker.one(`select pawl.actor_leave(1, '{}', '{}')`),
    rescue: () => worker.one('select pawl.actor_rescue()'),
    pause: () => worker.client.query('update pawl.actor_type set paused_at = clock_timestamp()'),
    'late commit': () => stage.incr(1, actors[2] ?? 0),
    claim: () => stage.claim(1),
  };
  const raiser = (index: number): Lane => {
    const by = stage.at(3 + index);
    const id = actors[isSame ? 0 : index];
    return {
      name: `raiser ${index}`,
      session: by,
      steps: [
        async () => {
          const wasOver = isOver;
          await by.begin();
          // A raise waits for no other transaction. Its commit may: with a notification it takes its turn among those of all databases.
          await by.client.query(`set local lock_timeout = '1ms'`);
          await by.one('select pawl.actor_incr_alone($1)', [JSON.stringify({ actor: id, semaphore: 'go' })]);
          await by.client.query('set local lock_timeout = 0');
          const usual = 'select count(*)::int from pawl.actor_inbox where xmin = pg_current_xact_id()::xid';
          const isHanded = (await by.one<number>(usual)) === 0;
          if (isHanded) handed += 1;
          if (isHanded && wasOver && FINAL.has(third)) throw new Error(`an actor was handed over after the ${third}`);
        },
        () => by.commit(),
      ],
    };
  };
  const last: Lane = {
    name: third,
    session: worker,
    steps: [
      async () => {
        if (third === 'rescue') {
          await director.client.query(`update pawl.actor_worker set expires_at = clock_timestamp() where id = 1`);
        }
        await worker.begin();
        await steps[third]();
      },
      async () => {
        await worker.commit();
        isOver = true;
      },
    ],
  };
  await interleave(director, [raiser(0), raiser(1), last], order);
  const left = await director.one<number>(OFFERS);
  const open = await director.one<number>(`${RUNNING} and worker = 1`);
  if (handed + left + withdrawn.length > 1) {
    throw new Error(`one offer became ${handed} actors, ${left} left and ${withdrawn.length} taken back`);
  }
  if (handed > 0 && recalled?.offers.includes(1) && recalled.actors > 0) {
    throw new Error('the recall gave back an actor whose notification would still be believed');
  }
  if (third === 'leave' && left + open > 0) throw new Error('something is left behind');
  await director.client.query(`update pawl.actor_type set paused_at = null;
    update pawl.actor_worker set expires_at = clock_timestamp() where id = 1`);
  await director.one('select pawl.actor_rescue()');
  if ((await director.one<number>(`${RUNNING} and worker = 1`)) > 0) throw new Error('a rescue did not find it');
  await director.client.query('update pawl.actor_instance set wake_at = clock_timestamp() where wake_at is not null');
  await stage.drain(2);
  const taken = stage.taken.reduce((sum, n) => sum + n, 0);
  if (taken !== (third === 'late commit' ? 3 : 2)) throw new Error(`${taken} raises were seen`);
  await director.client.query(`insert into pawl.actor_worker (id, pid, concurrency, lease, expires_at, wants_notify, host, types, knows)
    select 1, pid, concurrency, lease, expires_at, true, host, types, knows from pawl.actor_worker where id = 2 on conflict do nothing`);
}

async function playAll(stage: Stage, third: Third, orders: readonly (readonly number[])[]): Promise<number> {
  for (const [index, order] of orders.entries()) {
    await play(stage, third, index % 2 === 0, order).catch((cause: Error) => {
      throw new Error(`broken by the order ${order.join(' ')}: ${cause.message}`, { cause });
    });
  }
  return orders.length;
}

async function openStage(): Promise<Stage & AsyncDisposable> {
  const database: FreshDatabase = await freshDatabase();
  const stage = await Stage.open(database.url);
  await stage.at(0).one('select pg_advisory_lock_shared(hashtextextended($1, 0))', [CHANNEL]);
  return Object.assign(stage, {
    [Symbol.asyncDispose]: async () => {
      await stage.close();
      await database.drop();
    },
  });
}

describe('two raises and one offer: it is used once at most, nothing is lost, no raise waits and nothing is overtaken', () => {
  let stage: Stage & AsyncDisposable;
  beforeAll(async () => {
    stage = await openStage();
  });
  afterAll(() => stage[Symbol.asyncDispose]());

  test('and what an offer brought that the worker has given up is found by its next recall', async () => {
    await stage.clear();
    const [id] = [await stage.create(), await stage.drain(2)];
    // The commit that left the first came after a recall, and the worker has made another one since.
    for (const number of [1, 2]) await stage.at(0).one('select pawl.actor_offer_add(1, $1, $2)', [number, CHANNEL]);
    const raise = JSON.stringify({ actor: id, semaphore: 'go' });
    await stage.at(3).one('select pawl.actor_incr_alone($1)', [raise]);
    expect(await stage.at(0).one(RUNNING)).toBe(1);
    const recalled = await stage.at(1).one(`select pawl.actor_recall(1, '{}', '{}', false)`);
    expect(recalled).toMatchObject({ actors: 1, offers: [expect.any(Number)] });
    expect(await stage.drain(2)).toBe(1);
  });

  // Invariant A10.
  test.for(most(THIRDS, 'leave', 'rescue', 'late commit'))('whatever the order of them and of a %s', async (third) => {
    expect(await playAll(stage, third, LONG ? ORDERS : ORDERS.filter((_, n) => n % 11 === 0))).toBeGreaterThan(8);
  });
});

describe('the checks would notice', () => {
  /** Those in which the third comes late, and those in which it comes first. */
  const [late, early] = [ORDERS, ORDERS.toReversed()];
  const bugs = [
    [
      'a raise that uses an offer without locking it',
      'pause',
      late,
      'actor_hand_over',
      'limit 1 for update of o skip locked for key share of w skip locked',
      'limit 1',
    ],
    [
      'a raise that waits for the actor',
      'claim',
      late,
      'actor_hand_over',
      'for no key update of a skip locked',
      'for no key update of a',
    ],
    [
      'a raise that does not look at the inbox',
      'late commit',
      early,
      'actor_hand_over',
      'from pawl.actor_inbox i',
      'from pawl.actor_paused_state i',
    ],
    ['a raise that does not see a pause', 'pause', early, 'actor_hand_over', 't.paused_at is null', 'true'],
    [
      'a worker that leaves without waiting for the transaction that uses its offer',
      'leave',
      late,
      'actor_leave',
      'o.worker = p_worker;',
      'o.worker = p_worker and false;',
    ],
  ] as const;
  test.for(most(bugs, bugs[0], bugs[4]))('%s', async ([_bug, third, orders, name, from, to]) => {
    await using stage = await openStage();
    const source = await stage.at(0).one<string>(`select pg_get_functiondef('pawl.${name}'::regproc)`);
    expect(source).toContain(from);
    await stage.at(0).client.query(source.replace(from, to));
    await expect(playAll(stage, third, orders)).rejects.toThrow(/broken by the order/);
  });
});
