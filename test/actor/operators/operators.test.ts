import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { actor, createActorAdmin, createActors } from '../../../src/actor/index.ts';
import { Conflict, InvalidInput, LockNotAvailable, NotFound } from '../../../src/base/errors.ts';
import { probe } from '../../../src/base/probe.ts';
import { until } from '../../support/eventually.ts';
import { openScene } from '../scene.ts';

const fields = v.object({ n: v.number(), note: v.optional(v.string()) });

let behaviour: 'fail' | 'hibernate' | 'hang' = 'hibernate';
const release: (() => void)[] = [];
const Thing = actor('thing', {
  fields,
  initial: 'one',
  backoff: { min: '1h', max: '1h' },
  fieldHistory: '1d',
  states: (state) => ({
    one: state({
      to: ['two'],
      run: async (a) => {
        if (behaviour === 'fail') throw new Error('no');
        if (behaviour === 'hang') await new Promise<void>((resolve) => release.push(resolve));
        return a.stay();
      },
    }),
    two: state({ deadline: '1h', run: (a) => a.hibernate() }),
    end: state({ run: (a) => a.done() }),
  }),
});

describe('actors.retry()', () => {
  test('ends a back-off in another process, at once', async () => {
    behaviour = 'fail';
    const { actors, engine, run } = await openScene([Thing]);
    const one = await actors.create(Thing, { n: 1 });
    await run();
    await actors.waitFor(one, { status: 'backing off' });
    behaviour = 'hibernate';
    expect(await createActorAdmin(engine).retry(one)).toBe(true);
    await actors.waitFor(one, { status: 'hibernating' });
  });

  test('says what cannot be: a turn that runs, an actor that is final, held, or not there', async () => {
    behaviour = 'hang';
    const { actors, run, query } = await openScene([Thing]);
    const one = await actors.create(Thing, { n: 1 });
    await run();
    await until('it runs', () => release.length > 0);
    expect(await actors.retry(one)).toBe(false);
    behaviour = 'hibernate';
    for (const go of release.splice(0)) go();
    await actors.waitFor(one, { status: 'hibernating' });
    await query(`update pawl.actor_instance set held = 'no program knows it'`);
    await expect(actors.retry(one)).rejects.toThrow(
      'held: no program knows it; start a program that knows its state, or move it to another one',
    );
    expect((await actors.get(one)).wakeAt).toBeNull();
    await query('update pawl.actor_instance set held = null');
    await actors.move(one, 'end', undefined, { reason: 'over' });
    await actors.waitFor(one);
    expect(await actors.retry(one)).toBe(false);
    await expect(actors.retry('987654')).rejects.toThrow(NotFound);
  });
});

describe('actors.move()', () => {
  test('puts it into a state with other fields, as a new visit, and the history says why', async () => {
    behaviour = 'fail';
    const { actors } = await openScene([Thing]);
    const one = await actors.create(Thing, { n: 1, note: 'old' });
    await actors.work(one);
    const before = await actors.get(one);
    await actors.move(one, 'two', { n: 2 }, { reason: 'the customer has called' });
    const after = await actors.get(one);
    expect(after).toMatchObject({
      state: 'two',
      fields: { n: 2, note: 'old' },
      attempt: 0,
      error: null,
      status: 'due',
    });
    expect(after.visit).toBe(before.visit + 1);
    expect(after.deadlineAt).not.toBeNull();
    expect((await actors.history(one)).at(-1)).toMatchObject({
      from: 'one',
      to: 'two',
      reason: 'moved: the customer has called',
    });
    expect(await actors.fieldHistory(one)).toMatchObject([{ before: { n: 1 }, after: { n: 2 }, state: 'one' }]);
  });

  // Invariant A2.
  test('fences off the turn that runs: nothing of it is written', async () => {
    behaviour = 'hang';
    const { actors, run } = await openScene([Thing]);
    const one = await actors.create(Thing, { n: 1 });
    const dispatcher = await run({ poll: '20ms' });
    const stale: unknown[] = [];
    dispatcher.events.on('stale', (event) => stale.push(event));
    await until('it runs', () => release.length > 0);
    await actors.move(one, 'two', undefined, { reason: 'it hangs' });
    await actors.waitFor(one, { state: 'two', status: 'hibernating' });
    for (const go of release.splice(0)) go();
    await until('the turn has learnt of it', () => stale.length > 0);
    expect(await actors.get(one)).toMatchObject({ state: 'two', status: 'hibernating', fields: { n: 1 } });
  });

  test('is tried again when a turn comes in between, with the fields that this one left', async () => {
    behaviour = 'hibernate';
    const { actors, run } = await openScene([Thing]);
    const one = await actors.create(Thing, { n: 0 });
    await run();
    await Promise.all(
      Array.from({ length: 10 }, (_, n) =>
        actors.move(one, n % 2 === 0 ? 'one' : 'two', { n }, { reason: `move ${n}` }),
      ),
    );
    const moves = (await actors.history(one)).filter(({ reason }) => reason.startsWith('moved: '));
    expect(moves).toHaveLength(10);
    expect((await actors.get(one)).fields).toEqual({ n: Number(moves.at(-1)?.reason.match(/\d+/)?.[0]) });
  });

  test('keeps what a turn has written that ran when the actor was read', async () => {
    const passed = new Set<string>();
    const pass = (gate: string): void => void passed.add(gate);
    const gate = (name: string): Promise<boolean> => until(name, () => passed.has(name));
    const slow = v.pipeAsync(
      fields,
      v.checkAsync(async ({ note }) => {
        if (note !== 'by hand') return true;
        pass('the move has read it');
        await gate('the turn is committed');
        return true;
      }),
    );
    const Paid = actor('paid', {
      fields: slow,
      initial: 'one',
      states: (state) => ({
        one: state({
          run: async (a) => {
            pass('the turn runs');
            await gate('the move has read it');
            return a.hibernate({ n: 2 });
          },
        }),
        two: state({ run: (a) => a.hibernate() }),
      }),
    });
    const { actors, run } = await openScene([Paid]);
    const one = await actors.create(Paid, { n: 1 });
    await run();
    await gate('the turn runs');
    const moving = actors.move(one, 'two', { note: 'by hand' }, { reason: 'the customer has called' });
    await actors.waitFor(one, { status: 'hibernating' });
    pass('the turn is committed');
    await moving;
    expect(await actors.get(one)).toMatchObject({ state: 'two', fields: { n: 2, note: 'by hand' } });
  });

  test('makes fields of an older version into those of this program', async () => {
    const old = actor('aged', { initial: 'one', states: (state) => ({ one: state({ run: (a) => a.hibernate() }) }) });
    const scene = await openScene([old]);
    const one = await scene.actors.create(old, { size: '2' });
    const Aged = actor('aged', {
      fields: v.object({ size: v.number() }),
      version: 2,
      migrate: ({ size }) => ({ size: Number(size) }),
      initial: 'one',
      states: (state) => ({ one: state({ run: (a) => a.hibernate() }) }),
    });
    const actors = createActors(scene.engine, [Aged]);
    await actors.move(one, 'one', undefined, { reason: 'look again' });
    expect(await actors.get(one)).toMatchObject({ fields: { size: 2 }, version: 2 });
  });

  test('is refused: no such state, no reason, fields that the schema does not take, a final actor', async () => {
    behaviour = 'hibernate';
    const { actors, engine } = await openScene([Thing]);
    const one = await actors.create(Thing, { n: 1 });
    await expect(actors.move(one, 'tow', undefined, { reason: 'x' })).rejects.toThrow(/did you mean "two"/);
    await expect(actors.move(one, 'two', undefined, { reason: '' })).rejects.toThrow(/reason/);
    await expect(actors.move(one, 'two', undefined, {} as never)).rejects.toThrow(/reason/);
    await expect(actors.move(one, 'two', { n: 'many' }, { reason: 'x' })).rejects.toThrow(InvalidInput);
    await expect(actors.move(one, 'two', { m: 1 }, { reason: 'x' })).rejects.toThrow(/"m"/);
    await expect(createActorAdmin(engine).move(one, 'two', { at: new Date() }, { reason: 'x' })).rejects.toThrow(
      /fields\.at is a Date/,
    );
    expect(await actors.get(one)).toMatchObject({ state: 'one', visit: 1, epoch: 0 });
    await actors.move(one, 'end', undefined, { reason: 'over' });
    await actors.work(one);
    await expect(actors.move(one, 'two', undefined, { reason: 'again' })).rejects.toThrow(Conflict);
    await expect(actors.move('987654', 'two', undefined, { reason: 'x' })).rejects.toThrow(NotFound);
  });
});

describe('actors.list({ where })', () => {
  const Order = actor('order', {
    initial: 'open',
    index: ['customer', 'total', 'vip'],
    semaphores: ['change', 'drop'],
    states: (state) => ({
      open: state({
        to: ['paid'],
        run: (a) => {
          if (a.take('drop')) return a.hibernate({ customer: null });
          return a.take('change') ? a.to('paid', { customer: 'eve', total: 7 }) : a.hibernate();
        },
      }),
      paid: state({ run: (a) => a.done() }),
    }),
  });
  const ids = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);

  test('finds actors by what their fields are now, new, changed by a turn, from SQL or moved', async () => {
    const { actors, one: ask } = await openScene([Order]);
    const ada = await actors.create(Order, { customer: 'ada', total: 5, vip: true, other: 1 });
    const bob = await actors.create(Order, { customer: 'bob', total: 5, vip: false });
    const sql = await ask<{ id: string }>(
      `select pawl.actor_create('{"type":"order","fields":{"customer":"ada","total":5.0}}')`,
    );
    const list = async (where: Record<string, string | number | boolean>): Promise<string[]> =>
      ids(await actors.list({ type: 'order', where, final: true }));
    expect(await list({ customer: 'ada' })).toEqual([sql.id, ada.id]);
    expect(await list({ total: 5 })).toEqual([sql.id, bob.id, ada.id]);
    expect(await list({ total: 5, vip: true })).toEqual([ada.id]);
    expect(await list({ total: '5' })).toEqual([]);
    expect(await list({ customer: 'nobody' })).toEqual([]);
    await actors.incr(ada, 'change');
    await actors.work(ada);
    await actors.work(ada);
    expect(await list({ customer: 'ada' })).toEqual([sql.id]);
    expect(await list({ customer: 'eve', total: 7 })).toEqual([ada.id]);
    expect(ids(await actors.list({ type: 'order', where: { customer: 'eve' } }))).toEqual([]);
    await actors.move(bob, 'open', { customer: 'eve' }, { reason: 'sold' });
    expect(await list({ customer: 'eve' })).toEqual([bob.id, ada.id]);
    await actors.incr(bob, 'drop');
    await actors.work(bob);
    expect(await list({ customer: 'eve' })).toEqual([ada.id]);
    expect(ids(await actors.list({ type: 'order', where: { total: 5 }, before: bob.id }))).toEqual([]);
    expect(ids(await actors.list({ type: 'order', where: { total: 5 }, limit: 1 }))).toEqual([sql.id]);
  });

  test('tells long texts apart', async () => {
    const { actors } = await openScene([Order]);
    const long = 'x'.repeat(10_000);
    const one = await actors.create(Order, { customer: `${long}1` });
    await actors.create(Order, { customer: `${long}2` });
    expect(ids(await actors.list({ type: 'order', where: { customer: `${long}1` } }))).toEqual([one.id]);
  });

  test('finds actors that were there before their type declared the index, and forgets what it declares no more', async () => {
    const options = {
      initial: 'open',
      states: (state: never) => ({ open: (state as (o: object) => never)({ run: () => undefined }) }),
    };
    const Plain = actor('order', options as never);
    const scene = await openScene([Plain]);
    const one = await scene.actors.create(Plain as never, { customer: 'ada' } as never);
    await expect(scene.actors.list({ type: 'order', where: { customer: 'ada' } })).rejects.toThrow(/index of order/);
    const actors = createActors(scene.engine, [Order]);
    await actors.register();
    expect(ids(await actors.list({ type: 'order', where: { customer: 'ada' } }))).toEqual([one.id]);
    await createActors(scene.engine, [Plain]).register();
    await scene.query(`update pawl.actor_instance set fields = '{"customer":"bob"}'`);
    // Not in the index at that time.
    await createActors(scene.engine, [Order]).register();
    expect(ids(await actors.list({ type: 'order', where: { customer: 'bob' } }))).toEqual([one.id]);
  });

  test('does not miss an actor whose turn had read the type before it declared the index', async () => {
    const { actors: old, engine, url } = await openScene([Order]);
    await old.register();
    const scene = await openScene([Order], { url });
    const one = await old.create(Order, { customer: 'ada' });
    await scene.query(`update pawl.actor_type set indexes = '{}', indexed = '{}'; delete from pawl.actor_field`);
    using locked = probe.watch('actor.index_left');
    let registered: Promise<void> | undefined;
    await engine.transaction(async (tx) => {
      // As the commit of a turn does, which saw no index.
      await tx.client.query({
        text: `update pawl.actor_instance set fields = '{"customer":"eve"}' where id = $1`,
        values: [one.id],
      });
      registered = createActors(scene.engine, [Order]).register();
      await locked.next();
    });
    await registered;
    expect(await scene.one(`select indexed = indexes from pawl.actor_type where name = 'order'`)).toBe(true);
    expect(ids(await old.list({ type: 'order', where: { customer: 'eve' } }))).toEqual([one.id]);
  });

  test('leaves what an open transaction has locked, and goes on with it when it is asked for', async () => {
    const { actors: old, engine, query } = await openScene([Order]);
    const one = await old.create(Order, { customer: 'ada' });
    await query(`update pawl.actor_type set indexes = '{}', indexed = '{}'; delete from pawl.actor_field`);
    const actors = createActors(engine, [Order]);
    await engine.transaction(async (tx) => {
      await tx.client.query({ text: 'select from pawl.actor_instance for update', values: [] });
      await actors.register();
      await expect(actors.list({ type: 'order', where: { customer: 'ada' } })).rejects.toThrow(LockNotAvailable);
    });
    expect(ids(await actors.list({ type: 'order', where: { customer: 'ada' } }))).toEqual([one.id]);
  });

  test('is refused for a field that is in no index, a value that is none, and without a type', async () => {
    const { actors } = await openScene([Order]);
    await actors.register();
    await expect(actors.list({ type: 'order', where: { custmer: 'x' } })).rejects.toThrow(/did you mean "customer"/);
    await expect(actors.list({ type: 'order', where: { customer: {} as never } })).rejects.toThrow(/must be a text/);
    await expect(actors.list({ where: { customer: 'x' } })).rejects.toThrow(/needs the type/);
    await expect(actors.list({ type: 'ordr', where: { customer: 'x' } })).rejects.toThrow(NotFound);
  });

  test('keeps no row of an actor that is pruned, and none of types that declare nothing', async () => {
    behaviour = 'hibernate';
    const { actors, one: ask, query } = await openScene([Order, Thing]);
    const order = await actors.create(Order, { customer: 'ada' });
    await actors.work(await actors.create(Thing, { n: 1 }));
    expect(await ask('select count(*)::int from pawl.actor_field')).toBe(1);
    await actors.incr(order, 'change');
    await actors.work(order);
    await actors.work(order);
    await query(
      `update pawl.actor_instance set finished_at = finished_at - interval '1 y' where finished_at is not null`,
    );
    await query('select pawl.actor_prune(100)');
    expect(await ask('select count(*)::int from pawl.actor_field')).toBe(0);
  });
});
