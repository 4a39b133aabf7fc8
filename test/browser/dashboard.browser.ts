import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { hashPassword } from '../../src/http/index.ts';
import { makeScene, type Scene, type Visit } from './scene.ts';

let scene: Scene;
let base: string;
beforeAll(async () => {
  scene = await makeScene();
  base = await scene.open({ title: 'the shop' });
  await fetch(new URL('api/v1/bulk', base), {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ action: 'cancel', query: 'kind:welcome', queue: 'mail', limit: 30 }),
  });
});
afterAll(() => scene?.stop());

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Pictures for the documents, on request: they differ from run to run, and are not for every commit. */
const SHOTS = process.env['PAWL_SCREENSHOTS']
  ? new URL('../../docs/screenshots/', import.meta.url).pathname
  : undefined;

interface Place {
  readonly name: string;
  readonly path: () => string;
  /** Something that is only there when the page has its data. */
  readonly shows: RegExp;
  readonly isShot?: boolean;
}

const PLACES: readonly Place[] = [
  { name: 'overview', path: () => '', shows: /Completed a minute/, isShot: true },
  { name: 'queues', path: () => 'queues', shows: /thumbnails/, isShot: true },
  { name: 'queue', path: () => 'queues/thumbnails', shows: /it has no running worker/, isShot: true },
  { name: 'jobs', path: () => 'jobs?q=status:error', shows: /mailbox unavailable/, isShot: true },
  { name: 'job', path: () => `jobs/${scene.ids.failed}`, shows: /Attempt 3/, isShot: true },
  { name: 'errors', path: () => 'errors', shows: /mailbox unavailable/ },
  { name: 'bulk actions', path: () => 'bulk', shows: /kind:welcome/ },
  { name: 'bulk action', path: () => 'bulk/1', shows: /can no longer be cancelled/ },
  { name: 'schedules', path: () => 'schedules', shows: /at 03:30 every day/ },
  { name: 'workers', path: () => 'workers', shows: /Of actors/ },
  { name: 'locks', path: () => 'locks', shows: /invoice:2041/, isShot: true },
  { name: 'lock', path: () => 'locks/one?namespace=shop&name=invoice:2041', shows: /Place/ },
  { name: 'actors', path: () => 'actors', shows: /web-3/, isShot: true },
  { name: 'actor', path: () => `actors/${scene.ids.server}`, shows: /it is here/, isShot: true },
  { name: 'captures', path: () => 'captures', shows: /no change can go unnoticed/, isShot: true },
  { name: 'files', path: () => 'files', shows: /prices\/2026\.csv/, isShot: true },
  { name: 'file', path: () => 'files/one?id=prices/2026.csv', shows: /Version 3|version 3/, isShot: true },
  { name: 'history', path: () => 'history', shows: /granted/, isShot: true },
  { name: 'pages', path: () => 'pages', shows: /The certificate ends/ },
  { name: 'admin', path: () => 'admin', shows: /queue_job/ },
];

async function shows(page: Page, pattern: RegExp): Promise<void> {
  await page.waitForFunction(
    (source) => new RegExp(source).test(document.body.innerText + document.body.textContent),
    pattern.source,
    { timeout: 20_000 },
  );
}

/** What axe finds against WCAG 2.2 AA. The debugger puts it in, which the policy of the page does not bind. */
async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    interface Violation {
      readonly id: string;
      readonly nodes: readonly { readonly html: string; readonly failureSummary?: string }[];
    }
    const run: (options: object) => Promise<{ violations: Violation[] }> = Reflect.get(
      Reflect.get(globalThis, 'axe'),
      'run',
    );
    const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const { violations: found } = await run({ runOnly: rules });
    return found.flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary = '' }) => `${id}: ${html.slice(0, 160)} ${failureSummary.slice(0, 200)}`),
    );
  });
}

/** Nothing sticks out to the right; what is wider scrolls in a place of its own. */
async function fits(page: Page, width: number): Promise<void> {
  await page.setViewportSize({ width, height: 800 });
  await page.waitForFunction((most) => document.documentElement.scrollWidth <= most, width, { timeout: 5000 });
}

async function look(page: Page, colorScheme: 'light' | 'dark', { name, isShot }: Place): Promise<void> {
  await page.emulateMedia({ colorScheme });
  await page.waitForFunction((theme) => getComputedStyle(document.documentElement).colorScheme === theme, colorScheme);
  if (isShot === true && SHOTS !== undefined) {
    await page.waitForTimeout(700);
    await page.screenshot({ path: `${SHOTS}${name}-${colorScheme}.png` });
  }
  expect(await violations(page)).toEqual([]);
}

test.each(PLACES)('$name shows its data, is accessible in both themes, and breaks no policy', async (place) => {
  const { page, context, complaints } = await scene.visit(new URL(place.path(), base).href, {
    reducedMotion: 'reduce',
  });
  await shows(page, place.shows);
  await page.waitForFunction(() => document.querySelector('.skeleton') === null);
  expect(complaints).toEqual([]);
  await look(page, 'light', place);
  await look(page, 'dark', place);
  await fits(page, 320);
  await context.close();
});

describe('what can be done', () => {
  async function on(path: string): Promise<Visit> {
    return scene.visit(new URL(path, base).href);
  }

  test('a queue is paused and resumed, and everybody sees it at once', async () => {
    const [{ page, context }, other] = [await on('queues'), await on('queues')];
    await page.getByRole('button', { name: 'Pause mail' }).click();
    await other.page.getByRole('button', { name: 'Resume mail' }).waitFor();
    await page.getByRole('button', { name: 'Resume mail' }).click();
    await other.page.getByRole('button', { name: 'Pause mail' }).waitFor();
    await Promise.all([context.close(), other.context.close()]);
  });

  test('a job is added with a number that no JavaScript number holds, found, cancelled and retried', async () => {
    const { page, context, complaints } = await on('queues/thumbnails');
    await page.getByRole('button', { name: 'Add a job' }).click();
    await page.getByLabel('Payload, as JSON').fill('{"image": "huge.png", "bytes": 12345678901234567890123}');
    await page.getByRole('button', { name: 'Add', exact: true }).click();
    const said = await page.getByText(/^job \d+ is added$/).textContent();
    const id = /\d+/.exec(said ?? '')?.[0] ?? '';
    await page.locator('#search').fill(id);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: `Job ${id}` }).waitFor();
    await page.getByText('12345678901234567890123').waitFor();
    await page.getByRole('button', { name: 'Cancel', exact: true }).click();
    await page.getByLabel('Reason, kept with the job').fill('a test');
    await page.getByRole('button', { name: 'Cancel it' }).click();
    await page.getByRole('button', { name: 'Retry', exact: true }).click();
    await page.getByText(`job ${id} is now new`).waitFor();
    expect(complaints).toEqual([]);
    await context.close();
  });

  test('all jobs that a search finds are retried, with what became of each', async () => {
    const { page, context } = await on('jobs?q=status:error');
    await page.getByRole('button', { name: 'Retry all…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Retry 13 jobs' }).click();
    await page.getByText(/^13 done, 0 refused, of 13$/).waitFor();
    await page.reload();
    await page.getByText(/^13 done, 0 refused, of 13$/).waitFor();
    await page.getByRole('link', { name: 'What became of each' }).click();
    await page.getByRole('table', { name: 'Results' }).waitFor();
    await page.getByRole('button', { name: 'refused', exact: true }).click();
    await page.getByText('Nothing here').waitFor();
    await context.close();
  });

  test('a lock is broken only by somebody who types its name and gives a reason', async () => {
    const { page, context } = await on('locks/one?namespace=shop&name=nightly-import');
    await page.getByRole('button', { name: 'Break', exact: true }).click();
    const sure = page.getByRole('button', { name: 'Break it' });
    expect(await sure.isDisabled()).toBe(true);
    await page.getByLabel(/Reason/).fill('the machine is gone');
    expect(await sure.isDisabled()).toBe(true);
    await page.getByLabel(/Type nightly-import/).fill('nightly-import');
    await sure.click();
    await page.getByText('It is free').waitFor();
    await page.getByText('the machine is gone').waitFor();
    await context.close();
  });

  test('a semaphore is raised, an actor paused and destroyed, a page acknowledged and resolved, a schedule run, paused and ended', async () => {
    const { page, context } = await on(`actors/${scene.ids.server}`);
    await page.getByRole('button', { name: 'Pause', exact: true }).click();
    await page.getByText(`actor ${scene.ids.server} is paused`).waitFor();
    await page.getByRole('button', { name: 'Resume', exact: true }).click();
    await page.getByText(`actor ${scene.ids.server} is resumed`).waitFor();
    await page.getByRole('button', { name: 'Run a turn' }).click();
    await page.getByText(/^one turn in running: stay$/).waitFor();
    await page.goto(new URL('pages', base).href);
    await page.getByRole('button', { name: 'Acknowledge page 2' }).click();
    await page.getByText('page 2 is acknowledged').waitFor();
    await page.getByRole('button', { name: 'Resolve page 2' }).click();
    await page.getByText('page 2 is resolved').waitFor();
    await page.goto(new URL('schedules', base).href);
    await page.getByRole('button', { name: 'Run now: digest' }).click();
    const enqueued = await page.getByText(/^job \d+ is enqueued$/).innerText();
    await page.getByLabel('past jobs of digest').click();
    const past = page.getByRole('list', { name: 'Jobs of digest, newest first' });
    await past.getByRole('link', { name: enqueued.replaceAll(/\D/g, ''), exact: true }).waitFor();
    await page.getByRole('button', { name: 'Pause digest' }).click();
    await page.getByText('schedule "digest" of queue "mail" is paused').waitFor();
    await page.getByRole('button', { name: 'Resume digest' }).click();
    await page.getByText('schedule "digest" of queue "mail" is resumed').waitFor();
    await page.getByRole('button', { name: 'End digest' }).click();
    await page.getByLabel(/Type digest/).fill('digest');
    await page.getByRole('button', { name: 'End it' }).click();
    await page.getByText('schedule "digest" of queue "mail" is ended').waitFor();
    await page.goto(new URL(`jobs/${enqueued.replaceAll(/\D/g, '')}`, base).href);
    await page.getByRole('link', { name: 'digest', exact: true }).waitFor();
    await page.goto(new URL(`actors/${scene.ids.server}`, base).href);
    await page.getByRole('button', { name: 'Destroy', exact: true }).click();
    await page.getByLabel(/Type/).fill(scene.ids.server);
    await page.getByRole('button', { name: 'Destroy it' }).click();
    await page.locator('.badge', { hasText: 'final' }).first().waitFor();
    await context.close();
  });

  test('everything is done without a mouse', async () => {
    const { page, context } = await on('');
    await page.getByText('Needs attention').waitFor();
    await page.keyboard.press('g');
    await page.keyboard.press('l');
    await page.getByRole('heading', { name: 'Locks', level: 1 }).waitFor();
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe('H1');
    await page.keyboard.press('/');
    await page.keyboard.type('status:error');
    await page.keyboard.press('Enter');
    await page.waitForURL(/jobs\?q=status/);
    await page.keyboard.press('Tab');
    await page.locator('h1').focus();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keys' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await page.keyboard.press('p');
    await page.getByRole('button', { name: /Paused/ }).waitFor();
    await page.keyboard.press('t');
    expect(await page.evaluate(() => document.documentElement.dataset['theme'])).toBe('light');
    await context.close();
  });

  test('a filter is in the address, and comes back with it', async () => {
    const { page, context } = await on('jobs');
    await page.getByRole('button', { name: 'error', exact: true }).click();
    await page.getByRole('combobox', { name: 'Queue' }).selectOption('mail');
    await page.waitForURL(/q=status%3Aerror&queue=mail/);
    await page.reload();
    expect(await page.getByRole('combobox', { name: 'Queue' }).inputValue()).toBe('mail');
    expect(await page.getByRole('button', { name: 'error', exact: true }).getAttribute('aria-pressed')).toBe('true');
    await context.close();
  });
});

describe('who may what', () => {
  test('a visitor who only looks is shown no buttons, and gets nowhere without them', async () => {
    const url = await scene.open({ readOnly: true });
    const { page, context } = await scene.visit(new URL('queues', url).href);
    await page.getByText('Read-only mode').waitFor();
    await page.getByText('thumbnails').first().waitFor();
    expect(await page.getByRole('button', { name: /Pause mail/ }).count()).toBe(0);
    const status = await page.evaluate(
      async () => (await fetch('api/v1/queues/mail/pause', { method: 'POST' })).status,
    );
    expect(status).toBe(403);
    await context.close();
  });

  test('people log in, do what they may, and log out; below a path, too', async () => {
    const users = [{ name: 'ada', password: await hashPassword('correct horse battery'), role: 'operator' as const }];
    const url = await scene.open({ basePath: '/tools/pawl', auth: { users } });
    const { page, context, complaints } = await scene.visit(new URL('queues', url).href, { colorScheme: 'dark' });
    await page.getByLabel('Name').fill('ada');
    await page.getByLabel('Password').fill('wrong, all wrong');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByText('the name or the password is wrong').waitFor();
    await page.getByLabel('Password').fill('correct horse battery');
    await page.getByRole('button', { name: 'Log in' }).click();
    await page.getByRole('button', { name: 'Pause mail' }).waitFor();
    await page.getByRole('link', { name: 'Locks' }).click();
    await page.waitForURL(/\/tools\/pawl\/locks$/);
    await page.goto(new URL('locks/one?namespace=shop&name=invoice:2041', url).href);
    await page.getByRole('heading', { name: 'Holders' }).waitFor();
    expect(await page.getByRole('button', { name: 'Break' }).count()).toBe(0);
    await page.getByRole('button', { name: 'Log out' }).click();
    await page.getByRole('button', { name: 'Log in' }).waitFor();
    expect(complaints.filter((one) => !/401/.test(one))).toEqual([]);
    await context.close();
  });
});

test('tabs of one browser share one stream', async () => {
  const { page, context } = await scene.visit(base);
  await page.getByText('Needs attention').waitFor();
  const other = await context.newPage();
  let streams = 0;
  other.on('request', (request) => {
    if (request.url().includes('/events')) streams += 1;
  });
  await other.goto(new URL('queues', base).href);
  await other.getByRole('button', { name: 'Pause mail' }).click();
  await other.getByRole('button', { name: 'Resume mail' }).click();
  await other.getByRole('button', { name: 'Pause mail' }).waitFor();
  expect(streams).toBe(0);
  await context.close();
});
