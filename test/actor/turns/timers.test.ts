import { describe, expect, test } from 'vitest';
import { type ActorDefinition, actor, type Outcome, type Turn } from '../../../src/actor/index.ts';
import type { LooseFields } from '../../../src/actor/kind.ts';
import { InvalidInput } from '../../../src/base/errors.ts';
import { world } from '../../../src/testing/index.ts';
import { PostgresWorld } from '../../../src/testing/postgres.ts';
import { freshDatabase } from '../../support/database.ts';
import { until } from '../../support/eventually.ts';
import { wallClock } from '../../support/time/wall-clock.ts';
import { type ActorScene, openScene } from '../scene.ts';

type Body = (a: Turn<LooseFields, 'go', 'after'>) => Outcome<'after'> | Promise<Outcome<'after'>>;

/** One state whose body is given by the test, and one that follows. */
function clock(run: Body): ActorDefinition<LooseFields, 'go'> {
  return actor('clock', {
    semaphores: ['go'],
    initial: 'only',
    backoff: { min: '1h' },
    states: (state) => ({
      only: state({ to: ['after'], run }),
      after: state({ run: (a) => a.hibernate({ left: [...a.fired] }) }),
    }),
  });
}

interface TimerScene extends ActorScene {
  readonly id: string;
  /** Lets time pass in the database. */
  readonly pass: (ms: number) => Promise<void>;
  /** Runs a turn if one is due. @returns what it came to */
  readonly turn: () => Promise<string | undefined>;
  readonly wakesInMs: () => Promise<number | null>;
}

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

async function open(run: Body): Promise<TimerScene> {
  const definition = clock(run);
  const scene = await openScene([definition]);
  const { id } = await scene.actors.create(definition, {});
  const time = new PostgresWorld(scene.engine);
  const due = (): Promise<boolean> =>
    scene.one('select coalesce(wake_at <= clock_timestamp(), false) from pawl.actor_instance');
  return {
    ...scene,
    id,
    pass: (ms) => time.shift(ms),
    turn: async () => ((await due()) ? (await scene.actors.work(id))?.kind : undefined),
    wakesInMs: async () => (await scene.actors.get(id)).dueInMs,
  };
}

// Invariant A30.
describe('a timer', () => {
  test('passes when its time is over, whatever wakes the actor before', async () => {
    const seen: boolean[] = [];
    const { actors, id, pass, turn } = await open((a) => {
      seen.push(a.timer('over', '1h'));
      a.take('go');
      return seen.at(-1) === true ? a.to('after') : a.hibernate();
    });
    expect(await turn()).toBe('stay');
    await actors.incr(id, 'go');
    await actors.work(id);
    await pass(30 * MINUTE);
    await actors.send(id, 'hello');
    await actors.work(id);
    expect(await turn()).toBeUndefined();
    await pass(30 * MINUTE);
    expect(await turn()).toBe('to');
    expect(seen).toEqual([false, false, false, true]);
  });

  test('counts since the visit began, though the first turns of it failed', async () => {
    let turns = 0;
    const { pass, turn, wakesInMs } = await open((a) => {
      turns += 1;
      if (turns <= 2) throw new Error('not yet');
      return a.timer('over', '3h') ? a.to('after') : a.hibernate();
    });
    expect(await turn()).toBe('failed');
    await pass(HOUR);
    expect(await turn()).toBe('failed');
    await pass(HOUR);
    expect(await turn()).toBe('stay');
    expect(await wakesInMs()).toBeGreaterThan(59 * MINUTE);
    expect(await wakesInMs()).toBeLessThanOrEqual(HOUR);
  });

  test('is not lost by a turn that does not ask for it', async () => {
    let asks = true;
    const { actors, id, pass, turn, wakesInMs } = await open((a) => {
      if (!asks) return a.hibernate();
      return a.timer('over', '1h') ? a.to('after') : a.hibernate();
    });
    await turn();
    asks = false;
    await actors.send(id, 'hello');
    await actors.work(id);
    expect(await wakesInMs()).toBeGreaterThan(59 * MINUTE);
    asks = true;
    await pass(HOUR);
    expect(await turn()).toBe('to');
  });

  test('that has passed wakes once, and is told to every turn until the state is left', async () => {
    const fired: (readonly string[])[] = [];
    const { actors, id, pass, turn, wakesInMs } = await open((a) => {
      fired.push(a.fired);
      a.timer('over', '1h');
      return a.hibernate();
    });
    await turn();
    await pass(HOUR);
    await turn();
    expect(await wakesInMs()).toBeNull();
    await actors.send(id, 'hello');
    await actors.work(id);
    expect(fired).toEqual([[], ['over'], ['over']]);
  });

  test('is one of several: each wakes, and what has passed is told in its order', async () => {
    const fired: (readonly string[])[] = [];
    const { actors, id, pass, turn } = await open((a) => {
      fired.push(a.fired);
      a.timer('third', '3h');
      a.timer('first', '1h');
      a.timer('second', '2h');
      return a.nap('10h');
    });
    await turn();
    expect(Object.keys((await actors.get(id)).timers)).toEqual(['first', 'second', 'third']);
    await pass(HOUR);
    expect(await turn()).toBe('stay');
    expect(await turn()).toBeUndefined();
    await pass(2 * HOUR);
    expect(await turn()).toBe('stay');
    expect(fired).toEqual([[], ['first'], ['first', 'second', 'third']]);
  });

  test('wakes before the end of a nap and of "every", and they before it', async () => {
    let nap: '10m' | '2h' = '10m';
    const { pass, turn, wakesInMs } = await open((a) => {
      a.timer('over', '1h');
      return a.nap(nap);
    });
    await turn();
    expect(await wakesInMs()).toBeLessThanOrEqual(10 * MINUTE);
    nap = '2h';
    await pass(10 * MINUTE);
    await turn();
    expect(await wakesInMs()).toBeLessThanOrEqual(50 * MINUTE);
  });

  test('that repeats passes once each time, and what passed several times in between counts once', async () => {
    const seen: boolean[] = [];
    const { actors, id, pass, turn, wakesInMs } = await open((a) => {
      seen.push(a.timer('remind', '1h', { repeat: true }));
      return a.hibernate();
    });
    await turn();
    await pass(HOUR);
    expect(await turn()).toBe('stay');
    await actors.send(id, 'hello');
    await actors.work(id);
    await pass(3.5 * HOUR);
    expect(await turn()).toBe('stay');
    expect(seen).toEqual([false, true, false, true]);
    // The beat goes on from the beginning, and not from when a turn came.
    expect(await wakesInMs()).toBeLessThanOrEqual(30 * MINUTE);
  });

  test('that repeats and passed in a turn that fails is told to the next try', async () => {
    let fails = false;
    const seen: boolean[] = [];
    const { pass, turn } = await open((a) => {
      seen.push(a.timer('remind', '2h', { repeat: true }));
      if (fails) throw new Error('not yet');
      return a.hibernate();
    });
    await turn();
    await pass(2 * HOUR);
    fails = true;
    expect(await turn()).toBe('failed');
    fails = false;
    await pass(HOUR);
    expect(await turn()).toBe('stay');
    expect(seen).toEqual([false, true, true]);
  });

  test('that is cancelled wakes no actor, and counts from then on when it is asked for again', async () => {
    const left: boolean[] = [];
    const { actors, id, pass, turn, wakesInMs } = await open(async (a) => {
      const [said] = await a.receive('more');
      if (said !== undefined) left.push(a.cancelTimer('idle'));
      if ((await a.receive('quiet')).length > 0) return a.hibernate();
      return a.timer('idle', '1h') ? a.to('after') : a.hibernate();
    });
    await turn();
    await pass(40 * MINUTE);
    await actors.send(id, 'more');
    await actors.work(id);
    await pass(40 * MINUTE);
    expect(await turn()).toBeUndefined();
    await actors.send(id, 'more');
    await actors.send(id, 'quiet');
    await actors.work(id);
    expect(left).toEqual([true, true]);
    expect(await wakesInMs()).toBeNull();
    expect((await actors.get(id)).timers).toEqual({});
    expect(await turn()).toBeUndefined();
  });

  test('counts from a given moment of the database, once it runs whatever is given later', async () => {
    const { actors, id, pass, turn } = await open(async (a) => {
      const [asked] = await a.receive('pay');
      if (asked !== undefined) a.timer('pay', '1h', { from: asked.at });
      else if (a.fired.length === 0) a.timer('pay', '1h', { from: a.now });
      return a.fired.includes('pay') ? a.to('after') : a.hibernate();
    });
    await actors.send(id, 'pay');
    await pass(30 * MINUTE);
    await actors.work(id);
    await actors.send(id, 'other');
    await actors.work(id);
    await pass(29 * MINUTE);
    expect(await turn()).toBeUndefined();
    await pass(MINUTE);
    expect(await turn()).toBe('to');
  });

  test('ends with its visit', async () => {
    const { actors, id, turn } = await open((a) => {
      a.timer('over', '1h');
      return a.to('after');
    });
    await turn();
    await turn();
    expect(await actors.get(id)).toMatchObject({ state: 'after', timers: {}, fields: { left: [] }, wakeAt: null });
  });

  test('takes the time that the program declares now, and not that of an older version', async () => {
    let time: '2h' | '1h' = '2h';
    const { actors, id, pass, turn } = await open((a) => (a.timer('over', time) ? a.to('after') : a.hibernate()));
    await turn();
    time = '1h';
    await pass(HOUR);
    await actors.send(id, 'a new version runs a turn');
    expect((await actors.work(id))?.kind).toBe('to');
  });

  // Invariant A26.
  test('is judged by the clock of the database, whatever that of the process says', async () => {
    const host = wallClock();
    const seen: boolean[] = [];
    const { actors, id, pass, turn } = await open((a) => {
      seen.push(a.timer('over', '1h'));
      return a.hibernate();
    });
    await turn();
    host.step(2 * HOUR);
    await actors.send(id, 'hello');
    await actors.work(id);
    host.step(-4 * HOUR);
    await pass(HOUR);
    await turn();
    expect(seen).toEqual([false, false, true]);
  });

  test('that passes while a turn runs makes the actor due at once', async () => {
    const seen: boolean[] = [];
    const { actors, id, one, turn, wakesInMs } = await open(async (a) => {
      seen.push(a.timer('over', '200ms', { from: a.now }));
      await until('it has passed', () =>
        one<boolean>('select $1::timestamptz < clock_timestamp()', [new Date(a.now.getTime() + 201)]),
      );
      return a.hibernate();
    });
    await actors.work(id);
    expect(await wakesInMs()).toBeLessThanOrEqual(0);
    expect(await turn()).toBe('stay');
    expect(seen).toEqual([false, true]);
    expect(await wakesInMs()).toBeNull();
  });

  test('is there after a crash at any point', async () => {
    const Order = actor('order', {
      initial: 'waiting',
      states: (state) => ({
        waiting: state({
          to: ['late'],
          run: async (a) => {
            await a.receive('hello');
            a.timer('remind', '1h', { repeat: true });
            return a.timer('patience', '3h') ? a.to('late') : a.hibernate();
          },
        }),
        late: state({ run: (a) => a.done() }),
      }),
    });
    const database = await freshDatabase();
    await using w = world({ actors: [Order], url: database.url, crash: 'everywhere', patience: '50s' });
    const { runs } = await w.run(async ({ actors, advance, settle }) => {
      const order = await actors.create(Order, {});
      await settle();
      await actors.send(order, 'hello');
      await advance('2h');
      expect((await actors.get(order)).state).toBe('waiting');
      await advance('1h');
      expect((await actors.get(order)).status).toBe('final');
    });
    expect(runs).toBeGreaterThan(5);
    await w.close();
    await database.drop();
  });

  test('is refused with what is wrong about it', async () => {
    const refused: unknown[] = [];
    const attempts: Body[] = [
      (a) => (a.timer('', '1h') ? a.hibernate() : a.hibernate()),
      (a) => (a.timer('x', 'soon' as never) ? a.hibernate() : a.hibernate()),
      (a) => (a.timer('x', '1h', { from: 5 as never }) ? a.hibernate() : a.hibernate()),
      (a) => (a.timer('x', '1h', { form: a.now } as never) ? a.hibernate() : a.hibernate()),
      (a) => {
        for (let n = 0; n <= 100; n += 1) a.timer(`t${n}`, '1h');
        return a.hibernate();
      },
    ];
    const { actors, id } = await open((a) => {
      for (const attempt of attempts) {
        try {
          void attempt(a);
        } catch (error) {
          refused.push(error);
        }
      }
      return a.hibernate();
    });
    await actors.work(id);
    expect(refused).toHaveLength(attempts.length);
    for (const error of refused) expect(error).toBeInstanceOf(InvalidInput);
    expect(refused.map(String).join('\n')).toMatch(/name[^]*duration[^]*from[^]*form[^]*at most 100 timers/);
  });
});
