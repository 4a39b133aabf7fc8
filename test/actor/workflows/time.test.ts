import { expect, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { stub } from '../../../src/testing/index.ts';
import { play } from './stage.ts';

// Workflows that wait, as a user would write them.

const Sleeper = actor('sleeper', {
  initial: 'asleep',
  states: (state) => ({
    asleep: state({ to: ['awake'], run: (a) => (a.timer('month', '30d') ? a.to('awake') : a.hibernate()) }),
    awake: state({ run: (a) => a.done() }),
  }),
});

test('an actor sleeps for thirty days, whatever wakes it before', async () => {
  await play([Sleeper], async ({ actors, settle, advance }) => {
    const one = await actors.create(Sleeper, {});
    await settle();
    await actors.send(one, 'are you awake?');
    await advance('29d');
    expect((await actors.get(one)).state).toBe('asleep');
    await advance('1d');
    expect((await actors.get(one)).status).toBe('final');
  });
});

const Order = actor('order', {
  initial: 'unpaid',
  states: (state) => ({
    unpaid: state({
      to: ['paid', 'cancelled'],
      run: async (a) => {
        const [payment] = await a.receive('paid');
        if (payment !== undefined) return a.to('paid', { by: payment.payload });
        return a.timer('patience', '24h') ? a.to('cancelled') : a.hibernate();
      },
    }),
    paid: state({ run: (a) => a.done('paid') }),
    cancelled: state({ run: (a) => a.done('cancelled') }),
  }),
});

test('an order waits for its payment for a day at most, and leaves other messages', async () => {
  await play([Order], async ({ actors, settle, advance }) => {
    const [paid, forgotten] = [await actors.create(Order, {}), await actors.create(Order, {})];
    await settle();
    for (const one of [paid, forgotten]) await actors.send(one, 'note', 'by the way');
    await advance('23h');
    await actors.send(paid, 'paid', 'card');
    await advance('1h');
    expect(await actors.get(paid)).toMatchObject({ result: 'paid', fields: { by: 'card' }, messages: 1 });
    expect(await actors.get(forgotten)).toMatchObject({ result: 'cancelled' });
  });
});

const mail = stub(async (to: string, key: string) => `${to} ${key}`);

const Approval = actor('approval', {
  initial: 'asking',
  states: (state) => ({
    asking: state({
      to: ['approved', 'expired'],
      run: async (a) => {
        const votes = await a.receive('approve');
        const by = [...new Set([...(a.fields['by'] ?? []), ...votes.map(({ payload }) => payload)])];
        if (by.length >= 2) return a.to('approved', { by });
        if (a.timer('remind', '1d', { repeat: true })) await mail('both', a.key('remind', a.now.getTime()));
        return a.timer('over', '7d') ? a.to('expired') : a.hibernate({ by });
      },
    }),
    approved: state({ run: (a) => a.done(a.fields['by']) }),
    expired: state({ run: (a) => a.done('expired') }),
  }),
});

test('two people approve, and are reminded once a day', async () => {
  await play([Approval], async ({ actors, settle, advance }) => {
    const one = await actors.create(Approval, {});
    await settle();
    await actors.send(one, 'approve', 'ada');
    await actors.send(one, 'approve', 'ada');
    const before = mail.calls.length;
    for (let day = 0; day < 3; day += 1) await advance('1d');
    expect(mail.calls.length - before).toBe(3);
    await actors.send(one, 'approve', 'bob');
    await settle();
    expect((await actors.get(one)).result).toEqual(['ada', 'bob']);
    const late = await actors.create(Approval, {});
    await settle();
    await advance('7d');
    expect((await actors.get(late)).result).toBe('expired');
  });
});

const Session = actor('session', {
  initial: 'open',
  states: (state) => ({
    open: state({
      to: ['closed'],
      run: async (a) => {
        if ((await a.receive('click')).length > 0) a.cancelTimer('idle');
        const isOver = a.timer('idle', '30m') || a.timer('longest', '8h');
        return isOver ? a.to('closed', { why: a.fired }) : a.hibernate();
      },
    }),
    closed: state({ run: (a) => a.done(a.fields['why']) }),
  }),
});

test('a session has two timers at once: one that begins anew with each message, and one that does not', async () => {
  await play([Session], async ({ actors, settle, advance }) => {
    const [idle, busy] = [await actors.create(Session, {}), await actors.create(Session, {})];
    await settle();
    for (let click = 0; click < 17; click += 1) {
      await advance('29m');
      await actors.send(busy, 'click');
      await settle();
    }
    expect(await actors.get(idle)).toMatchObject({ status: 'final', result: ['idle'] });
    expect(await actors.get(busy)).toMatchObject({ status: 'final', result: ['longest'] });
  });
});
