import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { actor, createActors, state } from '../../../src/actor/index.ts';
import { Conflict, InvalidInput, NotFound, PawlError } from '../../../src/base/errors.ts';
import { until } from '../../support/eventually.ts';
import { openScene } from '../scene.ts';

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
    const { actors, engine } = await openScene([Door]);
    const door = await actors.create(Door, { opened: 0 });
    await expect(actors.work('4711')).rejects.toThrow(NotFound);
    await expect(actors.get('nonsense')).rejects.toThrow(InvalidInput);
    // @ts-expect-error there is no such semaphore
    await expect(actors.incr(door, 'opne')).rejects.toThrow(/did you mean "open"/);
    await expect(actors.incr(door.id, 'opne')).rejects.toThrow(/did you mean "open"/);
    await expect(actors.incr(door.id, 'x')).rejects.toThrow(/there are open, destroy/);
    // @ts-expect-error the fields have another type
    await expect(actors.create(Door, { opened: 'often' })).rejects.toThrow(InvalidInput);
    await expect(actors.incr('4711', 'open')).rejects.toThrow(NotFound);
    // One that only an open transaction sees: as the database says it.
    const unseen = engine.transaction(async (tx) => {
      const { id } = await actors.create(Door, { opened: 0 }, { tx });
      await actors.incr(id, 'opne', { tx });
    });
    await expect(unseen).rejects.toThrow(/no semaphore "opne"; its semaphores are open, destroy/);
    // @ts-expect-error there is no such field
    await expect(actors.create(Door, { opened: 0, openned: 1 })).rejects.toThrow(
      /field of door "openned"; did you mean "opened"/,
    );
    expect(await actors.get(door)).toMatchObject({ fields: { opened: 0 }, semaphores: {} });
  });

  test('and for what is no option, no name and no JSON, before anything is written', async () => {
    const scene = await openScene([Door]);
    const { actors } = scene;
    const door = await actors.create(Door, { opened: 0 });
    const odd = { txx: 1 } as object;
    const refused: readonly (readonly [Promise<unknown>, RegExp])[] = [
      [actors.incr(door, 'open', odd), /unknown option "txx" for incr/],
      [actors.incr(door, undefined as never), /no semaphore of door undefined/],
      [actors.incr(door.id, 'a\0'), /without U\+0000/],
      [actors.incr(undefined as never, 'open'), /named by its id/],
      [actors.send(door, 'x', 1, odd), /unknown option "txx" for send/],
      [actors.send(door, 'x', 5n), /payload of "x" cannot be written as JSON/],
      [actors.destroy(door, odd), /unknown option "txx" for destroy/],
      [actors.page({ tag: 't', summary: 's' }, odd), /unknown option "txx" for page/],
      [actors.page({ tag: 'ü'.repeat(600), summary: 's' }), /1 to 1000 bytes/],
      [actors.resolvePage({ tag: 't' }, odd), /unknown option "txx" for resolvePage/],
      [actors.create(Door, { opened: 0 }, { key: 'ü'.repeat(600) }), /1 to 1000 bytes/],
      [actors.find(Door, undefined as never), /"key" for find is required/],
      [actors.pause({} as never), /option "type" for pause and resume is required/],
      [actors.resume({ typ: 'door' } as never), /did you mean "type"/],
      [actors.pause(undefined as never), /named by its id/],
    ];
    for (const [call, message] of refused) {
      const error: unknown = await call.catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(InvalidInput);
      expect(String(error)).toMatch(message);
    }
    expect(() => actor('ü'.repeat(100), { initial: 'a', states: {} } as never)).toThrow(/1 to 100 bytes/);
    expect(() => createActors({} as never, [Door])).toThrow(/takes the result of postgres\(\)/);
    expect(() => createActors(scene.engine, Door as never)).toThrow(/takes a list of types/);
    expect(await scene.one('select count(*)::int from pawl.actor_inbox')).toBe(0);
    expect(await actors.pages()).toEqual([]);
  });
});

test('what SQL gives is checked: names of fields, ids, counts, and that the fields of an actor are an object', async () => {
  const scene = await openScene([Door]);
  const { id } = await scene.actors.create(Door, { opened: 0 });
  const refused: readonly (readonly [string, object, RegExp])[] = [
    [
      'incr',
      { actor: id, semaphor: 'open' },
      /unknown field "semaphor" in pawl\.actor_incr; it takes actor, semaphore, n/,
    ],
    ['incr', { actor: id }, /no semaphore \(none given\); its semaphores are open/],
    ['incr', { actor: 'x', semaphore: 'open' }, /named by its id in pawl\.actor_incr, such as "42", but was "x"/],
    ['incr', { semaphore: 'open' }, /no actor \(none given\)/],
    ['incr', { actor: id, semaphore: 'open', n: 1.5 }, /n must be 1 or more, .* but was 1\.5/],
    ['create', { type: 'door', field: {} }, /unknown field "field" in pawl\.actor_create/],
    ['create', { type: 'door', fields: [1] }, /are an object, but were \[1\]/],
    ['create', { fields: {} }, /needs a type/],
    ['create', { type: 'door', key: '' }, /1 to 1000 bytes long, got 0/],
    ['create', [], /takes an object, got \[\]/],
    ['send', { actor: id, nme: 'x' }, /unknown field "nme"/],
    ['send', { actor: id }, /needs a name/],
  ];
  for (const [call, given, message] of refused) {
    const error: unknown = await scene
      .query(`select pawl.actor_${call}($1::jsonb)`, [JSON.stringify(given)])
      .catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(PawlError);
    expect(error).toMatchObject({ code: expect.stringMatching(/invalid_input|not_found/) });
    expect(String(error)).toMatch(message);
  }
  await scene.query(`select pawl.actor_create($1::jsonb)`, [
    JSON.stringify({ type: 'door', fields: { opened: 1 }, parent: id }),
  ]);
  expect(await scene.actors.list({ parent: id })).toHaveLength(1);
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
