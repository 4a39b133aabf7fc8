import { describe, expect, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { Interrupted } from '../../../src/base/errors.ts';
import { until } from '../../support/eventually.ts';
import { type ActorScene, openScene } from '../scene.ts';

interface BodyLog {
  begun: number;
  readonly reasons: unknown[];
  /** What the body does when its signal aborts. */
  ends: 'throw' | 'return';
  /** Ends the body; with an error, the turn fails. */
  release: (error?: Error) => void;
}

/** Thinks until it is told to end; `destroy` is of `always`, `cancel` interrupts one state, `nudge` nothing. */
function agent(seen: BodyLog, hold: 'lease' | 'transaction' = 'lease') {
  return actor('agent', {
    semaphores: ['destroy', 'cancel', 'nudge'],
    initial: 'thinking',
    always: { destroy: 'ending' },
    backoff: { min: '1h' },
    states: (state) => ({
      thinking: state({
        to: ['cancelled', 'thought'],
        interrupt: ['cancel'],
        hold,
        run: async (a) => {
          seen.begun += 1;
          if (a.take('cancel')) return a.to('cancelled');
          await new Promise<void>((resolve, reject) => {
            seen.release = (error) => (error === undefined ? resolve() : reject(error));
            a.signal.addEventListener('abort', () => {
              seen.reasons.push(a.signal.reason);
              if (seen.ends === 'throw') reject(a.signal.reason as Error);
              else resolve();
            });
          });
          return a.to('thought', { thought: true });
        },
      }),
      thought: state({ run: (a) => a.hibernate() }),
      cancelled: state({ run: (a) => a.done('cancelled') }),
      ending: state({ run: (a) => a.done('destroyed') }),
    }),
  });
}

async function open(hold?: 'transaction'): Promise<ActorScene & { seen: BodyLog; id: string }> {
  const seen: BodyLog = { begun: 0, reasons: [], ends: 'throw', release: () => {} };
  const Agent = agent(seen, hold);
  const scene = await openScene([Agent]);
  const { id } = await scene.actors.create(Agent, {});
  return { ...scene, seen, id };
}

const begins = (seen: BodyLog): Promise<unknown> => until('the body runs', () => seen.begun === 1);

describe('a semaphore that interrupts', () => {
  for (const [name, raise, result] of [
    ['of always', 'destroy', 'destroyed'],
    ['of the state', 'cancel', 'cancelled'],
  ] as const) {
    test(`${name} aborts the signal of the running turn, whose try is not charged`, async () => {
      const { actors, run, seen, id } = await open();
      // Longer than the test: only the notification can be it.
      await run({ poll: '1h', lease: '1h' });
      await begins(seen);
      await actors.incr<string>(id, raise);
      expect((await actors.waitFor(id)).result).toBe(result);
      expect(seen.reasons).toHaveLength(1);
      expect(seen.reasons[0]).toBeInstanceOf(Interrupted);
      expect(String(seen.reasons[0])).toContain(`"${raise}"`);
      expect((await actors.history(id)).map(({ reason }) => reason)).not.toContain('failed');
    });
  }

  test('of always does not wait for the backoff of a turn that fails before it has learned of it', async () => {
    const { actors, run, seen, id, one } = await open();
    // A turn by hand is not interrupted.
    const turn = actors.work(id);
    await begins(seen);
    await run({ poll: '50ms' });
    await actors.destroy(id);
    await until('it was absorbed', () => one<boolean>('select count(*) = 0 from pawl.actor_inbox'));
    seen.release(new Error('the mail server is down'));
    expect(await turn).toMatchObject({ kind: 'failed' });
    expect((await actors.waitFor(id)).result).toBe('destroyed');
    expect(seen.begun).toBe(1);
  });

  // Invariant A10.
  test('reaches the body within two polls when no notification comes', async () => {
    const { actors, run, seen, id, query } = await open();
    await run({ poll: '50ms' });
    await begins(seen);
    // As a transaction that was open when the turn was claimed: no process receives a notification.
    await query(`insert into pawl.actor_inbox (actor, type, name) select id, type, 'cancel' from pawl.actor_instance`);
    expect((await actors.waitFor(id)).result).toBe('cancelled');
  });

  test('reaches the body when the listening connection is replaced, however long a poll is', async () => {
    const { actors, run, seen, id, query } = await open();
    await run({ poll: '1h', lease: '1h' });
    await begins(seen);
    // Its notification is lost with the connection.
    await query(`insert into pawl.actor_inbox (actor, type, name) select id, type, 'cancel' from pawl.actor_instance`);
    const ended = await query(
      // Its last statement need not be a LISTEN: it also shows that it listens, and is checked.
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid() and query like '%listen%'`,
    );
    expect(ended).toHaveLength(1);
    expect((await actors.waitFor(id)).result).toBe('cancelled');
  });

  test('leaves the outcome of the turn to the body', async () => {
    const { actors, run, seen, id } = await open();
    seen.ends = 'return';
    await run({ poll: '50ms' });
    await begins(seen);
    await actors.incr<string>(id, 'cancel');
    await actors.waitFor(id, { state: 'thought', status: 'hibernating' });
    expect(await actors.get(id)).toMatchObject({ fields: { thought: true }, semaphores: { cancel: 1 } });
  });

  test('undoes a body that runs in a transaction, and gives the turn back', async () => {
    const { actors, run, seen, id } = await open('transaction');
    await run({ poll: '50ms' });
    await begins(seen);
    await actors.incr<string>(id, 'cancel');
    expect((await actors.waitFor(id)).result).toBe('cancelled');
    expect((await actors.history(id)).map(({ reason }) => reason)).not.toContain('failed');
  });

  test('of another name, and a message, interrupt nothing', async () => {
    const { actors, run, seen, id } = await open();
    await run({ poll: '50ms' });
    await begins(seen);
    await actors.incr<string>(id, 'nudge');
    await actors.send(id, 'hello');
    await until('both were absorbed', async () => (await actors.get(id)).semaphores['nudge'] === 1);
    seen.release();
    await actors.waitFor(id, { state: 'thought' });
    expect(seen.reasons).toEqual([]);
  });

  test('interrupts each turn once: one that ignores it does not learn of the same raise again', async () => {
    const reasons: unknown[] = [];
    let turns = 0;
    const Deaf = actor('deaf', {
      semaphores: ['stop'],
      initial: 'only',
      states: (state) => ({
        only: state({
          interrupt: ['stop'],
          run: async (a) => {
            turns += 1;
            if (turns > 3) return a.done();
            if (turns > 1) return a.nap('10ms');
            await new Promise<void>((resolve) => {
              a.signal.addEventListener('abort', () => {
                reasons.push(a.signal.reason);
                resolve();
              });
            });
            throw new Error('it has heard, and lowers nothing');
          },
        }),
      }),
    });
    const { actors, run } = await openScene([Deaf]);
    const one = await actors.create(Deaf, {});
    await run({ poll: '20ms' });
    await until('the body runs', () => turns === 1);
    await actors.incr(one, 'stop');
    await actors.waitFor(one);
    expect(reasons).toHaveLength(1);
  });
});

describe("children: 'each'", () => {
  // Invariant A20.
  test('wakes the parent as each child ends; without it the last one does', async () => {
    const Child = actor('child', {
      semaphores: ['end'],
      initial: 'only',
      states: (state) => ({ only: state({ run: (a) => (a.take('end') ? a.done() : a.hibernate()) }) }),
    });
    const parent = (name: string, children: 'each' | 'last') =>
      actor(name, {
        initial: 'bearing',
        states: (state) => ({
          bearing: state({
            to: ['waiting'],
            run: async (a) => {
              for (const key of ['1', '2', '3']) await a.create(Child, {}, { key: `${name} ${key}` });
              return a.to('waiting', { seen: [] });
            },
          }),
          waiting: state({
            children,
            run: (a) => {
              const seen = [...a.fields['seen'], a.openChildren];
              return a.openChildren === 0 ? a.done(seen) : a.hibernate({ seen });
            },
          }),
        }),
      });
    const Each = parent('each', 'each');
    const Last = parent('last', 'last');
    const { actors, run } = await openScene([Child, Each, Last]);
    const each = await actors.create(Each, {});
    const last = await actors.create(Last, {});
    await run({ poll: '20ms' });
    for (const one of [each, last]) await actors.waitFor(one, { state: 'waiting', status: 'hibernating' });
    for (const [index, key] of ['1', '2', '3'].entries()) {
      for (const name of ['each', 'last']) {
        const child = await actors.find(Child, `${name} ${key}`);
        if (child !== undefined) await actors.incr(child, 'end');
      }
      await until('the parent has seen it', async () => {
        const { fields, result } = await actors.get(each);
        return ((result ?? (fields as { seen: number[] }).seen) as number[]).includes(2 - index);
      });
    }
    expect((await actors.waitFor(each)).result).toEqual([3, 2, 1, 0]);
    expect((await actors.waitFor(last)).result).toEqual([3, 0]);
  });
});
