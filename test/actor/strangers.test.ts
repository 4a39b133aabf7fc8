import { describe, expect, onTestFinished, test } from 'vitest';
import { actor, type Dispatcher, type LooseFields, type Turn } from '../../src/actor/index.ts';
import { LockNotAvailable, TimedOut } from '../../src/base/errors.ts';
import type { Transaction } from '../../src/engine/postgres/index.ts';
import { aborted, until } from '../support/eventually.ts';
import { type ActorScene, openScene } from './scene.ts';

type AnyTurn = Turn<LooseFields, string, string>;

/** What the test's actors do: by the field "does". */
function make(bodies: Readonly<Record<string, (a: AnyTurn) => unknown>>) {
  return actor('stranger', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '50ms', jitter: 0 },
    history: '1h',
    states: (state) => ({
      only: state({
        to: ['late'],
        run: async (a) => {
          await bodies[String(a.fields['does'])]?.(a);
          if (a.fields['does'] === 'late') return a.to('late');
          return a.fields['does'] === 'stays' || a.fields['does'] === 'bears' ? a.hibernate() : a.done();
        },
      }),
      late: state({ deadline: '10ms', run: (a) => a.hibernate() }),
    }),
  });
}

/** A transaction that a user leaves open once its work is done. @returns ends it */
async function leaveOpen(scene: ActorScene, work: (tx: Transaction) => Promise<unknown>): Promise<() => Promise<void>> {
  let end = (): void => {};
  const ended = new Promise<void>((resolve) => {
    end = resolve;
  });
  let isOpen = false;
  const over = scene.engine.transaction(async (tx) => {
    await work(tx);
    isOpen = true;
    await ended;
  });
  onTestFinished(async () => {
    end();
    await over;
  });
  await Promise.race([over, until('its work is done', () => isOpen)]);
  return () => {
    end();
    return over;
  };
}

/** Twenty that end at once, and need nothing else. */
async function othersEnd({ actors }: ActorScene, Stranger: ReturnType<typeof make>): Promise<void> {
  const others = [];
  for (let n = 0; n < 20; n += 1) others.push(await actors.create(Stranger, { does: 'nothing' }));
  await Promise.all(others.map((one) => actors.waitFor(one)));
}

describe('a transaction that a user leaves open', () => {
  test('after a guard() keeps no other turn of its worker from being committed; its own is once it ends', async () => {
    const closes: (() => Promise<void>)[] = [];
    const Stranger = make({
      guards: async (a) => {
        closes.push(await leaveOpen(scene, (tx) => a.guard(tx)));
      },
    });
    const scene = await openScene([Stranger], { max: 20 });
    await scene.run();
    const guarded: { readonly id: string; readonly type: string }[] = [];
    for (let n = 0; n < 6; n += 1) guarded.push(await scene.actors.create(Stranger, { does: 'guards' }));
    await until('all have their guard', () => closes.length === 6);
    await othersEnd(scene, Stranger);
    for (const one of guarded) expect(await scene.actors.get(one)).toMatchObject({ status: 'running', attempt: 1 });
    for (const close of closes) await close();
    await Promise.all(guarded.map((one) => scene.actors.waitFor(one)));
    expect(closes.length).toBe(6);
  });

  test('with pages that others open, resolve, are late with, or end with, keeps none of them', async () => {
    const Stranger = make({
      pages: (a) => a.page({ tag: 'mine', summary: 'seen' }),
      stays: (a) => a.page({ tag: 'kept', summary: 'seen' }),
    });
    const scene = await openScene([Stranger], { max: 20 });
    const delivered: string[] = [];
    const channel = { name: 'test', deliver: async ({ tag }: { tag: string }) => void delivered.push(tag) };
    const dispatcher: Dispatcher = await scene.run({ channels: [channel] });
    const holder = await scene.actors.create(Stranger, { does: 'stays' });
    const late = await scene.actors.create(Stranger, { does: 'late' });
    const isPaged = (id: string) => async () => (await scene.actors.pages({ actor: id })).length === 1;
    await until('it has its page', isPaged(holder.id));
    await until('its deadline has passed', isPaged(late.id));
    await scene.actors.page({ tag: 'actor-unknown:1:only', summary: 'seen' });
    const open = await leaveOpen(scene, async (tx) => {
      for (const tag of ['kept', `actor-deadline:${late.id}`, 'actor-unknown:1:only']) {
        await scene.actors.resolvePage({ tag }, { tx });
      }
      await scene.actors.page({ tag: 'mine', summary: 'of the user' }, { tx });
    });
    // It is final, though its page is locked: that is resolved later.
    await scene.query(
      `update pawl.actor_instance set fields = '{"does":"nothing"}', wake_at = clock_timestamp() where id = $1`,
      [holder.id],
    );
    dispatcher.wake();
    await scene.actors.waitFor(holder);
    const pager = await scene.actors.create(Stranger, { does: 'pages' });
    await until('it has failed', async () => (await scene.actors.get(pager)).error !== null);
    expect((await scene.actors.get(pager)).error).toMatch(/held by another transaction/);
    // Late once more, and so is another one.
    await scene.query(`update pawl.actor_instance set deadline_at = clock_timestamp() where id = $1`, [late.id]);
    const second = await scene.actors.create(Stranger, { does: 'late' });
    await until('the other one is paged', isPaged(second.id));
    await until('that is told', () => delivered.includes(`actor-deadline:${second.id}`));
    await (await scene.run()).started;
    await othersEnd(scene, Stranger);
    await scene.query(
      `update pawl.actor_instance set finished_at = finished_at - interval '2 h' where finished_at is not null`,
    );
    await scene.one('select pawl.actor_prune(100)');
    await open();
    await scene.actors.waitFor(pager);
  });

  test('that it rolls back leaves no page open that a final actor had', async () => {
    const Stranger = make({ stays: (a) => a.page({ tag: 'kept', summary: 'seen', root: 'r' }) });
    const scene = await openScene([Stranger], { max: 20 });
    const dispatcher = await scene.run();
    const holder = await scene.actors.create(Stranger, { does: 'stays' });
    await until('it has its page', async () => (await scene.actors.pages()).length === 1);
    const hidden = await scene.actors.page({ tag: 'hidden', summary: 'of the same root', root: 'r' });
    let roll = (): void => {};
    const rolled = new Promise<void>((resolve) => {
      roll = resolve;
    });
    let isThere = false;
    const undone = scene.engine
      .transaction(async (tx) => {
        await scene.actors.resolvePage({ tag: 'kept' }, { tx });
        isThere = true;
        await rolled;
        throw new Error('undo');
      })
      .catch(() => {});
    await until('it is there', () => isThere);
    await scene.query(`update pawl.actor_instance set fields = '{}', wake_at = clock_timestamp() where id = $1`, [
      holder.id,
    ]);
    dispatcher.wake();
    await scene.actors.waitFor(holder);
    roll();
    await undone;
    // The dispatcher prunes, too, and what one of them has locked the other passes over.
    await until('its page is resolved', async () => {
      await scene.one('select pawl.actor_prune(100)');
      return (await scene.actors.pages()).length === 1;
    });
    expect((await scene.actors.pages()).map(({ id }) => id)).toEqual([hidden.id]);
    expect(await scene.actors.getPage(hidden.id)).toMatchObject({ suppressed: false });
  });

  // Invariants A9, A10.
  test('and has an actor locked for which more comes than is read at once keeps no other of its type from being woken', async () => {
    const Stranger = make({});
    const scene = await openScene([Stranger]);
    const [busy, other] = [
      await scene.actors.create(Stranger, { does: 'stays' }),
      await scene.actors.create(Stranger, { does: 'stays' }),
    ];
    await scene.run();
    for (const one of [busy, other]) await scene.actors.waitFor(one, { status: 'hibernating' });
    const end = await leaveOpen(scene, async (tx) => {
      await tx.client.query({
        text: 'select 1 from pawl.actor_instance where id = $1 for no key update',
        values: [busy.id],
      });
    });
    const turns = async ({ id }: { id: string }): Promise<number> => (await scene.actors.get(id)).epoch;
    const [before, ofBusy] = [await turns(other), await turns(busy)];
    const note = JSON.stringify({ actor: busy.id, name: 'note' });
    await scene.query('select count(pawl.actor_send($1::jsonb)) from generate_series(1, 2500)', [note]);
    await scene.actors.send(other, 'note');
    await until('the other one has run', async () => (await turns(other)) > before);
    expect(await turns(busy)).toBe(ofBusy);
    await end();
    await until('it has run, too', async () => (await turns(busy)) > ofBusy);
  });

  test('that creates, raises, sends and bears children keeps no other waiting; a turn that wants its key fails, and others of its kind go on', async () => {
    const Stranger = make({
      bears: async (a) => void (await a.create(Stranger, { does: 'nothing' }, { key: 'taken' })),
      pages: (a) => a.page({ tag: `of ${a.id}`, summary: 'seen' }),
    });
    const scene = await openScene([Stranger], { max: 20 });
    await scene.run();
    const parent = await scene.actors.create(Stranger, { does: 'stays' });
    const open = await leaveOpen(scene, async (tx) => {
      await scene.actors.create(Stranger, { does: 'nothing' }, { tx, key: 'taken', parent });
      await scene.actors.send(parent, 'note', 1, { tx });
    });
    const wanting: { readonly id: string; readonly type: string }[] = [];
    for (let n = 0; n < 6; n += 1) wanting.push(await scene.actors.create(Stranger, { does: 'bears' }));
    await until('all have failed', async () => {
      const all = await Promise.all(wanting.map((one) => scene.actors.get(one)));
      return all.every(({ error }) => error?.includes('held by another transaction') === true);
    });
    await othersEnd(scene, Stranger);
    const rich = await scene.actors.create(Stranger, { does: 'pages' });
    await scene.actors.waitFor(rich);
    await open();
  });
});

test('once() of a body whose guard() is in a transaction that it has left open fails, instead of waiting for ever', async () => {
  const seen: unknown[] = [];
  const Stranger = make({
    waits: async (a) => {
      const close = await leaveOpen(scene, (tx) => a.guard(tx));
      await a.once('x', 1, () => 1).catch((error: unknown) => seen.push(error));
      await close();
    },
  });
  const scene = await openScene([Stranger], { max: 20 });
  expect(await scene.actors.work(await scene.actors.create(Stranger, { does: 'waits' }))).toMatchObject({
    kind: 'done',
  });
  expect(seen[0]).toBeInstanceOf(LockNotAvailable);
});

test('a turn that has timed out passes no guard(), begins no once(), and is not committed, however late its schema answers', async () => {
  const seen: unknown[] = [];
  const Late = actor('late', {
    initial: 'only',
    backoff: { kind: 'fixed', min: '1h', jitter: 0 },
    states: (state) => ({
      only: state({
        timeout: '50ms',
        run: async (a) => {
          await aborted(a.signal);
          await scene.engine.transaction((tx) => a.guard(tx)).catch((error: unknown) => seen.push(error));
          await a.once('x', 1, () => seen.push('ran')).catch((error: unknown) => seen.push(error));
          return a.done();
        },
      }),
    }),
  });
  const scene = await openScene([Late]);
  const turn = await scene.actors.work(await scene.actors.create(Late, {}));
  expect(turn).toMatchObject({ kind: 'failed' });
  expect(turn?.error).toBeInstanceOf(TimedOut);
  expect(seen).toEqual([expect.any(TimedOut), expect.any(TimedOut)]);
});
