import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Actors, actor, createActors, state } from '../../src/actor/index.ts';
import { makeStage, type Stage } from './stage.ts';

// What people see of the fields of an actor, and of what its turns changed in them.
let stage: Stage;
let base: string;
const closers: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  stage = await makeStage();
  base = await stage.open();
});
afterAll(async () => {
  for (const close of closers) await close();
  await stage?.stop();
});

/** An actor that counts how often it was asked to. */
async function counting(name: string, fieldHistory?: '7d'): Promise<{ actors: Actors; id: string }> {
  const Counter = actor(name, {
    initial: 'idle',
    semaphores: ['count'],
    fieldHistory,
    states: {
      idle: state({
        to: [],
        run: async (a) => {
          if (!a.pos('count')) return a.hibernate();
          a.decr('count');
          return a.hibernate({ total: Number(a.fields['total']) + 1 });
        },
      }),
    },
  });
  const actors = createActors(stage.engine, [Counter]);
  const dispatcher = actors.run();
  closers.push(() => dispatcher.stop());
  const { id } = await actors.create(Counter, { total: 0, owner: 'ada' });
  await actors.waitFor(id, { state: 'idle', status: 'hibernating' });
  return { actors, id };
}

/** One that has counted to three. */
async function counted(name: string): Promise<string> {
  const { actors, id } = await counting(name, '7d');
  for (let n = 0; n < 3; n += 1) {
    await actors.incr(id, 'count');
    await expect.poll(async () => (await actors.fieldHistory(id)).length).toBe(n + 1);
  }
  return id;
}

test('what a turn changes in the fields shows as it is made, where older ones are not kept', async () => {
  const { actors, id } = await counting('counter');
  const { page, context } = await stage.visit(new URL(`actors/${id}`, base).href);
  await page.getByText('Nothing since this page was opened').waitFor();
  await page.getByText("fieldHistory: '7d'").waitFor();
  await actors.incr(id, 'count');
  const changes = page.getByRole('list', { name: /What its turns change/ });
  await changes.getByText('total').first().waitFor();
  expect(await changes.locator('del').first().innerText()).toBe('0');
  expect(await changes.locator('ins').first().innerText()).toBe('1');
  await page.getByRole('img', { name: /In which state it was: idle for/ }).waitFor();
  await context.close();
});

test('what earlier turns changed shows turn by turn, and between any two of them', async () => {
  const id = await counted('kept');
  const { page, context } = await stage.visit(new URL(`actors/${id}`, base).href);
  const changes = page.getByRole('list', { name: /What its turns change/ }).getByRole('listitem');
  await changes.nth(2).waitFor();
  expect(await changes.locator('del').allInnerTexts()).toEqual(['2', '1', '0']);
  expect(await changes.locator('ins').allInnerTexts()).toEqual(['3', '2', '1']);
  expect(await changes.first().innerText()).toMatch(/Turn \d+ in idle/);
  const [from, to] = [page.getByLabel('Compare the fields'), page.getByLabel('with those')];
  await from.selectOption('first');
  await to.selectOption({ index: 1 });
  await page.waitForURL(/[?&]from=first&to=\d+/);
  const between = page.getByRole('region', { name: /^From before turn \d+ to after turn \d+$/ });
  expect(await between.locator('del, ins').allInnerTexts()).toEqual(['0', '3']);
  await page.reload(); // which moments are compared is in the address
  await between.locator('ins').waitFor();
  await from.selectOption({ index: 1 });
  await page.getByText('Nothing differs.').waitFor();
  await context.close();
});

test('what turns changed is not shown to a visitor who may not read payloads', async () => {
  const id = await counted('secret');
  const token = 'a-token-of-somebody-who-only-looks';
  const only = await stage.open({ auth: { tokens: [{ name: 'bob', token, permissions: ['view'] }] } });
  const { page, context } = await stage.visit(new URL(`actors/${id}`, only).href, {
    extraHTTPHeaders: { authorization: `Bearer ${token}` },
  });
  await page.getByText('This needs the permission payload:read.').first().waitFor();
  expect(await page.getByText('What its turns change').count()).toBe(0);
  expect(await page.content()).not.toContain('owner');
  await context.close();
});
