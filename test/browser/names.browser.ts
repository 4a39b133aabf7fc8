import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { statement } from '../../src/engine/postgres/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { until } from '../support/eventually.ts';
import { makeStage, type Stage } from './stage.ts';

// People act on what they see: what is clicked is what is meant, and no two names look alike.
const HARD = ['%41dmin', 'Admin', '100%', '%2e%2e%2f', '../..', 'a/b', 'orders.v2', 'what?#', 'constructor'];
const DECEIVING = [
  ['\u202egpj.exe\u202c', '⟨U+202E⟩gpj.exe⟨U+202C⟩'],
  [' lead', '␣lead'],
  ['lead', 'lead'],
  ['tab\tname', 'tab⟨U+0009⟩name'],
  ['a  b', 'a␣ b'],
  ['pay\u200bments', 'pay⟨U+200B⟩ments'],
] as const;

let stage: Stage;
let base: string;
beforeAll(async () => {
  stage = await makeStage();
  base = await stage.open({ title: 'the shop' });
  for (const name of [...HARD, ...DECEIVING.map(([of]) => of)])
    await createQueue(stage.engine, name, { kinds: { send: {} } }).register();
});
afterAll(() => stage?.stop());

async function paused(): Promise<string[]> {
  const rows = await stage.engine.query<{ name: string }>(
    statement('test.paused', 'select name from pawl.queue where paused_at is not null'),
  );
  return rows.map(({ name }) => name);
}

test.each(HARD)('a click on queue %j leads to it, and its button pauses it and no other', async (name) => {
  const { page, context, complaints } = await stage.visit(new URL('queues', base).href);
  await page.getByRole('table', { name: 'Queues' }).getByRole('link', { name, exact: true }).click();
  await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
  await page.getByRole('button', { name: `Pause ${name}`, exact: true }).click();
  await until('it is paused', async () => (await paused()).length > 0);
  expect(await paused()).toEqual([name]);
  await page.reload();
  await page.getByRole('heading', { level: 1, name, exact: true }).waitFor();
  await page.getByRole('button', { name: `Resume ${name}`, exact: true }).click();
  await until('it goes on', async () => (await paused()).length === 0);
  expect(complaints).toEqual([]);
  await context.close();
});

test.each([
  'queues/%',
  'queues/%E0%A4%A',
  'queues/none.js',
  'constructor',
  'toString',
  '__proto__',
  'hasOwnProperty',
  'valueOf',
  'jobs/constructor',
  'jobs/99999999999999999999',
  'locks/two',
  'a/b/c/d',
  '%ff',
])('the address %s is no blank page', async (path) => {
  const { page, context, complaints } = await stage.visit(`${base}${path}`);
  await page
    .getByText(/There is no such|cannot be read|is no bigint|no actor|no job/)
    .first()
    .waitFor();
  await page.getByRole('heading', { level: 1 }).waitFor();
  expect(complaints.filter((one) => !/\b404\b/.test(one))).toEqual([]);
  await context.close();
});

test.each(['?from=1e300&to=x', 'history?around=yesterday&since=x', 'jobs?bulk=x&columns=,', 'queues?sort=x&order=y'])(
  'filters that are none, as in %s, are said to be so, or passed over',
  async (path) => {
    const { page, context, complaints } = await stage.visit(`${base}${path}`);
    await page.getByRole('table').or(page.getByRole('alert')).or(page.locator('.empty')).first().waitFor();
    expect(await page.getByText('This page cannot be shown').count()).toBe(0);
    expect(complaints.filter((one) => !/\b400\b/.test(one))).toEqual([]);
    await context.close();
  },
);

test('what would not be seen in a name is a sign, wherever the name stands', async () => {
  const { page, context } = await stage.visit(new URL('queues', base).href);
  await page.getByRole('table', { name: 'Queues' }).waitFor();
  for (const [, shown] of DECEIVING) await page.getByRole('link', { name: shown, exact: true }).waitFor();
  const [deceiving, shown] = DECEIVING[0];
  await page.getByRole('link', { name: shown, exact: true }).click();
  await page.getByRole('heading', { level: 1, name: shown, exact: true }).waitFor();
  expect(new URL(page.url()).pathname).toBe(`/queues/${encodeURIComponent(deceiving)}`);
  expect(await page.title()).toBe(`${shown} · the shop · Pawl`);
  await page.goto(new URL('jobs', base).href);
  const choice = page.getByRole('combobox', { name: 'Queue' });
  await choice.locator('option', { hasText: shown }).waitFor({ state: 'attached' });
  await choice.selectOption({ label: shown });
  await page.waitForURL((url) => url.searchParams.get('queue') === deceiving);
  expect(await page.locator('body').innerText()).not.toContain('\u202e');
  await context.close();
});

describe('addresses', () => {
  test('each page has a title of its own', async () => {
    const { page, context } = await stage.visit(base);
    const titled = (title: string): Promise<unknown> =>
      page.waitForFunction((wanted) => document.title === wanted, title);
    await titled('Overview · the shop · Pawl');
    await page.getByRole('link', { name: 'Jobs', exact: true }).click();
    await titled('Jobs · the shop · Pawl');
    await page.goto(new URL('queues/100%25', base).href);
    await titled('100% · the shop · Pawl');
    await context.close();
  });

  test('a line of a log leads to a job, a queue or a lock by a short address', async () => {
    const queue = createQueue(stage.engine, 'orders.v2', { kinds: { send: {} } });
    const { id } = await queue.enqueue('send', null);
    const { page, context } = await stage.visit(new URL(`j/${id}`, base).href);
    await page.getByRole('heading', { name: `Job ${id}` }).waitFor();
    expect(new URL(page.url()).pathname).toBe(`/jobs/${id}`);
    await page.goto(new URL('l/order/5?namespace=shop', base).href);
    await page.getByRole('heading', { name: 'order/5' }).waitFor();
    expect(new URL(page.url()).search).toBe('?namespace=shop&name=order%2F5');
    await page.goto(new URL('q/100%25', base).href);
    await page.getByRole('heading', { name: '100%' }).waitFor();
    await page.goto(new URL('a/17', base).href);
    await page.getByRole('heading', { name: 'Actor 17' }).waitFor();
    await context.close();
  });
});
