import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { type ActorDefinition, actor, type Turn } from '../../../src/actor/index.ts';
import type { LooseFields } from '../../../src/actor/kind.ts';
import { LeaseLost } from '../../../src/base/errors.ts';
import { until } from '../../support/eventually.ts';
import { LONG } from '../../support/long.ts';
import { openScene } from '../scene.ts';

type Hook = (a: Turn<LooseFields, string, string>) => unknown;

/** A machine whose body is given by the test: lowers "go" after it, and hibernates. */
function worker(body: Hook): ActorDefinition<LooseFields, 'go' | 'other'> {
  return actor('worker', {
    semaphores: ['go', 'other'],
    initial: 'only',
    states: (state) => ({
      only: state({
        run: async (a) => {
          await body(a);
          a.decr('go');
          return a.hibernate();
        },
      }),
    }),
  });
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end());
  return client;
}

/** By each of ten producers. */
const EACH = LONG ? 1000 : 100;

describe('a semaphore', () => {
  // Invariant A6.
  test('that is raised often while a body is slow costs few turns, and is never below 0', async () => {
    const seen: number[] = [];
    let lowest = 0;
    const Worker = worker(async (a) => {
      seen.push(a.val('go'));
      await new Promise((resolve) => setTimeout(resolve, 30));
    });
    const scene = await openScene([Worker]);
    const { id } = await scene.actors.create(Worker, {});
    await scene.run({ concurrency: 4 });
    await Promise.all(
      Array.from({ length: 10 }, async () => {
        for (let n = 0; n < EACH; n += 1) {
          await scene.query(`select pawl.actor_incr('{"actor":${id},"semaphore":"go"}')`);
          lowest = Math.min(lowest, await scene.one<number>('select coalesce(min(val), 0)::int from pawl.semaphore'));
        }
      }),
    );
    // One that hibernates may have the last raise in its inbox still.
    const sum = (): number => seen.reduce((all, n) => all + n, 0);
    await until('all were seen', () => sum() >= 10 * EACH);
    await until('it hibernates', async () => (await scene.actors.get(id)).status === 'hibernating');
    expect(sum()).toBe(10 * EACH);
    expect(seen.length).toBeLessThan(5 * EACH);
    expect(lowest).toBe(0);
    expect(await scene.one('select count(*)::int from pawl.semaphore')).toBe(0);
  });

  // Invariant A5.
  test('that is raised while the body runs counts for another turn', async () => {
    const raise: (() => Promise<unknown>)[] = [];
    const seen: number[] = [];
    const Worker = worker(async (a) => {
      seen.push(a.val('go'));
      await raise.shift()?.();
    });
    const { actors } = await openScene([Worker]);
    const one = await actors.create(Worker, {});
    raise.push(() => actors.incr(one, 'go'));
    await actors.incr(one, 'go', { n: 2 });
    await actors.work(one);
    expect(await actors.get(one)).toMatchObject({ semaphores: { go: 1 } });
    await actors.work(one);
    expect(await actors.get(one)).toMatchObject({ semaphores: {} });
    expect(seen).toEqual([2, 1]);
  });

  // Invariant A9.
  test('that is rolled back neither counts nor wakes, and an open transaction blocks no other', async () => {
    let turns = 0;
    const Worker = worker(() => {
      turns += 1;
    });
    const scene = await openScene([Worker]);
    const one = await scene.actors.create(Worker, {});
    await scene.run();
    await until('it hibernates', async () => (await scene.actors.get(one)).status === 'hibernating');
    const before = turns;
    const [open, undone] = [await connect(scene.url), await connect(scene.url)];
    await open.query('begin');
    await scene.actors.incr(one, 'go', { tx: open });
    await undone.query('begin');
    await scene.actors.incr(one, 'go', { tx: undone });
    await undone.query('rollback');
    await scene.actors.incr(one, 'other');
    await until('another one woke it', () => turns === before + 1);
    expect(await scene.actors.get(one)).toMatchObject({ semaphores: { other: 1 } });
    await open.query('commit');
    await until('the commit woke it', () => turns === before + 2);
    expect(turns).toBe(before + 2);
  });

  // Invariant A11.
  test('that no turn takes does not make the actor run again and again', async () => {
    let turns = 0;
    const Worker = worker(() => {
      turns += 1;
    });
    const scene = await openScene([Worker]);
    const one = await scene.actors.create(Worker, {});
    await scene.run({ poll: '20ms' });
    await scene.actors.incr(one, 'other');
    const isStill = `select count(*)::int = 1 from pawl.actor_instance a where a.wake_at is null and a.semaphores ->> 'other' = '1'`;
    await until('it has seen it, and hibernates', () => scene.one<boolean>(isStill));
    const before = turns;
    await scene.query(`update pawl.actor_instance set entered_at = entered_at - interval '1 hour'`);
    const second = await scene.actors.create(Worker, {});
    await until(
      'the dispatcher has looked again',
      async () => (await scene.actors.get(second)).status === 'hibernating',
    );
    expect(turns).toBe(before + 1);
  });

  // Invariant A12.
  test('of its own does not cut a nap short, one from outside does', async () => {
    const Napper = actor('napper', {
      semaphores: ['own', 'foreign'],
      initial: 'only',
      states: (state) => ({
        only: state({
          run: async (a) => {
            if (!a.pos('own')) a.raise('own');
            return a.nap('1h');
          },
        }),
      }),
    });
    const scene = await openScene([Napper]);
    const one = await scene.actors.create(Napper, {});
    await scene.actors.work(one);
    expect(await scene.actors.get(one)).toMatchObject({ status: 'napping', semaphores: { own: 1 } });
    const { epoch } = await scene.actors.get(one);
    await scene.run();
    await scene.actors.incr(one, 'foreign');
    await until('it ran', async () => (await scene.actors.get(one)).epoch > epoch);
    await until('it naps', async () => (await scene.actors.get(one)).status === 'napping');
  });

  // Invariant A14.
  test('does not beat the back-off of a failing actor; to be destroyed does', async () => {
    let turns = 0;
    const Failing = actor('failing', {
      semaphores: ['nudge', 'destroy'],
      initial: 'only',
      always: { destroy: 'gone' },
      backoff: { kind: 'fixed', min: '1h' },
      states: (state) => ({
        only: state({
          run: async () => {
            turns += 1;
            throw new Error('no');
          },
        }),
        gone: state({ run: (a) => a.done() }),
      }),
    });
    const scene = await openScene([Failing]);
    const one = await scene.actors.create(Failing, {});
    await scene.run({ poll: '20ms' });
    await until('it failed', async () => (await scene.actors.get(one)).status === 'backing off');
    for (let n = 0; n < 5; n += 1) await scene.actors.incr(one, 'nudge');
    await until(
      'the nudges were seen',
      async () => (await scene.one('select count(*)::int from pawl.actor_inbox')) === 0,
    );
    const { dueInMs } = await scene.actors.get(one);
    expect(dueInMs).toBeGreaterThan(14 * 60_000);
    expect(dueInMs).toBeLessThan(16 * 60_000);
    expect(turns).toBe(1);
    await scene.actors.destroy(one);
    await until('it is final', async () => (await scene.actors.get(one)).status === 'final');
  });

  // Invariant A13.
  test('does not make an overdue actor later', async () => {
    const Worker = worker(() => {});
    const scene = await openScene([Worker]);
    const one = await scene.actors.create(Worker, {});
    const before = (await scene.actors.get(one)).wakeAt;
    await scene.actors.incr(one, 'go');
    await scene.query('select pawl.actor_absorb(array(select id from pawl.actor_type), 10)');
    expect((await scene.actors.get(one)).wakeAt).toEqual(before);
  });

  // Invariant A10.
  test.each([
    ['by a worker', 'both'],
    ['by hand', 'one'],
  ] as const)(
    'is there when the turn begins, though the row was locked by another when the claim read the inboxes: %s',
    async (_, which) => {
      // In practice the row was locked by a commit, which ends just then.
      const seen = new Map<string, number>();
      const Worker = worker((a) => void seen.set(a.id, seen.get(a.id) ?? a.val('go')));
      const scene = await openScene([Worker]);
      const [read, locked] = [await scene.actors.create(Worker, {}), await scene.actors.create(Worker, {})].map(
        ({ id }) => id,
      );
      if (read === undefined || locked === undefined) throw new Error('both were created');
      for (const id of [read, locked]) await scene.actors.incr(id, 'go');
      // A claim stands still where it has passed over what is locked, and has not yet taken what is due.
      await scene.query(`
      create function test_gate() returns trigger language plpgsql as $$
      begin
        perform pg_advisory_xact_lock_shared(77);
        return old;
      end $$`);
      await scene.query(
        'create trigger test_gate before delete on pawl.actor_inbox for each row execute function test_gate()',
      );
      const [gate, holder] = [await connect(scene.url), await connect(scene.url)];
      await gate.query('select pg_advisory_lock(77)');
      await holder.query('begin');
      await holder.query('select from pawl.actor_instance where id = $1 for no key update', [locked]);
      const started = which === 'both' ? scene.run({ poll: '1h' }) : scene.actors.work(locked);
      await until('the claim stands at the gate', () =>
        scene.one(
          `select count(*)::int > 0 from pg_locks where locktype = 'advisory' and objid = 77 and not granted and database = (select oid from pg_database where datname = current_database())`,
        ),
      );
      await holder.query('commit');
      await gate.query('select pg_advisory_unlock(77)');
      await started;
      const expected = which === 'both' ? { [read]: 1, [locked]: 1 } : { [locked]: 1 };
      await until('they ran', () => seen.size === Object.keys(expected).length);
      expect(Object.fromEntries(seen)).toEqual(expected);
    },
  );

  // Invariant A13.
  test('does not let anybody overtake: the longest due runs first, however often the others are raised', async () => {
    const ran: string[] = [];
    const Worker = worker((a) => void ran.push(a.id));
    const scene = await openScene([Worker]);
    const ids: string[] = [];
    for (let n = 0; n < 4; n += 1) ids.push((await scene.actors.create(Worker, {})).id);
    await scene.query(`update pawl.actor_instance set wake_at = wake_at - id * interval '1 hour'`);
    for (const id of ids) await scene.actors.incr(id, 'go', { n: Number(id) });
    await scene.run({ concurrency: 1 });
    await until('all ran', () => ran.length >= ids.length);
    expect(ran.slice(0, ids.length)).toEqual(ids.toReversed());
  });

  // Invariant A8.
  test('can be lowered neither after the turn nor by one that lost the actor', async () => {
    const kept: Parameters<Hook>[0][] = [];
    const Worker = worker(async (a) => {
      kept.push(a);
      if (kept.length > 1)
        await scene.query('select pawl.actor_give_back_except(worker, $1) from pawl.actor_instance', [[]]);
    });
    const scene = await openScene([Worker]);
    const one = await scene.actors.create(Worker, {});
    await scene.actors.work(one);
    expect(() => kept[0]?.decr('go')).toThrow(/is over/);
    await scene.actors.incr(one, 'go');
    await expect(scene.actors.work(one)).rejects.toThrow(LeaseLost);
    expect(await scene.actors.get(one)).toMatchObject({ semaphores: { go: 1 }, status: 'due' });
  });

  test('is unknown to others as it is to its own type', async () => {
    const Worker = worker(() => {});
    const scene = await openScene([Worker]);
    const one = await scene.actors.create(Worker, {});
    await expect(scene.actors.incr(one.id, 'stop')).rejects.toThrow(/there are go, other/);
    await expect(scene.actors.incr(one, 'go', { n: -1 })).rejects.toThrow(/from 1/);
    await expect(scene.query(`select pawl.actor_incr('{"actor":${one.id},"semaphore":"go","n":-1}')`)).rejects.toThrow(
      /1 or more/,
    );
  });
});
