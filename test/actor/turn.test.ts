import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { actor, state } from '../../src/actor/index.ts';
import { Conflict, InvalidInput, NotFound } from '../../src/base/errors.ts';
import { until } from '../support/eventually.ts';
import { openScene } from './scene.ts';

const Door = actor('door', {
  fields: v.object({ opened: v.number(), name: v.optional(v.string()) }),
  semaphores: ['open', 'destroy'],
  initial: 'closed',
  always: { destroy: 'destroying' },
  states: (state) => ({
    closed: state({
      to: ['open'],
      run: (a) => (a.take('open') ? a.to('open', { opened: a.fields.opened + 1 }) : a.hibernate()),
    }),
    open: state({ to: ['closed'], run: async (a) => a.to('closed') }),
    destroying: state({ run: (a) => a.done({ opened: a.fields.opened }) }),
  }),
});

describe('a turn by hand', () => {
  test('moves the actor as its body says, one turn at a time', async () => {
    const { actors } = await openScene([Door]);
    const door = await actors.create(Door, { opened: 0 });
    expect(await actors.work(door)).toMatchObject({ kind: 'stay', from: 'closed', to: 'closed' });
    expect(await actors.get(door)).toMatchObject({ status: 'hibernating', state: 'closed', attempt: 0 });
    await actors.incr(door, 'open');
    expect(await actors.get(door)).toMatchObject({ semaphores: { open: 1 } });
    expect(await actors.work(door)).toMatchObject({ kind: 'to', from: 'closed', to: 'open' });
    expect(await actors.work(door)).toMatchObject({ kind: 'to', from: 'open', to: 'closed' });
    expect(await actors.get(door)).toMatchObject({ fields: { opened: 1 }, semaphores: {}, visit: 3, status: 'due' });
    expect(await actors.history(door)).toMatchObject([
      { from: null, to: 'closed', reason: 'created' },
      { from: 'closed', to: 'open' },
      { from: 'open', to: 'closed' },
    ]);
  });

  test('leads on from any state where a semaphore of always was raised, and ends', async () => {
    const { actors } = await openScene([Door]);
    const door = await actors.create(Door, { opened: 7 });
    await actors.destroy(door);
    expect(await actors.work(door)).toMatchObject({ kind: 'to', to: 'destroying' });
    expect(await actors.work(door)).toMatchObject({ kind: 'done' });
    expect(await actors.get(door)).toMatchObject({ status: 'final', result: { opened: 7 }, semaphores: {} });
    await expect(actors.work(door)).rejects.toThrow(Conflict);
    expect(await actors.incr(door, 'open')).toBe(false);
  });

  test('is refused for what is not there, with the nearest name', async () => {
    const { actors } = await openScene([Door]);
    const door = await actors.create(Door, { opened: 0 });
    await expect(actors.work('4711')).rejects.toThrow(NotFound);
    await expect(actors.get('nonsense')).rejects.toThrow(InvalidInput);
    // @ts-expect-error there is no such semaphore
    await expect(actors.incr(door, 'opne')).rejects.toThrow(/did you mean "open"/);
    await expect(actors.incr(door.id, 'opne')).rejects.toThrow(/its semaphores are open, destroy/);
    // @ts-expect-error the fields have another type
    await expect(actors.create(Door, { opened: 'often' })).rejects.toThrow(InvalidInput);
    await expect(actors.incr('4711', 'open')).rejects.toThrow(NotFound);
  });
});

describe('a dispatcher', () => {
  test('runs actors as they become due, and those that something comes for', async () => {
    const { actors, run } = await openScene([Door]);
    const dispatcher = await run();
    const door = await actors.create(Door, { opened: 0 });
    await until('it hibernates', async () => (await actors.get(door)).status === 'hibernating');
    await actors.incr(door, 'open');
    await until('it was opened', async () => {
      const { fields, status } = await actors.get(door);
      return (fields as { opened: number }).opened === 1 && status === 'hibernating';
    });
    await actors.destroy(door);
    await until('it is final', async () => (await actors.get(door)).status === 'final');
    await dispatcher.stop();
  });

  test('tries a turn again that failed, and tells why', async () => {
    let tries = 0;
    const Flaky = actor('flaky', {
      initial: 'only',
      backoff: { min: 20, max: 40 },
      states: {
        only: state({
          run: async (a) => {
            tries += 1;
            if (tries < 3) throw new Error(`try ${tries}`);
            return a.done(a.attempt);
          },
        }),
      },
    });
    const { actors, run } = await openScene([Flaky]);
    const flaky = await actors.create(Flaky, {});
    await run();
    await until('it is final', async () => (await actors.get(flaky)).status === 'final');
    expect(await actors.get(flaky)).toMatchObject({ result: 3, error: null });
    expect((await actors.history(flaky)).map(({ reason }) => reason)).toEqual(['created', 'failed', 'failed', 'done']);
  });
});
