import * as v from 'valibot';
import { describe, expect, onTestFinished, test } from 'vitest';
import { actor, createActors } from '../../src/actor/index.ts';
import { ConnectionFailed, LeaseLost, Stopped, TimedOut } from '../../src/base/errors.ts';
import { faults } from '../../src/base/fault.ts';
import { probe } from '../../src/base/probe.ts';
import { postgres } from '../../src/engine/postgres/index.ts';
import { freshDatabase } from '../support/database.ts';
import { aborted, until } from '../support/eventually.ts';
import { recordLog } from '../support/log.ts';
import { openScene } from './scene.ts';

/**
 * A body that runs until the test lets it go. `begun` counts the calls of it: the database says that an actor runs
 * from the claim on, which is before its dispatcher has the answer.
 */
function gated(): { Gate: ReturnType<typeof make>; open: () => void; reasons: unknown[]; begun: () => number } {
  let open = (): void => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const reasons: unknown[] = [];
  let calls = 0;
  const begin = (): void => {
    calls += 1;
  };
  return { Gate: make(opened, reasons, begin), open: () => open(), reasons, begun: () => calls };
}

const make = (opened: Promise<void>, reasons: unknown[], begin: () => void) =>
  actor('gate', {
    semaphores: ['go'],
    initial: 'only',
    backoff: { min: 10, max: 20 },
    states: (state) => ({
      only: state({
        run: async (a) => {
          begin();
          a.signal.addEventListener('abort', () => reasons.push(a.signal.reason));
          await Promise.race([opened, aborted(a.signal)]);
          a.signal.throwIfAborted();
          return a.done(a.attempt);
        },
      }),
    }),
  });

describe('a dispatcher', () => {
  test('that lost its lease tells its bodies, changes nothing, registers anew and goes on', async () => {
    const { Gate, open, reasons, begun } = gated();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    const dispatcher = await scene.run({ lease: '3s' });
    const lost: LeaseLost[] = [];
    dispatcher.events.on('lost', ({ reason }) => lost.push(reason));
    await until('it runs', () => begun() === 1);
    // A heartbeat may come between: again, then.
    await until('it was declared dead', async () => {
      await scene.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
      return (await scene.one<number>('select pawl.actor_rescue()')) > 0 || lost.length > 0;
    });
    await until('it was told', () => lost.length > 0);
    expect(lost[0]).toBeInstanceOf(LeaseLost);
    expect(reasons[0]).toBeInstanceOf(LeaseLost);
    open();
    expect((await scene.actors.waitFor(one)).result).toBe(2);
  });

  test('that lost its lease while it claimed begins nothing of what it got', async () => {
    const { Gate, open } = gated();
    open();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    let [hasClaimed, answer] = [false, (): void => {}];
    const answered = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const hold = (): Promise<void> => {
      hasClaimed = true;
      return answered;
    };
    onTestFinished(faults.arm('actor.after_claim', hold, { occurrence: 1 }));
    const dispatcher = await scene.run({ lease: '3s' });
    let isLost = false;
    dispatcher.events.on('lost', () => {
      isLost = true;
    });
    await until('it has claimed', () => hasClaimed);
    await scene.query('delete from pawl.actor_worker');
    await until('a heartbeat was refused', () => isLost);
    await scene.query('update pawl.actor_instance set worker = null, epoch = epoch + 1');
    answer();
    // Had it begun what it got, that would have been stale, and not the first try.
    expect((await scene.actors.waitFor(one)).result).toBe(2);
    expect((await scene.actors.history(one)).map(({ reason }) => reason)).toEqual(['created', 'done']);
  });

  test('that lost its lease while a commit hangs commits the next turns anyway', async () => {
    const { Gate, open } = gated();
    open();
    const scene = await openScene([Gate]);
    let letGo = (): void => {};
    const hangs = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    let isReached = false;
    const disarm = faults.arm(
      'actor.before_commit',
      () => {
        isReached = true;
        return hangs;
      },
      { occurrence: 1 },
    );
    onTestFinished(disarm);
    const one = await scene.actors.create(Gate, {});
    const dispatcher = await scene.run({ lease: '1s', concurrency: 1 });
    let isLost = false;
    dispatcher.events.on('lost', () => {
      isLost = true;
    });
    await until('its commit hangs', () => isReached);
    await until('it was declared dead', async () => {
      await scene.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
      await scene.query('select pawl.actor_rescue()');
      return isLost;
    });
    expect((await scene.actors.waitFor(one)).status).toBe('final');
    letGo();
    expect((await scene.actors.waitFor(await scene.actors.create(Gate, {}))).status).toBe('final');
  });

  test('that is woken while it is full looks as soon as it is not: no poll has to find what it was woken for', async () => {
    const { Gate, open, begun } = gated();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    const dispatcher = await scene.run({ concurrency: 1, poll: '1h' });
    await until('it runs', () => begun() === 1);
    const two = await scene.actors.create(Gate, {});
    dispatcher.wake();
    await new Promise((resolve) => setTimeout(resolve, 100));
    open();
    await scene.actors.waitFor(one);
    await scene.actors.waitFor(two);
  });

  test('that is stopped lets bodies end, and gives back untried what has not begun', async () => {
    const { Gate, open, begun } = gated();
    const scene = await openScene([Gate]);
    for (let n = 0; n < 3; n += 1) await scene.actors.create(Gate, {});
    const dispatcher = await scene.run({ concurrency: 3 });
    await until('all run', () => begun() === 3);
    const stopping = dispatcher.stop({ timeout: '10s' });
    open();
    await stopping;
    await dispatcher.stop();
    expect(await scene.one(`select count(*)::int from pawl.actor where status = 'final'`)).toBe(3);
    expect(await scene.one('select count(*)::int from pawl.actor_worker')).toBe(0);
  });

  test('whose time to stop is up tells its bodies, and their turns count for nothing', async () => {
    const { Gate, reasons, begun } = gated();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    const dispatcher = await scene.run();
    await until('it runs', () => begun() === 1);
    await dispatcher.stop({ timeout: 0 });
    expect(reasons[0]).toBeInstanceOf(Stopped);
    expect(await scene.actors.get(one)).toMatchObject({ status: 'due', attempt: 0, error: null });
    expect((await scene.actors.history(one)).map(({ reason }) => reason)).toEqual(['created']);
  });

  // Invariant A18.
  test('gives up a body that does not end when told to, and goes on', async () => {
    const Deaf = actor('deaf', {
      initial: 'only',
      backoff: { kind: 'fixed', min: '1h' },
      states: (state) => ({ only: state({ timeout: '20ms', run: () => new Promise<never>(() => {}) }) }),
    });
    const scene = await openScene([Deaf]);
    const one = await scene.actors.create(Deaf, {});
    await scene.run({ concurrency: 1 });
    await until('it backs off', async () => (await scene.actors.get(one)).status === 'backing off');
    expect((await scene.actors.get(one)).error).toMatch(/longer than its 20ms/);
  });

  test('on a database without a schema says so, and starts where one comes later', async () => {
    const { url } = await freshDatabase({ migrated: false });
    const log = recordLog();
    const engine = postgres(url, { logger: log });
    onTestFinished(() => engine.stop());
    const { Gate } = gated();
    const actors = createActors(engine, [Gate]);
    await using dispatcher = actors.run();
    await until('it has said so', () => log.count('warn', /keeps trying/) > 0);
    await engine.migrate();
    await dispatcher.started;
    await until('it has said so', () => log.count('info', /it polls for work/) > 0);
  });

  test('ends with the signal it was given, even before it has started', async () => {
    const { Gate } = gated();
    const scene = await openScene([Gate]);
    await expect(scene.actors.run({ signal: AbortSignal.abort() }).started).rejects.toThrow(Stopped);
    const stop = new AbortController();
    const dispatcher = await scene.run({ signal: stop.signal });
    stop.abort();
    await dispatcher.stop();
    expect(await scene.one('select count(*)::int from pawl.actor_worker')).toBe(0);
  });

  // Invariant A25.
  test('whose database goes away for a moment goes on by itself', async () => {
    const { Gate, open } = gated();
    open();
    const scene = await openScene([Gate]);
    const dispatcher = await scene.run({ poll: '50ms' });
    const errors: unknown[] = [];
    dispatcher.events.on('error', ({ error }) => errors.push(error));
    using beats = probe.watch('actor.claimed');
    const claims = beats.hits.length;
    await until('it looks', () => beats.hits.length > claims);
    await scene.query(
      'select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()',
    );
    const one = await until('one can be created', () => scene.actors.create(Gate, {}).catch(() => undefined));
    expect((await scene.actors.waitFor(one)).result).toBe(1);
  });

  test('whose claim was not answered gives back what it does not know', async () => {
    const { Gate, open } = gated();
    open();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    const disarm = faults.arm(
      'actor.after_claim',
      () => {
        throw new ConnectionFailed('the answer was lost');
      },
      { occurrence: 1 },
    );
    onTestFinished(disarm);
    await scene.run();
    expect((await scene.actors.waitFor(one)).result).toBe(1);
  });
});

test('a worker that was declared dead can claim nothing: no rescue would find it', async () => {
  const { Gate } = gated();
  const scene = await openScene([Gate]);
  const one = await scene.actors.create(Gate, {});
  await expect(scene.query(`select pawl.actor_claim(4711, array(select id from pawl.actor_type), 1)`)).rejects.toThrow(
    LeaseLost,
  );
  await expect(scene.query(`select pawl.actor_claim_one(4711, $1)`, [one.id])).rejects.toThrow(LeaseLost);
  expect((await scene.actors.get(one)).status).toBe('due');
});

describe('a turn by hand', () => {
  test('of an actor that runs elsewhere is none', async () => {
    const { Gate, open, begun } = gated();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    await scene.run();
    await until('it runs', () => begun() === 1);
    expect(await scene.actors.work(one)).toBeUndefined();
    expect((await scene.actors.explain(one)).reasons.join()).toMatch(/is running in .* since/);
    open();
    await scene.actors.waitFor(one);
  });

  test('whose process gives no sign of life is explained, and freed', async () => {
    const { Gate, open, begun } = gated();
    const scene = await openScene([Gate]);
    const one = await scene.actors.create(Gate, {});
    const worked = scene.actors.work(one);
    const refused = expect(worked).rejects.toThrow(LeaseLost);
    await until('it runs', () => begun() === 1);
    await scene.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s'`);
    expect((await scene.actors.explain(one)).reasons.join()).toMatch(/sent no heartbeat before its lease ended/);
    expect(await scene.one('select pawl.actor_rescue()')).toBe(1);
    open();
    await refused;
    expect((await scene.actors.history(one)).map(({ reason }) => reason)).toContain('worker lost');
  });
});

test('a schema may take its time, and a refusal of it is the turn that failed', async () => {
  const slow = v.pipeAsync(
    v.object({ n: v.number() }),
    v.checkAsync(async ({ n }) => n < 3, 'too many'),
  );
  const Counter = actor('counter', {
    fields: slow,
    initial: 'only',
    states: (state) => ({ only: state({ run: (a) => a.stay({ n: a.fields.n + 1 }) }) }),
  });
  const scene = await openScene([Counter]);
  await expect(scene.actors.create(Counter, { n: 3 })).rejects.toThrow(/too many/);
  const one = await scene.actors.create(Counter, { n: 1 });
  expect(await scene.actors.work(one)).toMatchObject({ kind: 'stay' });
  expect(await scene.actors.work(one)).toMatchObject({ kind: 'failed' });
  expect(await scene.actors.get(one)).toMatchObject({ fields: { n: 2 }, status: 'backing off' });
});

test('waiting for what does not come says where it is', async () => {
  const { Gate } = gated();
  const scene = await openScene([Gate]);
  const one = await scene.actors.create(Gate, {});
  await expect(scene.actors.waitFor(one, { state: 'other', timeout: '60ms' })).rejects.toThrow(TimedOut);
  await expect(scene.actors.waitFor(one, { timeout: '60ms' })).rejects.toThrow(/it is due in "only"/);
  await expect(scene.actors.waitFor(one, { signal: AbortSignal.abort() })).rejects.toThrow(/abort/);
});

test('a dispatcher whose engine was stopped ends with it, and says so once', async () => {
  const log = recordLog();
  const { Gate } = gated();
  const scene = await openScene([Gate], { logger: log });
  const dispatcher = await scene.run({ poll: '50ms', lease: '1s' });
  await scene.engine.stop();
  await until('it has noticed', () => log.count('warn', /stop dispatchers before their engine/) > 0);
  await dispatcher.stop();
  expect(log.count('warn', /stop dispatchers before/)).toBe(1);
  expect(log.count('warn', /keeps trying/)).toBe(0);
});
