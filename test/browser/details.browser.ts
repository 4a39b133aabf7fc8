import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { actor, createActors, state } from '../../src/actor/index.ts';
import { createQueue } from '../../src/queue/index.ts';
import { MAIN } from '../cli/pawl.ts';
import { until } from '../support/eventually.ts';
import { makeStage, type Stage, TOKEN } from './stage.ts';

// What is small on a page, and was wrong once.
const run = promisify(execFile);
const LONG_NAME = `a-queue-with-a-name-${'that-goes-on-'.repeat(6)}`.slice(0, 100);

let stage: Stage;
let base: string;
const closers: (() => Promise<unknown>)[] = [];
beforeAll(async () => {
  stage = await makeStage();
  base = await stage.open();
});
afterAll(async () => {
  for (const close of closers.reverse()) await close();
  await stage?.stop();
});

const at = (path: string, of = base): string => new URL(path, of).href;

describe('nothing there yet', () => {
  test.each([
    ['queues', 'createQueue('],
    ['jobs', 'enqueue('],
    ['schedules', '.schedule('],
    ['workers', '.work('],
    ['actors', 'actor('],
    ['pages', 'actors.page('],
    ['locks', 'request('],
    ['captures', 'createCapture('],
    ['files', 'createFiles('],
  ])('%s shows what a program has to say', async (path, example) => {
    const { page, context } = await stage.visit(at(path));
    await page.locator('.empty .example', { hasText: example }).first().waitFor();
    await context.close();
  });

  test.each(['errors', 'history', 'bulk'])('%s says what will stand there', async (path) => {
    const { page, context } = await stage.visit(at(path));
    const empty = page.locator('.empty').first();
    await empty.waitFor();
    const title = await empty.locator('strong').innerText();
    expect((await empty.innerText()).length).toBeGreaterThan(title.length + 20);
    await context.close();
  });
});

describe('a queue', () => {
  test('with a long name leaves the filters of jobs in one row', async () => {
    await createQueue(stage.engine, LONG_NAME, { kinds: { one: {} } }).register();
    const { page, context } = await stage.visit(at('jobs'), { viewport: { width: 1280, height: 800 } });
    const choice = page.getByRole('combobox', { name: 'Queue' });
    await choice.locator('option', { hasText: LONG_NAME }).waitFor({ state: 'attached' });
    expect((await choice.boundingBox())?.width).toBeLessThanOrEqual(240);
    const tops = await page.locator('form.filters > *:not(datalist)').evaluateAll((all) => {
      const middle = (element: Element): number => {
        const { top, bottom } = element.getBoundingClientRect();
        return Math.round((top + bottom) / 2);
      };
      return new Set(all.map(middle)).size;
    });
    expect(tops).toBe(1);
    await context.close();
  });

  test('says nothing against its figures: jobs that are due are ready', async () => {
    const due = createQueue(stage.engine, 'due', { kinds: { one: {} } });
    const ids = await due.enqueueMany([1, 2, 3].map((payload) => ({ kind: 'one' as const, payload })));
    const soon = new Date(Date.now() + 1000);
    await due.enqueue('one', 4, { runAt: soon });
    await until('the last one is due', () => Date.now() > soon.getTime());
    expect(ids).toHaveLength(3);
    const { page, context } = await stage.visit(at('queues/due'));
    await page.getByText('it has no running worker').first().waitFor();
    const text = await page.locator('main').innerText();
    expect(text).not.toContain('none is ready');
    expect(text).not.toMatch(/scheduled for later: due now/);
    await context.close();
  });

  test('whose jobs all ran in one hour has one colour in the key of its hours', async () => {
    const once = createQueue(stage.engine, 'once', { kinds: { one: {} } });
    await once.enqueue('one', 1);
    const worker = once.work({ one: async () => {} });
    await once.drain();
    await worker.stop();
    const { page, context } = await stage.visit(at('queues/once'));
    const key = page.locator('.heat-key');
    await key.waitFor();
    expect(await key.locator('b').count()).toBe(1);
    expect((await key.innerText()).match(/\d+(\.\d+)? m?s/g)).toHaveLength(1);
    await context.close();
  });
});

test('an actor shows the turn that failed, and is destroyed only after a confirmation', async () => {
  const Failing = actor('failing', {
    initial: 'trying',
    semaphores: ['destroy'],
    always: { destroy: 'gone' },
    states: {
      trying: state({
        to: ['gone'],
        run: async () => {
          throw new Error('the socket is on fire');
        },
      }),
      gone: state({ to: [], run: async (a) => a.done() }),
    },
  });
  const actors = createActors(stage.engine, [Failing]);
  const { id } = await actors.create(Failing, {});
  await actors.work(id);
  const { page, context } = await stage.visit(at(`actors/${id}`));
  await page.getByRole('region', { name: 'Error of its last turn' }).getByText('the socket is on fire').waitFor();
  const facts = page.locator('dl.facts').first();
  expect(await facts.locator('dt', { hasText: 'Failed in a row' }).locator('+ dd').innerText()).toBe('1');
  const history = page.getByRole('region', { name: 'History' });
  await history.locator('td', { hasText: 'the socket is on fire' }).first().waitFor();
  expect(await history.locator('.lane b').count()).toBe(1);
  await page.getByRole('button', { name: 'Raise' }).click();
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  expect((await actors.get(id)).semaphores).toEqual({});
  await context.close();
});

describe('the history', () => {
  test('has the day and the zone of each moment, and a span that is chosen and taken back', async () => {
    const { page, context } = await stage.visit(at('history'), { timezoneId: 'America/New_York' });
    const table = page.getByRole('table', { name: 'Events, newest first' });
    await table.waitFor();
    expect(await table.locator('th').first().innerText()).toMatch(/When, .*(New.York|ET|EST|GMT-5|UTC-5)/i);
    const [first = ''] = await table.locator('tbody tr td:first-child').allInnerTexts();
    expect(first).toMatch(/(\d{4}-\d\d-\d\d|\d{1,2} \w{3}|\w{3} \d{1,2}).*\d\d:\d\d:\d\d\.\d{3}/);
    await page.getByLabel('From').fill('2100-01-01T00:00:00');
    await page.waitForURL(/since=2100/);
    await page.getByText('Nothing of that kind happened').waitFor();
    await page.getByLabel('From').fill('');
    await page.waitForURL((url) => !url.searchParams.has('since'));
    await table.locator('button').first().click();
    await page.waitForURL(/around=/);
    await page.getByRole('button', { name: /± 30 s around/ }).click();
    await page.waitForURL((url) => !url.searchParams.has('around'));
    await context.close();
  });
});

test('a job names the process that has it and its trace, and leads to both', async () => {
  const links = [{ title: 'Trace', of: 'job' as const, url: 'https://traces.example.org/{trace}' }];
  const own = await stage.open({ links });
  const slow = createQueue(stage.engine, 'slow', { kinds: { one: {} } });
  await slow.register();
  const trace = '0af7651916cd43dd8448eb211c80319c';
  const added = await fetch(at('api/v1/queues/slow/jobs', own), {
    method: 'POST',
    headers: {
      authorization: `Bearer ${TOKEN}`,
      'content-type': 'application/json',
      traceparent: `00-${trace}-b7ad6b7169203331-01`,
    },
    body: JSON.stringify({ kind: 'one', payload: 1 }),
  });
  const { id } = (await added.json()) as { id: string };
  const worker = slow.work({
    one: ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', () => resolve(undefined))),
  });
  closers.push(() => worker.stop({ timeout: 0 }));
  await until('it runs', async () => (await slow.get(id)).status === 'in-progress');
  const { page, context } = await stage.visit(at(`jobs/${id}`, own));
  await page.getByRole('link', { name: new RegExp(`:${process.pid}$`) }).waitFor();
  await page.locator('code', { hasText: trace }).waitFor();
  const link = page.getByRole('link', { name: 'Trace', exact: true });
  expect(await link.getAttribute('href')).toBe(`https://traces.example.org/${trace}`);
  await context.close();
});

describe('copied elsewhere, a job is', () => {
  let id: string;
  beforeAll(async () => {
    const queue = createQueue(stage.engine, 'copied', { kinds: { one: {} } });
    ({ id } = await queue.enqueue('one', { to: 'ada' }));
  });

  /** What a menu would copy. */
  async function copied(page: Page, name: string): Promise<string> {
    await page.locator('summary', { hasText: 'Copy as' }).first().click();
    const row = page.getByRole('button', { name: new RegExp(`^${name}`) });
    return row.locator('code').innerText();
  }

  test.each(['curl', 'CLI', 'SQL'])('what %s answers', async (name) => {
    const { page, context } = await stage.visit(at(`jobs/${id}`));
    await page.getByRole('heading', { name: `Job ${id}` }).waitFor();
    const text = await copied(page, name);
    expect(await answerOf(name, text)).toContain('copied');
    await context.close();
  });

  async function answerOf(name: string, text: string): Promise<string> {
    if (name === 'SQL') return JSON.stringify(await stage.engine.query({ name: 'test.copied', text, prepare: false }));
    const env = { ...process.env, PAWL_TOKEN: TOKEN, DATABASE_URL: stage.url };
    const command = name === 'CLI' ? text.replace(/^pawl /, `'${process.execPath}' '${MAIN}' `) : text;
    return (await run('sh', ['-c', command], { env })).stdout;
  }
});

test('a search is completed with what it can be made of, kinds of the queue too', async () => {
  await createQueue(stage.engine, 'known', { kinds: { welcome: {}, 'two words': {} } }).register();
  const { page, context } = await stage.visit(at('jobs?queue=known'));
  const field = page.getByRole('combobox', { name: 'Search' });
  const offered = (): Promise<string[]> =>
    page.locator('#qualifiers option').evaluateAll((all) => all.map((one) => one.getAttribute('value') ?? ''));
  await field.fill('status:e');
  await until('the status is offered', async () => (await offered()).includes('status:error'));
  await field.fill('status:error ki');
  await until('the kinds are offered', async () => (await offered()).includes('status:error kind:welcome'));
  expect(await offered()).toContain('status:error kind:"two words"');
  expect(await offered()).not.toContain('status:error status:new');
  await context.close();
});
