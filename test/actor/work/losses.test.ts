import { describe, expect, onTestFinished, test } from 'vitest';
import { type ActorDefinition, actor, type Dispatcher, type LooseFields, type Turn } from '../../../src/actor/index.ts';
import { postgresWriter } from '../../../src/actor/postgres/backend.ts';
import { PostgresActorStore } from '../../../src/actor/postgres/store.ts';
import { Keeper } from '../../../src/actor/work/keeper.ts';
import { runManualTurn, type WorkedTurn } from '../../../src/actor/work/manual-turn.ts';
import { ConnectionFailed, LeaseLost, Stopped, TimedOut } from '../../../src/base/errors.ts';
import { faults } from '../../../src/base/fault.ts';
import { probe } from '../../../src/base/probe.ts';
import { aborted, until } from '../../support/eventually.ts';
import { wallClock } from '../../support/time/wall-clock.ts';
import { type ActorScene, openScene } from '../scene.ts';

type Body = (a: Turn<LooseFields, string, 'after'>) => unknown;

/** An actor whose first body is the test's. */
function make(body: Body, hold?: 'transaction'): ActorDefinition {
  return actor('lost', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '1h', jitter: 0 },
    states: (state) => ({
      only: state({ to: ['after'], hold, timeout: '30s', run: body as never }),
      after: state({ run: (a) => a.hibernate() }),
    }),
  });
}

/** What the test lets go on, and whether somebody waits for it. */
function gate(): { readonly passed: () => Promise<void>; readonly open: () => void; readonly waiting: () => boolean } {
  let open = (): void => {};
  let isWaiting = false;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const passed = (): Promise<void> => {
    isWaiting = true;
    return opened;
  };
  return { passed, open: () => open(), waiting: () => isWaiting };
}

/** What is running belongs to no worker from now on: due again. */
async function disown(scene: ActorScene): Promise<void> {
  await scene.query(
    `select pawl.actor_give_back_except(a.worker, '{}') from pawl.actor_instance a where a.worker is not null`,
  );
}

function told(dispatcher: Dispatcher): { readonly stale: string[]; readonly turns: string[]; lost: number } {
  const all = { stale: [] as string[], turns: [] as string[], lost: 0 };
  dispatcher.events.on('stale', ({ actors }) => all.stale.push(...actors));
  dispatcher.events.on('turn', ({ kind, from, to }) => all.turns.push(`${kind} ${from} ${to}`));
  dispatcher.events.on('lost', () => {
    all.lost += 1;
  });
  return all;
}

describe('a turn that is somebody else’s by now', () => {
  // Invariant A2.
  test.each([
    ['alone', false],
    ['with effects', true],
  ])('changes nothing when it is committed %s, and is told as stale', async (_how, hasEffects) => {
    const { passed, open, waiting } = gate();
    const Lost = make(async (a) => {
      const isFirst = !waiting();
      await passed();
      if (hasEffects) a.page({ tag: 'lost', summary: 'seen' });
      return a.to('after', { isFirst });
    });
    const scene = await openScene([Lost]);
    const one = await scene.actors.create(Lost, {});
    const dispatcher = await scene.run({ concurrency: 1 });
    const seen = told(dispatcher);
    await until('the body runs', waiting);
    await disown(scene);
    open();
    await scene.actors.waitFor(one, { state: 'after', status: 'hibernating' });
    expect(await scene.actors.get(one)).toMatchObject({ fields: { isFirst: false } });
    expect(seen.stale).toEqual([one.id]);
    await until('its outcome is told', () => seen.turns.length === 2);
    expect(seen.turns).toEqual(['to only after', 'stay after after']);
    expect(await scene.actors.pages()).toHaveLength(hasEffects ? 1 : 0);
  });

  test('ends when guard() says so, whatever the body makes of that', async () => {
    let tries = 0;
    const Lost = make(async (a) => {
      tries += 1;
      if (tries === 1) {
        await disown(scene);
        await scene.engine.transaction((tx) => a.guard(tx)).catch(() => {});
        expect(a.signal.reason).toBeInstanceOf(LeaseLost);
      }
      return a.done(tries);
    });
    const scene = await openScene([Lost]);
    const one = await scene.actors.create(Lost, {});
    const seen = told(await scene.run());
    expect(await scene.actors.waitFor(one)).toMatchObject({ result: 2, attempt: 0 });
    await until('the first turn has ended, too', () => seen.stale.length > 0);
    expect(seen.stale).toEqual([one.id]);
  });

  test('is not begun with its row locked, and told as stale', async () => {
    let turns = 0;
    const Lost = make((a) => {
      turns += 1;
      return a.done();
    }, 'transaction');
    const scene = await openScene([Lost]);
    onTestFinished(faults.arm('actor.after_claim', () => disown(scene), { occurrence: 1 }));
    const one = await scene.actors.create(Lost, {});
    const seen = told(await scene.run());
    await scene.actors.waitFor(one);
    await until('the answer to the first is there, too', () => seen.stale.length > 0);
    expect(seen.stale).toEqual([one.id]);
    expect(turns).toBe(1);
  });

  test("leaves nothing of what it wrote with hold: 'transaction'", async () => {
    const ended = gate();
    const Lost = make(async (a) => {
      await a.tx.client.query({ text: 'insert into note values (1)', values: [] });
      a.signal.addEventListener('abort', ended.open);
      await ended.passed();
      throw a.signal.reason;
    }, 'transaction');
    const scene = await openScene([Lost]);
    await scene.query('create table note (id bigint)');
    await scene.actors.create(Lost, {});
    const dispatcher = await scene.run();
    await until('it has written', ended.waiting);
    dispatcher.abandon();
    await until('its row is free', () =>
      scene.one(`select count(*)::int = 1 from (select 1 from pawl.actor_instance for update skip locked) x`),
    );
    expect(await scene.one('select count(*)::int from note')).toBe(0);
  });

  // Invariant A4.
  test('is committed once when its worker dies with the commit under way', async () => {
    const { passed, open, waiting } = gate();
    onTestFinished(faults.arm('actor.before_commit_sent', passed, { occurrence: 1 }));
    const Lost = make((a) => {
      a.page({ tag: 'lost', summary: 'seen' });
      return a.to('after');
    });
    const scene = await openScene([Lost]);
    const one = await scene.actors.create(Lost, {});
    const dispatcher = await scene.run();
    const seen = told(dispatcher);
    await until('its commit is under way', waiting);
    dispatcher.abandon();
    open();
    await scene.actors.waitFor(one, { state: 'after' });
    expect(await scene.actors.pages()).toHaveLength(1);
    expect(seen.turns).toEqual([]);
  });
});

test.each([
  ['alone', false],
  ['with effects', true],
])('a commit %s that fails when its worker is no more is not tried again', async (_how, hasEffects) => {
  const { passed, open, waiting } = gate();
  let commits = 0;
  const disarm = faults.arm('actor.before_commit', async () => {
    commits += 1;
    await passed();
    throw new ConnectionFailed('the connection is gone');
  });
  onTestFinished(disarm);
  const Lost = make((a) => {
    if (hasEffects) a.page({ tag: 'lost', summary: 'seen' });
    return a.to('after');
  });
  const scene = await openScene([Lost]);
  const one = await scene.actors.create(Lost, {});
  const dispatcher = await scene.run();
  await until('its commit is under way', waiting);
  dispatcher.abandon();
  open();
  await scene.query('update pawl.actor_worker set expires_at = clock_timestamp()');
  await until('it is rescued', () => scene.one('select pawl.actor_rescue()'));
  expect(commits).toBe(1);
  expect(await scene.actors.get(one)).toMatchObject({ state: 'only', status: 'backing off', attempt: 1 });
});

describe('a turn by hand', () => {
  test('survives a heartbeat that fails, and ends with the one that is refused', async () => {
    let beats = 0;
    const disarm = faults.arm('actor.before_beat', () => {
      beats += 1;
      if (beats === 1) throw new Error('not this time');
    });
    onTestFinished(disarm);
    const reasons: unknown[] = [];
    const Lost = make(async (a) => {
      // Unless this process stood still for longer than the lease.
      await until('two heartbeats were tried', () => beats >= 2 || a.signal.aborted);
      await scene.query('delete from pawl.actor_worker');
      await aborted(a.signal);
      reasons.push(a.signal.reason);
      return a.done();
    });
    const scene = await openScene([Lost]);
    const { id } = await scene.actors.create(Lost, {});
    const store = new PostgresActorStore(scene.engine);
    const worked: Promise<WorkedTurn | undefined> = runManualTurn({
      store,
      keeper: new Keeper(store, 1000),
      writer: postgresWriter(store),
      owner: {} as never,
      types: await store.register([Lost]),
      actor: Number(id),
      show: () => scene.actors.get(id),
    });
    await expect(worked).rejects.toThrow(LeaseLost);
    await until('its body was told', () => reasons.length > 0);
    expect(reasons[0]).toBeInstanceOf(LeaseLost);
  });

  test('of a type that this program does not have is refused', async () => {
    const Lost = make((a) => a.done());
    const scene = await openScene([Lost]);
    const one = await scene.actors.create(Lost, {});
    const Other = actor('other', { initial: 'only', states: (state) => ({ only: state({ run: (a) => a.done() }) }) });
    const { actors } = await openScene([Other], { url: scene.url });
    await expect(actors.work(one)).rejects.toThrow(/actor \d+ is in state "only", which no running program knows/);
    expect(await scene.actors.get(one)).toMatchObject({ status: 'held' });
  });
});

test.each([
  ['a lock was lost', new LeaseLost('lock "x" was lost')],
  ['a queue was stopped', new Stopped('the queue was stopped')],
])('a body that comes across %s has failed: its turn is still its own', async (_what, error) => {
  const Lost = make(() => {
    throw error;
  });
  const scene = await openScene([Lost]);
  const one = await scene.actors.create(Lost, {});
  await scene.run();
  await scene.actors.waitFor(one, { state: 'only', status: 'backing off' });
  expect(await scene.actors.get(one)).toMatchObject({ attempt: 1, error: expect.stringContaining(error.message) });
});

test('a body that ends after its time without having asked for a signal has timed out', async () => {
  const seen: unknown[] = [];
  const Late = actor('late', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '1h', jitter: 0 },
    states: (state) => ({
      only: state({
        timeout: '20ms',
        run: async (a) => {
          await new Promise((resolve) => setTimeout(resolve, 200));
          if (a.attempt === 1) seen.push(a.signal.reason);
          return a.done();
        },
      }),
    }),
  });
  const scene = await openScene([Late]);
  for (let n = 0; n < 2; n += 1) {
    const one = await scene.actors.create(Late, {});
    if (n === 1) await scene.query('update pawl.actor_instance set attempt = 1 where id = $1', [one.id]);
    expect(await scene.actors.work(one)).toMatchObject({ kind: 'failed', error: expect.any(TimedOut) });
  }
  expect(seen).toEqual([expect.any(TimedOut)]);
});

test('a dispatcher whose time to stop is up gives back what it was still checking the fields of', async () => {
  const { passed, open, waiting } = gate();
  let begun = 0;
  const Slow = actor('slow', {
    fields: {
      '~standard': {
        version: 1,
        vendor: 'test',
        validate: async (value: unknown) => {
          if (scene !== undefined) await passed();
          return { value: value as object };
        },
      },
    },
    initial: 'only',
    states: (state) => ({
      only: state({
        run: (a) => {
          begun += 1;
          return a.done();
        },
      }),
    }),
  });
  let scene: ActorScene | undefined;
  const opened = await openScene([Slow]);
  const one = await opened.actors.create(Slow, {});
  scene = opened;
  const dispatcher = await scene.run();
  await until('its fields are checked', waiting);
  const isUp = probe.next('actor.time_up', undefined, { timeoutMs: 50_000 });
  const stopping = dispatcher.stop({ timeout: 0 });
  await isUp;
  open();
  await stopping;
  expect(begun).toBe(0);
  expect(await scene.actors.get(one)).toMatchObject({ status: 'due', attempt: 0, error: null });
});

test('a keeper whose workers are all about to register anew has nothing to say', async () => {
  const scene = await openScene([make((a) => a.done())]);
  using beats = probe.watch('actor.beat');
  let asked = 0;
  const kept = {
    get workerId() {
      asked += 1;
      return undefined;
    },
    wantsNotify: false,
    lost() {},
    onError() {},
  };
  const keeper = new Keeper(new PostgresActorStore(scene.engine), 300);
  keeper.add(kept);
  onTestFinished(() => keeper.remove(kept));
  await until('two heartbeats are over', () => asked >= 3);
  expect(beats.hits).toEqual([]);
});

test('a heartbeat turns the notifications of its worker on, and one that comes late does not turn them off', async () => {
  const scene = await openScene([make((a) => a.done())]);
  await scene.run({ lease: '1h' });
  const beat = 'select pawl.actor_beat(array[w.id], array[$1::boolean]) = array[w.id] from pawl.actor_worker w';
  for (const [before, said, after] of [
    [false, false, false],
    [false, true, true],
    [true, false, true],
  ]) {
    await scene.query('update pawl.actor_worker set wants_notify = $1', [before]);
    expect(await scene.one(beat, [said])).toBe(true);
    expect(await scene.one('select wants_notify from pawl.actor_worker'), `${before}, ${said}`).toBe(after);
  }
});

test('a keeper removes history that is over, until there is none', async () => {
  const Short = actor('short', {
    initial: 'only',
    history: '1s',
    states: (state) => ({ only: state({ run: (a) => a.done() }) }),
  });
  const scene = await openScene([Short]);
  await scene.actors.work(await scene.actors.create(Short, {}));
  await scene.query(`update pawl.actor_instance set finished_at = finished_at - interval '2 s'`);
  await scene.query(`update pawl.actor_transition set at = at - interval '2 s'`);
  const keeper = new Keeper(new PostgresActorStore(scene.engine), 1000, 0);
  const kept = { workerId: undefined, wantsNotify: false, lost() {}, onError() {} };
  keeper.add(kept, { rescued() {}, suspected() {} });
  onTestFinished(() => keeper.remove(kept));
  await until('nothing is left', () =>
    scene.one(`select not exists (select from pawl.actor_instance) and not exists (select from pawl.actor_transition)`),
  );
});

// Invariant A2.
test('a machine that was suspended between two turns begins none that it had claimed before, though no timer could run yet', async () => {
  const clock = wallClock();
  const events: string[] = [];
  const Asleep = actor('asleep', {
    initial: 'only',
    // What is not given back by then is found by a rescue.
    backoff: { min: 10, max: 20 },
    states: (state) => ({
      only: state({
        to: ['after'],
        run: (a) => {
          events.push('begun');
          if (events.filter((event) => event === 'begun').length === 1) clock.suspend(60_000);
          return a.to('after');
        },
      }),
      after: state({ run: (a) => a.hibernate() }),
    }),
  });
  const scene = await openScene([Asleep]);
  const all = [await scene.actors.create(Asleep, {}), await scene.actors.create(Asleep, {})];
  using claims = probe.watch('actor.claimed');
  const dispatcher = await scene.run({ concurrency: 2, lease: '10s' });
  dispatcher.events.on('lost', () => events.push('lost'));
  await until('the dispatcher finds that its lease is over', () => events.includes('lost'));
  expect(claims.hits[0]).toMatchObject({ actors: 2 });
  expect(events.slice(0, 2)).toEqual(['begun', 'lost']);
  for (const one of all) await scene.actors.waitFor(one, { state: 'after', status: 'hibernating' });
});
