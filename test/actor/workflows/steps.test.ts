import { expect, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { stub } from '../../../src/testing/index.ts';
import { play } from './stage.ts';

// Workflows of steps that crash anywhere, as a user would write them.

const call = stub(async (what: string, key: string) => `${what} ${key.length}`);

const Signup = actor('signup', {
  initial: 'running',
  states: (state) => ({
    running: state({
      to: ['welcomed'],
      run: async (a) => {
        const account = await a.once('account', {}, (key) => call('account', key));
        const site = await a.once('site', { account }, (key) => call('site', key));
        await a.once('mail', { site }, (key) => call('mail', key));
        return a.to('welcomed', { account, site });
      },
    }),
    welcomed: state({ run: (a) => a.done() }),
  }),
});

test('steps are made once each, wherever the process dies', async () => {
  const { runs } = await play(
    [Signup],
    async ({ actors, settle }) => {
      const one = await actors.create(Signup, {});
      await settle();
      expect(await actors.get(one)).toMatchObject({ status: 'final', fields: { account: 'account 32' } });
    },
    'everywhere',
  );
  expect(runs).toBeGreaterThan(8);
});

class CardRefusal extends Error {}

const STEPS = ['flight', 'hotel', 'car'] as const;
const book = stub(async (what: string, key: string) => {
  if (what === 'car') throw new CardRefusal('no car is left');
  return key;
});
const cancel = stub(async (_what: string, key: string) => key);

const Trip = actor('trip', {
  initial: 'booking',
  states: (state) => ({
    booking: state({
      to: ['booked', 'undoing'],
      tries: 5,
      giveUp: 'undoing',
      run: async (a) => {
        const step = STEPS[a.fields['done'] ?? 0];
        if (step === undefined) return a.to('booked');
        try {
          await a.once(step, {}, (key) => book(step, key));
        } catch (error) {
          if (error instanceof CardRefusal) return a.fatal('undoing', error);
          throw error;
        }
        return a.nap('10ms', { done: (a.fields['done'] ?? 0) + 1 });
      },
    }),
    booked: state({ run: (a) => a.done('booked') }),
    undoing: state({
      run: async (a) => {
        for (const step of STEPS.slice(0, a.fields['done']).toReversed()) {
          await a.once(step, {}, (key) => cancel(step, key));
        }
        return a.done(`not booked: ${a.cause?.split('\n')[0]}`);
      },
    }),
  }),
});

test('a saga undoes what it has done when a step is refused, wherever the process dies', async () => {
  await play(
    [Trip],
    async ({ actors, settle, advance }) => {
      const one = await actors.create(Trip, {});
      await settle();
      for (let step = 0; step < 3; step += 1) await advance('10ms');
      expect((await actors.get(one)).result).toBe('not booked: Error: no car is left');
    },
    'everywhere',
  );
  expect(new Set(cancel.calls.map(([what]) => what))).toEqual(new Set(['hotel', 'flight']));
});

const Part = actor('part', {
  semaphores: ['end'],
  initial: 'only',
  states: (state) => ({ only: state({ run: (a) => (a.take('end') ? a.done(a.fields['n']) : a.hibernate()) }) }),
});

const Whole = actor('whole', {
  initial: 'running',
  states: (state) => ({
    running: state({
      children: 'each',
      run: async (a) => {
        let next = a.fields['next'] ?? 0;
        for (let open = a.openChildren; open < 5 && next < 20; open += 1, next += 1) await a.create(Part, { n: next });
        if (a.openChildren > 0 || next > (a.fields['next'] ?? 0)) return a.hibernate({ next });
        return a.done((await a.children()).map(({ result }) => result));
      },
    }),
  }),
});

test('twenty children run in a window of five, which each end of a child fills up', async () => {
  await play([Whole, Part], async ({ actors, settle }) => {
    const one = await actors.create(Whole, {});
    await settle();
    for (let ended = 0; ended < 20; ended += 1) {
      const open = await actors.list({ parent: one });
      expect(open).toHaveLength(Math.min(5, 20 - ended));
      await actors.incr(String(open.at(-1)?.id), 'end');
      await settle();
    }
    expect((await actors.get(one)).result).toEqual(Array.from({ length: 20 }, (_, n) => n));
  });
});
