import { expect, test } from 'vitest';
import { actor } from '../../../src/actor/index.ts';
import { aborted, until } from '../../support/eventually.ts';
import { play } from './stage.ts';

// Workflows that talk to people and programs, as a user would write them.

const Cart = actor('cart', {
  initial: 'open',
  index: ['customer'],
  states: (state) => ({
    open: state({
      run: async (a) => {
        let items: string[] = a.fields['items'] ?? [];
        for (const message of await a.receive('add')) {
          items = [...items, String(message.payload)];
          message.reply(items.length);
        }
        return a.hibernate({ items });
      },
    }),
  }),
});

test('a cart answers each request, and is looked at without a turn', async () => {
  await play([Cart], async ({ actors }) => {
    const one = await actors.create(Cart, { customer: 'ada' });
    const answers = [await actors.ask(one, 'add', 'tea'), await actors.ask(one, 'add', 'milk')];
    expect(answers).toEqual([1, 2]);
    expect((await actors.get(one)).fields).toMatchObject({ items: ['tea', 'milk'] });
  });
});

test('an operator finds an actor by a field, moves it with another one, and has it run now', async () => {
  await play([Cart], async ({ actors, settle }) => {
    const one = await actors.create(Cart, { customer: 'ada' });
    await settle();
    await actors.move(one, 'open', { customer: 'eve' }, { reason: 'sold' });
    await settle();
    expect(await actors.retry(one)).toBe(true);
    await settle();
    const found = await actors.list({ type: 'cart', where: { customer: 'eve' } });
    expect(found.map(({ id }) => id)).toEqual([one.id]);
    expect((await actors.history(one)).at(-1)?.reason).toBe('moved: sold');
  });
});

let asked = 0;

/** What a model would be asked, for as long as it likes. */
async function think(prompt: readonly string[], signal: AbortSignal): Promise<string> {
  asked += 1;
  if (prompt.at(-1) !== 'think for ten minutes') return `answer to ${prompt.at(-1)}`;
  await aborted(signal);
  throw signal.reason;
}

const Agent = actor('agent', {
  semaphores: ['cancel'],
  initial: 'listening',
  always: { cancel: 'cancelled' },
  states: (state) => ({
    listening: state({
      to: ['thinking'],
      run: async (a) => {
        const [said] = await a.receive('say', { limit: 1 });
        if (said === undefined) return a.hibernate();
        return a.to('thinking', { talk: [...(a.fields['talk'] ?? []), said.payload] });
      },
    }),
    thinking: state({
      to: ['listening', 'failed'],
      timeout: '10m',
      tries: 3,
      giveUp: 'failed',
      run: async (a) => {
        const answer = await a.once('think', a.fields['talk'], () => think(a.fields['talk'], a.signal));
        return a.to('listening', { talk: [...a.fields['talk'], answer] });
      },
    }),
    failed: state({ run: (a) => a.done({ error: a.cause }) }),
    cancelled: state({ run: (a) => a.done({ talk: a.fields['talk'] }) }),
  }),
});

test('an agent takes one message at a time, and is cancelled in the middle of a thought', async () => {
  await play([Agent], async ({ actors, settle }) => {
    const one = await actors.create(Agent, {});
    await actors.send(one, 'say', 'hello');
    await actors.send(one, 'say', 'and bye');
    await settle();
    expect((await actors.get(one)).fields).toEqual({
      talk: ['hello', 'answer to hello', 'and bye', 'answer to and bye'],
    });
    const before = asked;
    await actors.send(one, 'say', 'think for ten minutes');
    await until('it thinks', () => asked > before);
    await actors.incr(one, 'cancel');
    expect((await actors.waitFor(one)).result).toMatchObject({
      talk: expect.arrayContaining(['think for ten minutes']),
    });
  });
});
