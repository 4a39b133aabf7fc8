import { describe, expect, test } from 'vitest';
import { actor, createActors } from '../../../src/actor/index.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { until } from '../../support/eventually.ts';
import { most } from '../../support/long.ts';
import { type Child, spawnChild } from '../../support/process.ts';
import { COMMIT, type Proxy, startProxy } from '../../support/proxy.ts';
import { allFinal, check, open } from '../model/walk.ts';
import { walker } from '../model/walker.ts';
import { openScene } from '../scene.ts';

/** Lease 1 s, a rescue every 0.6 s at most, a poll of 0.2 s; the rest is for a busy machine. */
const BOUND_MS = 1000 + 625 + 200 + 8000;

const STEPS = [
  'actor.after_register',
  'actor.after_claim',
  'actor.before_commit',
  'actor.between_effects',
  'actor.before_commit_sent',
  'actor.after_commit',
  'actor.before_beat',
];

describe('a process is killed', () => {
  // Invariant A3.
  test.for(most(STEPS, 'actor.after_claim', 'actor.between_effects', 'actor.before_commit_sent', 'actor.before_beat'))(
    'at %s: its actors go on elsewhere, and no step is lost or taken twice',
    async (point) => {
      const scene = await open(6);
      const nth = point === 'actor.after_register' || point === 'actor.before_beat' ? '' : '#2';
      const slow = point === 'actor.before_beat' ? '150' : '0';
      const victim = await scene.child({ PAWL_FAULT: `${point}:kill${nth}`, SLOW: slow }).catch(() => undefined);
      await victim?.exited;
      await scene.run({ lease: '1s' });
      expect(await allFinal(scene)).toBeLessThan(BOUND_MS);
      await check(scene);
      await until(
        'the dead process is forgotten',
        async () => (await scene.one('select count(*)::int from pawl.actor_worker')) === 1,
      );
    },
  );

  // Invariant A3.
  test('while bodies run: they are run again, in the same visit', async () => {
    const scene = await open(3);
    const victim = await scene.child({ SLOW: '60000' });
    // A lease of a second may end on a busy machine: then they run once more before the kill.
    await until('bodies run', () => scene.one('select count(distinct actor) = 3 from test_turn'));
    await victim.kill();
    await scene.child();
    await allFinal(scene);
    await check(scene);
    const first = await scene.query<{ n: number }>(
      'select count(*)::int as n from test_turn where visit = 1 group by actor',
    );
    expect(Math.min(...first.map(({ n }) => n))).toBeGreaterThanOrEqual(2);
    expect((await scene.actors.history(scene.ids[0] ?? '')).map(({ reason }) => reason)).toContain('worker lost');
  });
});

test("a process dies in a body with hold: 'transaction': the actor is run elsewhere without waiting for a lease, the attempt spent", async () => {
  const scene = await open(2);
  const victim = await scene.child({ WAITS: 'held', LEASE: '1h' });
  const held = `select count(*)::int from test_turn t join pawl.actor a on a.id = t.actor where a.state = 'held' and t.visit = 4`;
  await until('both bodies hold their rows', async () => (await scene.one(held)) === 2);
  expect((await scene.actors.get(scene.ids[0] ?? '')).status).toBe('running');
  expect((await scene.actors.explain(scene.ids[0] ?? '')).reasons.join()).toMatch(/a turn of it is running in/);
  // Others may look as long as they like while the rows are locked.
  await scene.run({ lease: '1h', poll: '50ms' });
  await victim.kill();
  expect(await allFinal(scene)).toBeLessThan(1000 + 50 + 8000);
  await check(scene);
  // Whose process died has spent a turn: its epoch stands between that which led there and that which led on.
  for (const id of scene.ids) {
    const history = await scene.actors.history(id);
    const epochOf = (state: string): number => history.find(({ to }) => to === state)?.epoch ?? Number.NaN;
    expect(epochOf('four') - epochOf('held')).toBe(2);
  }
});

// Invariant A2.
test('a process that stands still past its lease changes nothing when it comes back, and is told', async () => {
  const scene = await open(3);
  const sleeper = await scene.child({ PAWL_FAULT: 'actor.before_commit:stop#1' });
  await until('it has stopped itself', () => sleeper.stderr().includes('PAWL_FAULT reached'));
  await scene.run({ lease: '1s' });
  await allFinal(scene);
  sleeper.resume();
  const wasTold = (said: object): boolean => 'lost' in said || 'stale' in said;
  for (let said = await sleeper.message<object>(); !wasTold(said); ) said = await sleeper.message<object>();
  await check(scene);
});

test("a process stands still in a body with hold: 'transaction': a worker that finds its lease over ends that, and runs the actor", async () => {
  const scene = await open(2);
  const sleeper = await scene.child({ WAITS: 'held', HELD: '1h' });
  // A lease of a second may end on a busy machine: then they run once more.
  const held = `select count(distinct t.actor)::int from test_turn t join pawl.actor a on a.id = t.actor where a.state = 'held' and t.visit = 4`;
  await until('both bodies hold their rows', async () => (await scene.one(held)) === 2);
  sleeper.pause();
  await scene.run({ lease: '1s' });
  // Due again a second after it began, at the earliest.
  expect(await allFinal(scene)).toBeLessThan(1000 + BOUND_MS);
  sleeper.resume();
  await check(scene);
});

test('a process that wakes after its lease begins nothing of what it had claimed', async () => {
  const scene = await open(3);
  const sleeper = await scene.child({ PAWL_FAULT: 'actor.after_claim:stop#1' });
  await until('it has stopped itself', () => sleeper.stderr().includes('PAWL_FAULT reached'));
  const helper = await scene.run({ lease: '1s' });
  await allFinal(scene);
  await helper.stop();
  sleeper.resume();
  for (let said = await sleeper.message<object>(); !('lost' in said); ) said = await sleeper.message<object>();
  expect(await scene.one('select count(*)::int from test_turn where pid = $1', [sleeper.pid])).toBe(0);
  await check(scene);
});

test('a process stands still in the middle of a commit that others need the page of: they go on', async () => {
  const Pager = actor('pager', {
    initial: 'only',
    backoff: { min: '10ms', max: '100ms' },
    states: (state) => ({ only: state({ run: () => Promise.reject(new Error('the child runs it')) }) }),
  });
  const scene = await openScene([Pager]);
  const page = await scene.actors.page({ tag: 'shared', summary: 'seen' });
  expect(page.news).toBe('opened');
  const first = await scene.actors.create(Pager, {});
  const sleeper = spawnChild('actor/pages/pager.child.ts', [], {
    URL: scene.url,
    PAWL_FAULT: 'actor.between_effects:stop#2',
  });
  await until('it has stopped itself', () => sleeper.stderr().includes('PAWL_FAULT reached'));
  const helper = spawnChild('actor/pages/pager.child.ts', [], { URL: scene.url });
  await helper.message();
  const others = [];
  for (let n = 0; n < 10; n += 1) others.push(await scene.actors.create(Pager, { pages: n < 5 }));
  for (const one of others.slice(5)) await scene.actors.waitFor(one);
  for (const one of [first, ...others]) await scene.actors.waitFor(one, { timeout: '60s' });
  sleeper.resume();
});

// Invariant A26.
test('clocks of processes that are wrong, or run too fast, change nothing: the database tells the time', async () => {
  const scene = await open(0);
  for (const env of [{ SKEW: '600000', RATE: '1.1' }, { SKEW: '-600000' }])
    await scene.child({ SLOW: '100', CONCURRENCY: '6', LEASE: '20s', ...env });
  // Of so few one process takes all where the other stands still for a moment.
  await until('both have run some', async () => {
    await scene.create(12);
    await allFinal(scene);
    return scene.one('select count(distinct pid) = 2 from test_turn');
  });
  await check(scene);
  expect(
    await scene.one(`select count(*)::int from pawl.actor_transition where reason not in ('created', 'to', 'done')`),
  ).toBe(0);
});

// Invariant A18.
test('a body that blocks its process is taken over by others, and so are its neighbours', async () => {
  const scene = await open(4);
  const blocked = await scene.child({ BLOCKS: 'two', CONCURRENCY: '2' });
  await until(
    'a body blocks',
    async () => (await scene.one<number>('select count(*)::int from test_turn where visit = 2')) > 0,
  );
  await scene.run({ lease: '1s' });
  expect(await allFinal(scene)).toBeLessThan(BOUND_MS);
  await blocked.kill();
  await check(scene);
});

// Invariant A25.
test('the connections of a dispatcher are broken again and again, and nothing is lost', async () => {
  const scene = await open(20);
  await scene.child({ SLOW: '20' });
  let isDone = false;
  const breaking = (async () => {
    // Not for ever: a slow machine would get nothing done in between.
    for (let breaks = 0; breaks < 40 && !isDone; breaks += 1) {
      await scene
        .query(
          `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pawl' and pid <> pg_backend_pid()
           and datname = current_database() and query like '-- actor.%' and random() < 0.5`,
        )
        .catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 150));
    }
  })();
  await allFinal(scene, 60_000).finally(() => {
    isDone = true;
  });
  await breaking;
  await check(scene);
});

// Invariant A4.
test('the answer to a commit is lost: it is not applied twice', async () => {
  const scene = await open(8);
  const proxy = await startProxy(scene.url);
  const engine = postgres(proxy.url, { max: 6, logger: { debug() {}, info() {}, warn() {}, error() {} } });
  // Long enough for each statement to be lost before the last walker has passed it, mostly.
  const { Walker: Own, Companion: Other } = walker(() => new Promise((resolve) => setTimeout(resolve, 25)));
  const actors = createActors(engine, [Own, Other]);
  // Few slots: one that a lost answer kept would soon be missed.
  const dispatcher = actors.run({ lease: '1s', poll: '100ms', concurrency: 2 });
  try {
    await dispatcher.started;
    let isDone = false;
    // Of a commit with effects it is the COMMIT itself that is not answered.
    const statements = [COMMIT, 'pawl:actor.claim', 'pawl:actor.remember', 'pawl:actor.commit'];
    const lost = new Set<string>();
    const losing = (async () => {
      for (let n = 0; !isDone; n += 1) {
        const statement = statements[n % statements.length] ?? '';
        if (await losesOne(proxy, statement, () => isDone)) lost.add(statement);
        await new Promise((resolve) => setTimeout(resolve, 25));
      }
    })();
    const walk = async (): Promise<void> => {
      await allFinal(scene, 60_000);
      if (lost.size === statements.length) return;
      // All have passed one of the statements before its turn to be lost came.
      await scene.create(8);
      return walk();
    };
    await walk().finally(() => {
      isDone = true;
    });
    await losing;
    expect([...lost]).toEqual(statements);
    await check(scene);
  } finally {
    await dispatcher.stop({ timeout: 0 });
    await engine.stop();
    await proxy.stop();
  }
});

/** Loses the answer to the next such statement, if there is one before the end. */
async function losesOne(proxy: Proxy, statement: string, isOver: () => boolean): Promise<boolean> {
  const before = proxy.lost;
  proxy.loseAnswerTo(statement);
  await until('the answer is lost', async () => proxy.lost > before || isOver(), 60_000);
  proxy.loseAnswerTo('\0 nothing holds this');
  return proxy.lost > before;
}

// Invariant A1.
test('of many processes some are killed and some stand still at random moments: every step is taken once', async () => {
  const scene = await open(40);
  const children: Child[] = [];
  // A process that stands still in a body with hold: 'transaction' keeps its row for that body's time, 3 min if not declared, and 5 s.
  const env = { SLOW: '10', CONCURRENCY: '6', HELD: '5s' };
  for (let n = 0; n < 4; n += 1) children.push(await scene.child(env));
  let seed = 7;
  const random = (): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2 ** 31;
    return seed / 2 ** 31;
  };
  for (const [index, victim] of children.slice(0, 3).entries()) {
    await new Promise((resolve) => setTimeout(resolve, 50 + random() * 200));
    if (index === 1) victim.pause();
    else await victim.kill();
    for (const id of scene.ids.slice(0, 5)) await scene.actors.incr(id, 'go').catch(() => {});
  }
  await scene.child({ SLOW: '10', HELD: '5s' });
  await allFinal(scene, 60_000);
  children[1]?.resume();
  await check(scene);
});
